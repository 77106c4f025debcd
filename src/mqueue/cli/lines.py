"""Lines of a stream in bounded memory. What is there already comes together; nobody waits for a batch to be full."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from mqueue.model.errors import TooLarge
from mqueue.model.limits import MIB

READ_BYTES = MIB
LINE_BYTES_MAX = 32 * MIB


class Readable(Protocol):
    def read1(self, size: int, /) -> bytes: ...


def batches(stream: Readable, count_max: int) -> Iterator[list[bytes]]:
    """Lists of whole lines, without their ends; the last line may lack one. Empty lines are left out."""
    for block in _blocks(stream):
        lines = [line for line in block if line]
        for start in range(0, len(lines), count_max):
            yield lines[start : start + count_max]


def whole(stream: Readable) -> bytes:
    """All there is, if it is not more than one message may ever be."""
    pieces: list[bytes] = []
    size = 0
    while piece := stream.read1(READ_BYTES):
        pieces.append(piece)
        size += len(piece)
        _check(size)
    return b"".join(pieces)


def _blocks(stream: Readable) -> Iterator[list[bytes]]:
    open_line: list[bytes] = []
    size = 0
    while piece := stream.read1(READ_BYTES):
        head, newline, rest = piece.rpartition(b"\n")
        if newline:
            lines = b"".join((*open_line, head)).split(b"\n")
            yield [line.removesuffix(b"\r") for line in lines]
            open_line, size = [], 0
        open_line.append(rest)
        size += len(rest)
        _check(size)
    yield [b"".join(open_line).removesuffix(b"\r")]


def _check(size: int) -> None:
    if size > LINE_BYTES_MAX:
        raise TooLarge(f"a message of more than {LINE_BYTES_MAX} bytes; no message may be that long")
