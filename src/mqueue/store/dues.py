"""When what is scheduled far ahead is due: remembered for whoever leafs through it.

Only the frames themselves tell, and each of them may reach over a year: a page needs all, the next page as well. What a
frame says of due times never changes, so nothing has to be told here; what was moved or cancelled since is for others
to know. Those that were not asked for longest are forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from mqueue.log.base import Log
from mqueue.model.limits import LISTED_DUES_MAX
from mqueue.store.ahead import stretches_in

_AT_ONCE = 16


class Times(Struct, frozen=True):
    """Of one frame, in order."""

    start: int
    due: NDArray[np.int64]
    rows: NDArray[np.uint32]

    def since(self, low: tuple[int, int]) -> Iterator[tuple[int, int]]:
        """(due, offset) from a time, and an offset of that time, on."""
        due, offset = low
        first, last = np.searchsorted(self.due, due), np.searchsorted(self.due, due, "right")
        first += np.searchsorted(self.rows[first:last], max(0, offset - self.start))
        for begin in range(int(first), len(self.due), _AT_ONCE):
            piece = slice(begin, begin + _AT_ONCE)
            for when, row in zip(self.due[piece].tolist(), self.rows[piece].tolist(), strict=True):
                yield when, self.start + row


class Dues:
    __slots__ = ("_count", "_known")

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, int, int, int], Times] = OrderedDict()
        self._count = 0

    def of(self, log: Log, topic: int, partition: int, start: int, stop: int) -> Times:
        """Those of [start, stop); read, if they are not known."""
        place = topic, partition, start, stop
        times = self._known.get(place)
        if times is not None:
            self._known.move_to_end(place)
            return times
        times = self._known[place] = _read(log, topic, partition, start, stop)
        self._count += len(times.due)
        while self._count > LISTED_DUES_MAX:
            self._count -= len(self._known.popitem(last=False)[1].due)
        return times


def _read(log: Log, topic: int, partition: int, start: int, stop: int) -> Times:
    found = stretches_in(log, topic, partition, start, stop)
    firsts, lasts, dues = (np.array([stretch[column] for stretch in found], np.int64) for column in (0, 1, 3))
    counts = lasts - firsts
    due = np.repeat(dues, counts)
    before = np.cumsum(counts) - counts
    rows = np.arange(len(due)) + np.repeat(firsts - start - before, counts)
    order = np.lexsort((rows, due))
    return Times(start, due[order], rows[order].astype(np.uint32))
