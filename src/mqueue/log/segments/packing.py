"""Frames as they lie on the disk, for those who send them on: found with the lock held, read without it.

Neighbours are read at once: commits of single messages are small, and lie close together. Between the look and the read
a segment may be copied on and removed; then the reader is told where to look again.
"""

from __future__ import annotations

from collections.abc import Sequence

from mqueue.log.segments.segment import Segment
from mqueue.log.segments.shelf import Shelf, check_place
from mqueue.log.segments.tape import Row, Tape
from mqueue.model.errors import Corrupt
from mqueue.wire.frame import Frame
from mqueue.wire.pack import head_of, unpack
from mqueue.wire.packed import packed

FRAMES_MAX = 1024
"""So many frames make a page, however small they are: the lock is held while they are looked up."""
GAP_BYTES = 4 * 1024
"""Up to so many bytes that nobody asked for are read along."""
RUN_BYTES_MAX = 1024 * 1024

_Piece = tuple[Frame | Row, int, int]
"""A frame, and the offsets of it that are wanted."""


class Packing:
    """`next`: where the page after this one begins; None: there is none."""

    def __init__(self, shelf: Shelf, tape: Tape | None, start: int, stop: int, bytes_max: int) -> None:
        self._shelf = shelf
        self._tape = tape
        self._pieces: list[_Piece] = []
        self._next: int | None = None
        self._last: tuple[int, Frame] | None = None
        size = 0
        for found, first, last in tape.pieces(start, stop) if tape is not None else ():
            first, last = max(first, start), min(last, stop)
            weight = found.length if isinstance(found, Row) else found.size
            size += weight * (last - first) // (found.stop - found.base)
            if self._pieces and (size > bytes_max or len(self._pieces) == FRAMES_MAX):
                self._next = first
                break
            if tape is not None and found is tape.tail:
                tape.close()  # it is packed without the lock
            self._pieces.append((found, first, last))

    def read(self) -> tuple[Sequence[bytes | memoryview], int | None]:
        """Packed frames in order, and where to go on. Not even one: what was there lies elsewhere now."""
        done: list[bytes | memoryview] = []
        pieces = self._pieces
        while len(done) < len(pieces):
            found, first, last = pieces[len(done)]
            if isinstance(found, Frame):
                done.append(packed(found, first, last))
                continue
            segment = self._shelf.of(found.position)
            run = [] if segment is None else _neighbours(pieces, len(done), segment)
            data = memoryview(b"" if segment is None else self._read(segment, run))  # cut, not copied
            if not data:
                return done, first
            for row, start, stop in run:
                place = row.position - found.position
                done.append(self._cut(data[place : place + row.length], row, start, stop))
        return done, self._next

    def _read(self, segment: Segment, run: list[tuple[Row, int, int]]) -> bytes:
        """The bytes of neighbours; none if their segment has gone."""
        first, last = run[0][0], run[-1][0]
        length = last.position + last.length - first.position
        data = self._shelf.read(segment, length, segment.place(first.position))
        if len(data) < length and not segment.gone:
            raise Corrupt(f"{segment.name} ends before the frame at position {last.position}")
        return data if len(data) == length else b""

    def _cut(self, data: memoryview, row: Row, start: int, stop: int) -> bytes | memoryview:
        """A whole frame as it is, its body not looked at; of another what is wanted."""
        assert self._tape is not None
        if self._last is None or self._last[0] != row.position:
            check_place(self._tape, row, head_of(data))
            if start == row.base and stop == row.stop:
                return data
            self._last = row.position, unpack(data)  # of a frame that is full of holes each piece is cut out
        return packed(self._last[1], start, stop)


def _neighbours(pieces: list[_Piece], number: int, segment: Segment) -> list[tuple[Row, int, int]]:
    """The frames from one on that lie behind each other in a segment, with hardly anything in between."""
    run: list[tuple[Row, int, int]] = []
    start = end = 0
    for place in range(number, len(pieces)):
        found, first, last = pieces[place]
        if not isinstance(found, Row) or found.position + found.length > segment.end:
            break
        again = run and found.position == run[-1][0].position
        if run and not again and (not 0 <= found.position - end <= GAP_BYTES or found.position - start > RUN_BYTES_MAX):
            break
        start = start if run else found.position
        end = found.position + found.length
        run.append((found, first, last))
    return run
