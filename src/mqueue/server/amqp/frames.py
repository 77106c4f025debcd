"""Frames: what travels on a connection.

    type:1  channel:2  size:4  payload…  end:1 (0xCE)

    method     class:2 method:2 arguments…
    header     class:2 weight:2 body size:8 properties…
    body       bytes of a message
    heartbeat  nothing

The methods are pamqp's. Those of which there is one for every message (publish, deliver, ack) are written and read by
hand: pamqp takes some 20 µs for each. So are those that name a queue, as pamqp allows fewer names than RabbitMQ.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import cast

from pamqp import commands
from pamqp.base import Frame

from mqueue.server.amqp.errors import FRAME_ERROR, NOT_IMPLEMENTED, SYNTAX_ERROR, Fault
from mqueue.server.amqp.tables import short_text

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
END = b"\xce"
GREETING = b"AMQP\x00\x00\x09\x01"
OVERHEAD = 8
"""Bytes of a frame around its payload."""
METHOD_BYTES_MAX = 16 * 1024
"""Of the arguments of a method: names and small tables. To read large ones would hold up everybody."""
PULSE = b"\x08\x00\x00\x00\x00\x00\x00\xce"

BASIC = 60
PUBLISH, RETURN, DELIVER, GET_OK = 0x3C0028, 0x3C0032, 0x3C003C, 0x3C0047
ACK, REJECT, NACK = 0x3C0050, 0x3C005A, 0x3C0078
CONSUME_OK, CANCEL, CANCEL_OK, DECLARE_OK = 0x3C0015, 0x3C001E, 0x3C001F, 0x32000B

_HEAD = struct.Struct(">BHI")
_INDEX = struct.Struct(">I")
_TAG = struct.Struct(">IQB")
_CONTENT = struct.Struct(">HHQ")
_HEADED = struct.Struct(">BHIHHQ")
_NUMBER = struct.Struct(">Q")
_COUNTS = struct.Struct(">II")


class Splitter:
    """Takes bytes as they come, gives whole frames. What is kept is never more than one frame."""

    def __init__(self, frame_max: int) -> None:
        self.frame_max = frame_max
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """(type, channel, payload). Raises Fault."""
        if self._rest:
            data = self._rest + data
        at, length, most = 0, len(data), self.frame_max - OVERHEAD
        unpack = _HEAD.unpack_from
        while length - at >= 7:
            kind, channel, size = unpack(data, at)
            if size > most:
                self._rest = b""
                raise Fault(FRAME_ERROR, f"a frame of {size} bytes; {most} were agreed upon")
            stop = at + 7 + size
            if stop >= length:
                break
            if data[stop] != 0xCE:
                self._rest = b""
                raise Fault(FRAME_ERROR, f"a frame of {size} bytes does not end with 0xCE")
            begin, at = at + 7, stop + 1
            yield kind, channel, data[begin:stop]
        self._rest = data[at:]


def method_of(payload: bytes) -> Frame:
    """Raises Fault."""
    if len(payload) > METHOD_BYTES_MAX:
        raise Fault(FRAME_ERROR, f"a method of {len(payload)} bytes; {METHOD_BYTES_MAX} are allowed")
    index = index_of(payload)
    kind = commands.INDEX_MAPPING.get(index)
    if kind is None:
        raise Fault(NOT_IMPLEMENTED, f"class {index >> 16}, method {index & 0xFFFF}: there is no such method", index)
    method = cast(Frame, object.__new__(kind))  # all its fields are read; and of an old one pamqp would warn
    try:
        method.unmarshal(payload[4:])
    except Exception as error:  # whatever a table of a stranger does to it
        raise Fault(SYNTAX_ERROR, f"the arguments of {method.name} cannot be read: {error!s:.80}", index) from error
    return method


def index_of(payload: bytes) -> int:
    """Class and method, in one number."""
    if len(payload) < 4:
        raise Fault(FRAME_ERROR, f"a method of {len(payload)} bytes; it takes 4 to name one")
    return int.from_bytes(payload[:4], "big")


def read_publish(payload: bytes) -> tuple[str, str, bool, bool]:
    """Exchange, routing key, mandatory, immediate. Raises Fault."""
    try:
        middle = 7 + payload[6]
        stop = middle + 1 + payload[middle]
        bits = payload[stop]
        return payload[7:middle].decode(), payload[middle + 1 : stop].decode(), bool(bits & 1), bool(bits & 2)
    except (IndexError, UnicodeDecodeError) as error:
        raise Fault(SYNTAX_ERROR, f"the arguments of Basic.Publish cannot be read: {error!s:.80}", PUBLISH) from error


def read_settle(payload: bytes) -> tuple[int, int, int]:
    """Method, delivery tag, bits: of an ack, a nack or a reject. Raises Fault."""
    try:
        found: tuple[int, int, int] = _TAG.unpack_from(payload)
    except struct.error as error:
        raise Fault(SYNTAX_ERROR, f"the arguments of a settlement cannot be read: {error!s:.80}") from error
    return found


def read_header(payload: bytes) -> tuple[int, int]:
    """Class and size of the body; properties follow. Raises Fault."""
    try:
        kind, _, size = _CONTENT.unpack_from(payload)
    except struct.error as error:
        raise Fault(FRAME_ERROR, f"a content header of {len(payload)} bytes is cut off") from error
    return kind, size


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _HEAD.pack(kind, channel, len(payload)) + payload + END


def method(channel: int, told: Frame) -> bytes:
    """A method of pamqp. Without names: those it would judge."""
    return frame(METHOD, channel, _INDEX.pack(told.index) + told.marshal())


def named(channel: int, index: int, name: bytes, rest: bytes = b"") -> bytes:
    """A method that begins with a name: that of a queue or a consumer, as a short text."""
    return frame(METHOD, channel, _INDEX.pack(index) + name + rest)


def declared(channel: int, queue: str, messages: int, consumers: int) -> bytes:
    return named(channel, DECLARE_OK, short_text(queue), _COUNTS.pack(min(messages, 0xFFFFFFFF), consumers))


def confirmed(channel: int, tag: int, multiple: bool) -> bytes:
    return frame(METHOD, channel, _TAG.pack(ACK, tag, multiple))


def refused(channel: int, tag: int) -> bytes:
    return frame(METHOD, channel, _TAG.pack(NACK, tag, 0))


def returned(channel: int, code: int, why: str, address: bytes) -> bytes:
    """`address`: exchange and routing key, as short texts."""
    return frame(METHOD, channel, struct.pack(">IH", RETURN, code) + short_text(why) + address)


def got(channel: int, tag: int, redelivered: bool, address: bytes, left: int) -> bytes:
    head = _TAG.pack(GET_OK, tag, redelivered)
    return frame(METHOD, channel, head + address + _INDEX.pack(min(left, 0xFFFFFFFF)))


class Deliveries:
    """Messages on their way to a consumer: method, header and body in one go. What is the same in many of them, all but
    delivery tags and bodies, is made once."""

    def __init__(self, channel: int, consumer_tag: str, frame_max: int) -> None:
        self._channel = channel
        self._start = _INDEX.pack(DELIVER) + short_text(consumer_tag)
        self._frame_max = frame_max
        self._shape: tuple[bool, bytes, bytes, int] | None = None
        self._before = self._after = b""

    def write(self, out: list[bytes], tag: int, redelivered: bool, address: bytes, raw: bytes, body: bytes) -> None:
        size = len(body)
        if not 0 < size <= self._frame_max - OVERHEAD:
            flag = bytes([redelivered])
            out.append(frame(METHOD, self._channel, self._start + _NUMBER.pack(tag) + flag + address))
            out.append(content(self._channel, raw, body, self._frame_max))
            return
        shape = (redelivered, address, raw, size)
        if shape != self._shape:
            self._take_shape(*shape)
        out += (self._before, _NUMBER.pack(tag), self._after, body, END)

    def _take_shape(self, redelivered: bool, address: bytes, raw: bytes, size: int) -> None:
        channel, start = self._channel, self._start
        header = _HEADED.pack(HEADER, channel, 12 + len(raw), BASIC, 0, size)
        self._before = _HEAD.pack(METHOD, channel, len(start) + 9 + len(address)) + start
        self._after = b"".join((bytes([redelivered]), address, END, header, raw, END, _HEAD.pack(BODY, channel, size)))
        self._shape = redelivered, address, raw, size


def content(channel: int, raw: bytes, body: bytes, frame_max: int) -> bytes:
    """Header and body of a message, in as many frames as it takes."""
    parts = [_HEADED.pack(HEADER, channel, 12 + len(raw), BASIC, 0, len(body)), raw, END]
    step = frame_max - OVERHEAD
    for at in range(0, len(body), step):
        piece = body[at : at + step]
        parts += (_HEAD.pack(BODY, channel, len(piece)), piece, END)
    return b"".join(parts)
