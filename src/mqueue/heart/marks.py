"""A set of offsets that stays small whether it is dense or sparse: one integer of 4096 bits per block that has any."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

BLOCK = 4096
_FULL = (1 << BLOCK) - 1


class Marks:
    __slots__ = ("blocks",)

    def __init__(self) -> None:
        self.blocks: dict[int, int] = {}

    def copy(self) -> Marks:
        copy = Marks()
        copy.blocks = self.blocks.copy()
        return copy

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

    def add_all(self, offsets: list[int]) -> None:
        """Many single offsets, in order."""
        for block, inside in groupby(offsets, lambda offset: offset // BLOCK):
            bits = bytearray(BLOCK // 8)
            for offset in inside:
                bits[offset % BLOCK >> 3] |= 1 << (offset & 7)
            self.blocks[block] = self.blocks.get(block, 0) | int.from_bytes(bits, "little")

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

    def remove(self, start: int, mask: int) -> None:
        block, shift = divmod(start, BLOCK)
        mask <<= shift
        while mask:
            self._take(block, mask & _FULL)
            mask >>= BLOCK
            block += 1

    def remove_range(self, start: int, stop: int) -> None:
        first, last = start // BLOCK, (stop - 1) // BLOCK
        many = last - first > len(self.blocks)
        for block in [b for b in self.blocks if first <= b <= last] if many else range(first, last + 1):
            low, high = max(start - block * BLOCK, 0), min(stop - block * BLOCK, BLOCK)
            self._take(block, (1 << high) - (1 << low))

    def _take(self, block: int, bits: int) -> None:
        known = self.blocks.get(block)
        if known is not None:
            if known & ~bits:
                self.blocks[block] = known & ~bits
            else:
                del self.blocks[block]

    @property
    def count(self) -> int:
        return sum(bits.bit_count() for bits in self.blocks.values())

    def lowest(self) -> int | None:
        """The lowest offset that is marked."""
        if not self.blocks:
            return None
        block = min(self.blocks)
        return block * BLOCK + (self.blocks[block] & -self.blocks[block]).bit_length() - 1

    def within(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """(start, mask) of what is marked in [start, stop), block by block; no mask is empty or begins with a hole."""
        first, last = start // BLOCK, (stop - 1) // BLOCK
        many = last - first > len(self.blocks)
        for block in sorted(b for b in self.blocks if first <= b <= last) if many else range(first, last + 1):
            bits = self.blocks.get(block, 0)
            if bits:
                low, high = max(start - block * BLOCK, 0), min(stop - block * BLOCK, BLOCK)
                bits &= (1 << high) - (1 << low)
            if bits:
                shift = (bits & -bits).bit_length() - 1
                yield block * BLOCK + shift, bits >> shift

    def spans(self) -> Iterator[tuple[int, int]]:
        """(start, mask) of each block, in order."""
        for block in sorted(self.blocks):
            yield block * BLOCK, self.blocks[block]
