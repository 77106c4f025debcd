"""A set of offsets that stays small whether it is dense or sparse: one integer of 4096 bits per block that has any."""

from __future__ import annotations

from collections.abc import Iterator

BLOCK = 4096
_FULL = (1 << BLOCK) - 1


class Marks:
    __slots__ = ("blocks",)

    def __init__(self) -> None:
        self.blocks: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self.blocks)

    def __contains__(self, offset: int) -> bool:
        return self.blocks.get(offset // BLOCK, 0) >> offset % BLOCK & 1 == 1

    def add(self, start: int, mask: int) -> None:
        block, shift = divmod(start, BLOCK)
        mask <<= shift
        while mask:
            if mask & _FULL:
                self.blocks[block] = self.blocks.get(block, 0) | mask & _FULL
            mask >>= BLOCK
            block += 1

    def add_range(self, start: int, stop: int) -> None:
        """Whole blocks share one integer, so a range costs next to nothing."""
        while start < stop:
            block = start // BLOCK
            end = min(stop, (block + 1) * BLOCK)
            if end - start == BLOCK:
                self.blocks[block] = _FULL
            else:
                self.add(start, (1 << end - start) - 1)
            start = end

    def mask(self, start: int, stop: int) -> int:
        """The marks in [start, stop), bit 0 standing for `start`."""
        first, shift = divmod(start, BLOCK)
        found = 0
        for block in range(first, (stop - 1) // BLOCK + 1):
            bits = self.blocks.get(block)
            if bits:
                found |= bits << (block - first) * BLOCK
        return found >> shift & (1 << stop - start) - 1

    def trim(self, floor: int) -> None:
        """Forget what lies below `floor`."""
        for block in [block for block in self.blocks if (block + 1) * BLOCK <= floor]:
            del self.blocks[block]
        block, shift = divmod(floor, BLOCK)
        if block in self.blocks:
            kept = self.blocks.pop(block) >> shift << shift
            if kept:
                self.blocks[block] = kept

    def spans(self) -> Iterator[tuple[int, int]]:
        """(start, mask) of each block, in order."""
        for block in sorted(self.blocks):
            yield block * BLOCK, self.blocks[block]
