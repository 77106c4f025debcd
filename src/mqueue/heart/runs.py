"""A run: a piece of one partition in one state, with a mask of what it still holds. The unit of bookkeeping."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from mqueue.model.limits import FRAME_ROWS_MAX


class Failure(Struct, frozen=True, gc=False):
    """What a dead message will carry to the dead-letter queue."""

    first_at: int
    last_at: int
    error: str
    consumer: str


class Run(Struct, gc=False):
    """Bit i of `mask` is set while offset `start + i` is in this run. At most 4096 long.

    `until` is the deadline of a leased run, the due time of a waiting one, 0 of a ready one. `attempt` counts
    deliveries so far. `priority` and `at` with the offset are the order key; they never change.
    """

    partition: int
    start: int
    stop: int
    mask: int
    attempt: int
    priority: int
    at: int
    until: int
    failure: Failure | None = None
    keys: tuple[int, int] | None = None
    """Hashes of the key and of the fairness key of all its messages (0: they have none); None: not known."""

    @property
    def count(self) -> int:
        return self.mask.bit_count()

    def bits(self, start: int, mask: int) -> int:
        """The part of a span's mask that this run holds, aligned to this run."""
        shift = start - self.start
        return self.mask & (mask << shift if shift >= 0 else mask >> -shift)

    def part(self, bits: int) -> Run:
        """A new run with some of this run's bits, as tight as it can be."""
        start, stop, mask = tight(self.start, bits)
        return Run(
            self.partition,
            start,
            stop,
            mask,
            self.attempt,
            self.priority,
            self.at,
            self.until,
            self.failure,
            self.keys,
        )

    def first(self, count: int) -> int:
        """The `count` lowest bits that are set."""
        if count >= self.mask.bit_count():
            return self.mask
        low = 0
        high = self.stop - self.start
        while low < high:  # the shortest prefix that holds `count` bits
            middle = (low + high) // 2
            if (self.mask & ((1 << middle) - 1)).bit_count() < count:
                low = middle + 1
            else:
                high = middle
        return self.mask & ((1 << low) - 1)


def full(length: int) -> int:
    return (1 << length) - 1


def tight(start: int, bits: int) -> tuple[int, int, int]:
    """start, stop and mask of the shortest span that holds `bits`, which is not empty."""
    stop = start + bits.bit_length()
    if not bits & bits - 1:  # mostly it is one message
        return stop - 1, stop, 1
    shift = (bits & -bits).bit_length() - 1
    return start + shift, stop, bits >> shift


def each(start: int, mask: int) -> Iterator[int]:
    """The offsets of a mask, in order."""
    while mask:
        low = mask & -mask
        yield start + low.bit_length() - 1
        mask ^= low


def segments(start: int, mask: int) -> Iterator[tuple[int, int]]:
    """The stretches of offsets without a hole, in order."""
    while mask:
        low = (mask & -mask).bit_length() - 1
        mask >>= low
        start += low
        length = (~mask & (mask + 1)).bit_length() - 1
        yield start, start + length
        mask >>= length
        start += length


def windows(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """A stretch, cut so that its masks stay small."""
    for first in range(start, stop, FRAME_ROWS_MAX):
        yield first, min(stop, first + FRAME_ROWS_MAX)
