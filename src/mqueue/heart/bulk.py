"""Filling a partition from what a log has of it, in whole columns: for a start that should not take a call per message.

Only where nothing was cancelled, moved, dropped or kept: then order keys tell it all.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mqueue.heart.far import FAR
from mqueue.heart.partition import Partition

Table: TypeAlias = NDArray[np.int64]
"""start, stop, priority, due, expires, at: a row for each stretch of messages (see there), in the order of offsets."""


def fill(partition: Partition, rows: Table, floor: int, stop: int, now: int) -> None:
    """Put what lies in [floor, stop) where it belongs at `now`: into its lane, or into the schedule."""
    rows = rows[(rows[:, 0] < stop) & (rows[:, 1] > floor)]
    starts, stops = np.maximum(rows[:, 0], floor), np.minimum(rows[:, 1], stop)
    _, _, priority, due, expires, at = rows.T
    since = np.maximum(due, at)
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
    partition.expiry.fill(expires[ends], starts[ends], stops[ends], priority[ends], since[ends])
    partition.at = int(at[-1]) if len(at) else 0
    partition.open = int((stops - starts)[ripe].sum())
    partition.scheduled = int((stops - starts)[~ripe].sum())
