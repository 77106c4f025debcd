"""Clients of AMQP that publish, take and ack one message at a time, each on a connection of its own.

A turn of a client: a publish, its confirm, a delivery, and when it has both, the ack. An ack has no answer, so a round
ends when all channels are closed, which servers do after what came before. Whoever takes one message for each that he
publishes, and no more, leaves one for everybody else.
"""

from __future__ import annotations

import asyncio
import struct
from time import perf_counter
from typing import Any

from pamqp import commands, frame, header

from benchmarks.amqp_load import Line

_METHOD, _BODY, _END = 1, 3, 0xCE
_DELIVER, _ACK, _CLOSED = 0x003C003C, 0x003C0050, 0x00140029
_ACK_FRAME = struct.Struct(">BHIIQBB")
_CLOSE = frame.marshal(commands.Channel.Close(0, "", 0, 0), 1)
_PATIENCE_SECONDS = 60


class Client(asyncio.Protocol):
    """Goes on until it is told to stop."""

    def __init__(self, message: bytes) -> None:
        self._message = message
        self._rest = b""
        self._transport: Any = None
        self._owed = 2
        """What is missing before the next turn: a confirm, a delivery."""
        self._tag = 0
        self.stopping = False
        self.turns = 0
        self._closed = False
        self.over = asyncio.get_running_loop().create_future()
        """The server has done all that was asked, and the connection is gone."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.write(self._message)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            lost = exc or (None if self._closed else ConnectionError("the server has closed the connection"))
            self.over.set_result(None) if lost is None else self.over.set_exception(lost)

    def data_received(self, data: bytes) -> None:
        data, at = self._rest + data, 0
        while at + 8 <= len(data):
            end = at + 8 + int.from_bytes(data[at + 3 : at + 7], "big")
            if end > len(data):
                break
            if data[at] == _METHOD:
                self._told(data[at + 7 : end - 1])
            elif data[at] == _BODY:
                self._paid()
            at = end
        self._rest = data[at:]

    def _told(self, method: bytes) -> None:
        index = int.from_bytes(method[:4], "big")
        if index == _DELIVER:
            start = 5 + method[4]  # behind the tag of the consumer
            self._tag = int.from_bytes(method[start : start + 8], "big")
        elif index == _ACK:
            self._paid()
        elif index == _CLOSED:
            self._closed = True
            self._transport.close()
        else:
            self.over.set_exception(ValueError(f"the server says {method.hex()}"))
            self._transport.abort()

    def _paid(self) -> None:
        self._owed -= 1
        if self._owed == 0:
            self._owed = 2
            self.turns += 1
            then = _CLOSE if self.stopping else self._message
            self._transport.write(_ACK_FRAME.pack(_METHOD, 1, 13, _ACK, self._tag, 0, _END) + then)


async def rate(port: int, queue: str, count: int, size: int, seconds: float) -> float:
    """Turns in a second of so many clients."""
    loop, clients = asyncio.get_running_loop(), list[Client]()
    message = _message(queue, size)
    lines = [_consuming(port, queue) for _ in range(count)]
    started = perf_counter()
    for line in lines:
        _, client = await loop.create_connection(lambda: Client(message), sock=line.socket)
        clients.append(client)
    await asyncio.sleep(seconds)
    for client in clients:
        client.stopping = True
    await asyncio.wait_for(asyncio.gather(*(client.over for client in clients)), _PATIENCE_SECONDS)
    return sum(client.turns for client in clients) / (perf_counter() - started)


def _consuming(port: int, queue: str) -> Line:
    """Somebody who confirms, and takes one message at a time."""
    line = Line(port)
    for told in (
        commands.Queue.Declare(queue=queue, durable=True),
        commands.Confirm.Select(),
        commands.Basic.Qos(prefetch_count=1),
        commands.Basic.Consume(queue=queue, consumer_tag="c"),
    ):
        line.ask(told)
    line.socket.setblocking(False)
    return line


def _message(queue: str, size: int) -> bytes:
    persistent = commands.Basic.Properties(delivery_mode=2)
    return (
        frame.marshal(commands.Basic.Publish(exchange="", routing_key=queue), 1)
        + frame.marshal(header.ContentHeader(0, size, persistent), 1)
        + struct.pack(">BHI", _BODY, 1, size)
        + b"x" * size
        + bytes([_END])
    )
