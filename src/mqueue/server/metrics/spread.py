"""How values are spread: a histogram of plain numbers, cheap enough for every request. One thread at a time adds."""

from __future__ import annotations

from bisect import bisect_left


class Spread:
    __slots__ = ("_bounds", "_buckets", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._buckets = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self._buckets[bisect_left(self._bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, float]]:
        """For each bound, how many values were not above it."""
        found: list[tuple[str, float]] = []
        count = 0
        for bound, number in zip((*map(str, self._bounds), "+Inf"), self._buckets, strict=True):
            count += number
            found.append((bound, count))
        return found
