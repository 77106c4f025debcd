"""The metadata of an Arrow record batch message, read without Arrow: what it declares, before anything believes it.

    0          4            8
    +----------+------------+--------------------------+--------------------------------+
    | ffffffff | i32 length | flatbuffer, padded to 8  | buffers, padded to 8 each      |
    +----------+------------+--------------------------+--------------------------------+

    Message: 0 version, 1 kind of header, 2 header, 3 length of the buffers, 4 custom metadata
    RecordBatch: 0 rows, 1 nodes (i64 length, i64 nulls), 2 buffers (i64 start, i64 length), 3 compression, 4 variadic

Arrow's reader allocates what a compressed buffer claims to hold, so whoever reads bytes of strangers asks here first.
A table of a flatbuffer begins with the distance back to its vtable: u16 size of the vtable, u16 size of the table, then
for each field u16 where it stands in the table, 0 for absent. Knows nothing of frames, nor which columns there are.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from mqueue.model.errors import BadFrame

_MARK = 0xFFFFFFFF
_V5 = 4
_RECORD_BATCH = 3
_NODE_BYTES = 16
_U8, _I16, _U16, _I32, _U32, _I64 = (struct.Struct(f"<{code}") for code in "BhHiIq")


class Declared(NamedTuple):
    """What a message says of itself."""

    rows: int
    nodes: list[tuple[int, int]]
    """length and nulls"""
    buffers: list[tuple[int, int]]
    """start and length"""
    metadata_length: int
    buffers_length: int


def extent(data: memoryview) -> tuple[int, int]:
    """What kind of message begins here, and how many bytes it has with its buffers. All of them are there."""
    try:
        mark, length = struct.unpack_from("<Ii", data, 0)
        if mark != _MARK or length <= 0 or length % 8 or 8 + length > len(data):
            raise BadFrame(f"a message begins with {mark:#x} and says {length} of {len(data)} bytes are metadata")
        metadata = data[8 : 8 + length]
        top = _Table(metadata, _pointed(metadata, 0))
        kind, buffers_length = top.number(1, _U8), top.number(3, _I64)
    except struct.error as error:
        raise BadFrame(f"the metadata of a message ends early or points outside: {error}") from error
    if not 0 <= buffers_length <= len(data) - 8 - length:
        raise BadFrame(f"a message declares {buffers_length} bytes and {len(data) - 8 - length} follow")
    return kind, 8 + length + buffers_length


def declared(message: bytes | memoryview) -> Declared:
    """Read the metadata; refuse what is no plain record batch, or does not stay inside the message."""
    try:
        return _read(message)
    except struct.error as error:
        raise BadFrame(f"the metadata of the body ends early or points outside: {error}") from error


def _read(message: bytes | memoryview) -> Declared:
    mark, length = struct.unpack_from("<Ii", message, 0)
    if mark != _MARK or length <= 0 or length % 8 or 8 + length > len(message):
        raise BadFrame(f"the body begins with {mark:#x} and says {length} of {len(message)} bytes are metadata")
    data = memoryview(message)[8 : 8 + length]
    top = _Table(data, _pointed(data, 0))
    version, kind = top.number(0, _I16), top.number(1, _U8)
    if version != _V5 or kind != _RECORD_BATCH:
        raise BadFrame(f"the body is of version {version} and kind {kind}; it takes {_V5} and {_RECORD_BATCH}")
    if top.place(4):
        raise BadFrame("the body carries custom metadata; none is allowed")
    batch = _Table(data, _pointed(data, top.place(2)))
    if batch.place(3):
        raise BadFrame("the body is compressed; only plain buffers are allowed")
    if batch.place(4):
        raise BadFrame("the body counts variadic buffers; no column has them")
    buffers_length = top.number(3, _I64)
    if buffers_length != len(message) - 8 - length:
        raise BadFrame(f"the body declares {buffers_length} bytes and has {len(message) - 8 - length}")
    return Declared(batch.number(0, _I64), batch.pairs(1), batch.pairs(2), length, buffers_length)


class _Table:
    """A table of a flatbuffer."""

    __slots__ = ("_data", "_slots", "_start")

    def __init__(self, data: memoryview, start: int) -> None:
        vtable = start - _at(data, start, _I32)
        size = _at(data, vtable, _U16)
        if size < 4 or size % 2:
            raise BadFrame(f"a vtable of {size} bytes in the metadata of the body")
        self._data = data
        self._start = start
        self._slots = struct.unpack_from(f"<{(size - 4) // 2}H", data, vtable + 4)

    def place(self, field: int) -> int:
        """Where a field stands; 0: it is absent."""
        slot: int = self._slots[field] if field < len(self._slots) else 0
        return self._start + slot if slot else 0

    def number(self, field: int, code: struct.Struct) -> int:
        place = self.place(field)
        return _at(self._data, place, code) if place else 0

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """A vector of two i64 each."""
        place = self.place(field)
        if not place:
            return []
        vector = _pointed(self._data, place)
        count = _at(self._data, vector, _U32)
        end = vector + 4 + _NODE_BYTES * count
        if end > len(self._data):
            raise BadFrame(f"a list of {count} in the metadata of the body, which has {len(self._data)} bytes")
        pairs = struct.iter_unpack("<qq", self._data[vector + 4 : end])
        return [(one, other) for one, other in pairs]


def _pointed(data: memoryview, place: int) -> int:
    return place + _at(data, place, _U32)


def _at(data: memoryview, place: int, code: struct.Struct) -> int:
    if place < 0:  # which would count from the end
        raise BadFrame("the metadata of the body points before its beginning")
    number: int = code.unpack_from(data, place)[0]
    return number
