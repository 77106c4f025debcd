"""Lists as parameters, in PostgreSQL's binary form: an array of bigint, and one of bytea.

psycopg would choose the type of a list by what is in it, and another type is another prepared statement; an empty one
has no type at all. These have one type each, and are quicker: 1000 numbers take 29 µs instead of 287 (Python 3.11).

    i32 dimensions (0: empty)   i32 may be null (0)   u32 type of elements   i32 elements   i32 first index (1)
    then of each element: i32 length, the bytes
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from psycopg.adapt import Buffer, Dumper
from psycopg.pq import Format

_HEAD = struct.Struct("!iiIii")
_LENGTH = struct.Struct("!i")
_ELEMENT = np.dtype([("length", ">i4"), ("value", ">i8")])
_BIGINT, _BIGINTS = 20, 1016
_BYTEA, _BYTEAS = 17, 1001


class Longs(list[int]):
    """To be sent as an array of bigint."""


class Blobs(list[bytes]):
    """To be sent as an array of bytea."""


class LongsDumper(Dumper):
    format = Format.BINARY
    oid = _BIGINTS

    def dump(self, obj: Sequence[int]) -> Buffer:
        if not obj:
            return _HEAD.pack(0, 0, _BIGINT, 0, 1)[:12]
        elements = np.empty(len(obj), _ELEMENT)
        elements["length"] = 8
        elements["value"] = obj
        return _HEAD.pack(1, 0, _BIGINT, len(obj), 1) + elements.tobytes()


class BlobsDumper(Dumper):
    format = Format.BINARY
    oid = _BYTEAS

    def dump(self, obj: Sequence[bytes]) -> Buffer:
        if not obj:
            return _HEAD.pack(0, 0, _BYTEA, 0, 1)[:12]
        parts = [_HEAD.pack(1, 0, _BYTEA, len(obj), 1)]
        for blob in obj:
            parts.append(_LENGTH.pack(len(blob)))
            parts.append(blob)
        return b"".join(parts)
