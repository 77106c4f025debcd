"""Filling a partition from what a log has of it, in whole columns: for a start that should not take a call per message.

Only where nothing was cancelled, moved, dropped or kept: then order keys tell it all.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mqueue.heart.far import FAR
from mqueue.heart.lates import Key, ranks
from mqueue.heart.partition import Partition

Table: TypeAlias = NDArray[np.int64]
"""start, stop, priority, due, expires, at: a row for each stretch of messages (see there), in the order of offsets."""


def fill(partition: Partition, rows: Table, floor: int, stop: int, now: int) -> None:
    """Put what lies in [floor, stop) where it belongs at `now`: into its lane, or into the schedule."""
    rows = rows[(rows[:, 0] < stop) & (rows[:, 1] > floor)]
    partition.at = int(rows[-1, 5]) if len(rows) else 0
    if partition.upto is not None:
        last_due, last = partition.upto
        rows = _cut(rows, [*partition.lates.borders, (last_due, last + 1)])
    starts, stops = np.maximum(rows[:, 0], floor), np.minimum(rows[:, 1], stop)
    _, _, priority, due, expires, at = rows.T
    since = np.maximum(due, at)
    if partition.upto is not None:
        since = np.where(due > at, partition.times(due, rows[:, 0]), at)
    ripe = since <= now
    for level in np.unique(priority).tolist():
        chosen = np.flatnonzero(ripe & (priority == level))
        chosen = chosen[np.lexsort((starts[chosen], since[chosen]))]
        partition.lane(level).fill(starts[chosen], stops[chosen], since[chosen])
    far = expires == FAR
    for row in np.flatnonzero(far).tolist():
        partition.put_off(int(starts[row]), int(stops[row]), int(priority[row]), int(due[row]))
    late = ~ripe & ~far
    partition.schedule.fill(due[late], starts[late], stops[late], priority[late], due[late])
    ends = expires > 0
    given = np.where(due > at, -due, at)
    partition.expiry.fill(expires[ends], starts[ends], stops[ends], priority[ends], given[ends])
    partition.open = int((stops - starts)[ripe].sum())
    partition.scheduled = int((stops - starts)[~ripe].sum())


def _cut(rows: Table, borders: list[Key]) -> Table:
    """The same, but that none reaches over a border (due time and offset) of those with its due time."""
    order = np.lexsort((rows[:, 0], rows[:, 3]))
    due, offsets = np.array(borders, np.int64).T
    before = ranks(rows[order, 3], rows[order, 0], due, offsets) - 1
    cuts: dict[int, set[int]] = {}
    for place, (time, offset) in zip(before.tolist(), borders, strict=True):
        row = int(order[place]) if place >= 0 else -1
        if row >= 0 and rows[row, 3] == time and rows[row, 0] < offset < rows[row, 1]:
            cuts.setdefault(row, set()).add(offset)
    if not cuts:
        return rows
    pieces = [
        (first, last, *rows[row, 2:].tolist())
        for row, offsets_in in cuts.items()
        for first, last in pairwise([int(rows[row, 0]), *sorted(offsets_in), int(rows[row, 1])])
    ]
    return np.concatenate((np.delete(rows, list(cuts), axis=0), np.array(pieces, np.int64)))
