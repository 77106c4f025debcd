"""A client of AMQP by hand, for frames that no client of good manners would send."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any

from pamqp import commands, frame, header

PATIENCE_SECONDS = 120
GREETING = b"AMQP\x00\x00\x09\x01"


class AmqpLine:
    """A connection; `opened` has gone through the greeting, with one channel."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
        self._rest = b""

    @classmethod
    def opened(cls, port: int, vhost: str = "/", heartbeat: int = 0, password: str = "guest", **told: Any) -> AmqpLine:
        line = cls(port)
        line.send(GREETING)
        assert isinstance(line.read(), commands.Connection.Start)
        line.say(commands.Connection.StartOk(told, "PLAIN", f"\0guest\0{password}", "en_US"), 0)
        tune = line.read()
        assert isinstance(tune, commands.Connection.Tune), tune
        line.say(commands.Connection.TuneOk(tune.channel_max, tune.frame_max, heartbeat), 0)
        line.ask(commands.Connection.Open(vhost), 0)
        line.ask(commands.Channel.Open(), 1)
        return line

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def say(self, told: Any, channel: int = 1) -> None:
        self.send(frame.marshal(told, channel))

    def ask(self, told: Any, channel: int = 1) -> Any:
        self.say(told, channel)
        return self.read()

    def publish(self, queue: str, body: bytes, channel: int = 1) -> None:
        self.say(commands.Basic.Publish(exchange="", routing_key=queue), channel)
        self.say(header.ContentHeader(0, len(body), commands.Basic.Properties()), channel)
        if body:
            self.send(raw(3, channel, body))

    def read(self) -> Any:
        """The next frame; None at the end of the line."""
        while True:
            if len(self._rest) >= 8:
                size = 8 + int.from_bytes(self._rest[3:7], "big")
                if len(self._rest) >= size:
                    _, _, found = frame.unmarshal(self._rest[:size])
                    self._rest = self._rest[size:]
                    return found
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._rest += data

    def read_past(self, kind: type) -> Any:
        """The next frame that is not of this kind."""
        while isinstance(found := self.read(), kind):
            pass
        return found

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> AmqpLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def raw(kind: int, channel: int, payload: bytes, end: bytes = b"\xce") -> bytes:
    return kind.to_bytes(1, "big") + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload + end
