"""`python -m benchmarks.amqp_load JSON`: clients of AMQP on bare sockets, in a process of their own.

Frames are made once and sent in slices; what comes back is counted by its length. So one client takes a fraction of
what any server does. The JSON names the `port`, `queue`, its `arguments`, the `verb` (publish or consume), how many
`connections`, how many messages each moves (`count`), and their `size`. Says `ready`, begins when a line comes, and
says how many seconds it took.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import sys
from collections.abc import Iterator
from time import perf_counter
from typing import Any

from pamqp import commands, frame, header, heartbeat

WINDOW = 2_000
"""So many messages of a publisher are on their way and not confirmed, or so many of a consumer not acked, at most."""
SLICE = 100
"""So many are sent at a time."""
_ACK = struct.Struct(">BHIIQBB")
_ACK_BYTES = 21
_ACK_METHOD = 0x003C0050
_END = 0xCE
_PATIENCE_SECONDS = 60


class Line:
    """One connection, one channel."""

    def __init__(self, port: int, heartbeat_seconds: int = 0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""
        self.socket.sendall(b"AMQP\x00\x00\x09\x01")
        self.read()
        self.say(commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"), 0)
        tune = self.read()
        self.say(commands.Connection.TuneOk(tune.channel_max, tune.frame_max, heartbeat_seconds), 0)
        self.ask(commands.Connection.Open(), 0)
        self.ask(commands.Channel.Open(), 1)

    def ask(self, told: Any, channel: int = 1) -> Any:
        self.say(told, channel)
        return self.read()

    def say(self, told: Any, channel: int = 1) -> None:
        self.socket.sendall(frame.marshal(told, channel))

    def beat(self) -> None:
        self.say(heartbeat.Heartbeat(), 0)

    def check(self) -> None:
        """Raise unless it is answered still, and was beaten to."""
        found = self.ask(commands.Channel.Open(), 2)
        assert isinstance(found, heartbeat.Heartbeat), "nothing was heard of the server"
        while isinstance(found, heartbeat.Heartbeat):
            found = self.read()

    def read(self) -> Any:
        """One frame."""
        while True:
            if len(self._rest) >= 7:
                size = 8 + int.from_bytes(self._rest[3:7], "big")
                if len(self._rest) >= size:
                    _, _, found = frame.unmarshal(self._rest[:size])
                    self._rest = self._rest[size:]
                    return found
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionError("the server has closed the connection")
            self._rest += data


class Publisher(Line):
    """Sends while the window is open; done when everything is confirmed."""

    def __init__(self, about: dict[str, Any]) -> None:
        super().__init__(about["port"])
        self.ask(commands.Queue.Declare(queue=about["queue"], durable=True, arguments=about["arguments"]))
        assert isinstance(self.ask(commands.Confirm.Select()), commands.Confirm.SelectOk)
        persistent = commands.Basic.Properties(delivery_mode=2)
        body = b"x" * about["size"]
        self._one = (
            frame.marshal(commands.Basic.Publish(exchange="", routing_key=about["queue"]), 1)
            + frame.marshal(header.ContentHeader(0, len(body), persistent), 1)
            + struct.pack(">BHI", 3, 1, len(body))
            + body
            + bytes([_END])
        )
        self._count = about["count"]
        self._sent = self._confirmed = 0
        self._ahead = memoryview(b"")

    @property
    def done(self) -> bool:
        return self._confirmed >= self._count

    def write(self) -> bool:
        """Send what the window allows; whether there is more to be sent."""
        while True:
            if not self._ahead:
                room = min(self._count - self._sent, WINDOW - (self._sent - self._confirmed), SLICE)
                if room <= 0:
                    return False
                self._ahead = memoryview(self._one * room)
                self._sent += room
            try:
                self._ahead = self._ahead[self.socket.send(self._ahead) :]
            except BlockingIOError:
                return True

    def got(self, data: bytes) -> None:
        """Confirms: all have the same length."""
        data = self._rest + data
        whole = len(data) // _ACK_BYTES * _ACK_BYTES
        for at in range(0, whole, _ACK_BYTES):
            _, _, _, method, tag, multiple, _ = _ACK.unpack_from(data, at)
            if method != _ACK_METHOD:
                raise ValueError(f"not confirmed: {frame.unmarshal(data[at:])[2]!r}")
            self._confirmed = max(self._confirmed, tag) if multiple else self._confirmed + 1
        self._rest = data[whole:]


class Tally:
    """What all consumers have got together: who gets which message is for the server to say."""

    def __init__(self, missing: int) -> None:
        self.missing = missing


class Consumer(Line):
    """Acks each message; done when all have come to somebody and the last of our acks was heard."""

    def __init__(self, about: dict[str, Any], tally: Tally) -> None:
        super().__init__(about["port"])
        self._about = about
        self._tally = tally
        self.ask(commands.Basic.Qos(prefetch_count=WINDOW))
        self._got = 0
        self._size = 0
        """Bytes of one message as it comes; it is measured when the first has come."""
        self._ahead = memoryview(b"")
        self._acked = 0
        self._closing = self.done = False

    def begin(self) -> None:
        self.say(commands.Basic.Consume(queue=self._about["queue"], consumer_tag="c"))

    def write(self) -> bool:
        while True:
            if not self._ahead and self._acked < self._got:
                tags = range(self._acked + 1, self._got + 1)
                self._acked = self._got
                self._ahead = memoryview(b"".join([_ACK.pack(1, 1, 13, _ACK_METHOD, tag, 0, _END) for tag in tags]))
            elif not self._ahead and not self._tally.missing and not self._closing:
                self._closing = True
                self._ahead = memoryview(frame.marshal(commands.Channel.Close(0, "", 0, 0), 1))
            if not self._ahead:
                return False
            try:
                self._ahead = self._ahead[self.socket.send(self._ahead) :]
            except BlockingIOError:
                return True

    def got(self, data: bytes) -> None:
        data = self._rest + data
        if not self._size:
            data = self._measured(data)
        if self._closing:
            self.done = data.endswith(frame.marshal(commands.Channel.CloseOk(), 1))
        if self._size:
            whole = len(data) // self._size
            self._got += whole
            self._tally.missing -= whole
            data = data[whole * self._size :]
        self._rest = data

    def _measured(self, data: bytes) -> bytes:
        """Without the answer to the consume; of the first message the length of its frames is taken."""
        told = frame.marshal(commands.Basic.ConsumeOk("c"), 1)
        if not data.startswith(told):
            return data
        ends = list(_frame_ends(data[len(told) :]))
        if len(ends) < 3:
            return data
        self._size = ends[2]
        return data[len(told) :]


def _frame_ends(data: bytes) -> Iterator[int]:
    at = 0
    while at + 7 <= len(data):
        at += 8 + int.from_bytes(data[at + 3 : at + 7], "big")
        if at <= len(data):
            yield at


def run(lines: list[Any]) -> float:
    """Until all are done: how many seconds."""
    chooser = selectors.DefaultSelector()
    began = perf_counter()
    for line in lines:
        if isinstance(line, Consumer):
            line.begin()
        line.socket.setblocking(False)
        chooser.register(line.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, line)
    left = set(lines)
    while left:
        found = chooser.select(_PATIENCE_SECONDS)
        if not found:
            raise TimeoutError(f"nothing came for {_PATIENCE_SECONDS} seconds")
        for key, events in found:
            if events & selectors.EVENT_READ:
                data = key.data.socket.recv(262_144)
                if not data:
                    raise ConnectionError("the server has closed the connection")
                key.data.got(data)
        for line in list(left):
            more = selectors.EVENT_READ | (selectors.EVENT_WRITE if line.write() else 0)
            if line.done:
                chooser.unregister(line.socket)
                left.discard(line)
            elif more != chooser.get_key(line.socket).events:
                chooser.modify(line.socket, more, line)
    return perf_counter() - began


def main(given: str) -> None:
    about = json.loads(given)
    number = about["connections"]
    tally = Tally(number * about["count"])
    lines = [Publisher(about) if about["verb"] == "publish" else Consumer(about, tally) for _ in range(number)]
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps({"seconds": run(lines)}), flush=True)
    for line in lines:
        line.socket.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
