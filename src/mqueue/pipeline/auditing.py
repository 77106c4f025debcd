"""The log against the lake, message by message: what one has and the other has not, has twice, or has otherwise.

    tasks    check a range ── offsets and hashes of both ──► sums, and runs of offsets at which they differ
    driver   judge ── sums against the book that the archive kept ──► findings

A message that the log no longer has cannot be compared; that it is in the lake as it was archived is told by the sums
in the book. Does not know how a lake or a log is read into batches.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from mqueue.pipeline.book import Mark
from mqueue.pipeline.ledger import Hashes, Sum, hashes, sum_of_hashes

FAULTS = MISSING, DOUBLED, DIFFERENT, HOLE, STRAY, LATE = (
    "missing", "doubled", "different", "holes", "stray", "too late",
)  # fmt: skip
"""In the log, not in the lake; there twice; not the same in both; archived, but gone; there, but never archived; gone
from the log before it was archived."""
RUNS_MAX = 10_000
"""So many runs of offsets one task tells of at most, of each kind."""


class Run(Struct, frozen=True):
    """Neighbouring offsets with the same fault. `id` is that of the first message; 0 where nobody knows it."""

    fault: str
    first: int
    last: int
    id: int = 0

    def __len__(self) -> int:
        return self.last - self.first + 1


class Side(Struct, frozen=True):
    """The messages of one place, by offset."""

    offsets: NDArray[np.int64]
    ids: NDArray[np.int64]
    hashes: Hashes

    @property
    def sum(self) -> Sum:
        return sum_of_hashes(self.hashes)


class Compared(Struct, frozen=True):
    """Of a range of offsets. `dropped`: messages that only the lake has: the log has let them go since."""

    log: Sum
    lake: Sum
    dropped: int
    runs: list[Run]
    holes: list[Run]
    """Offsets that the lake has not. Lawful, if the log had dropped them before they were archived."""
    cut: bool = False
    """There were more runs than one may tell of."""


def side_of(batches: Iterable[pa.RecordBatch]) -> Side:
    """What is compared of messages: 24 bytes of each."""
    offsets, ids, found = [], [], []
    for batch in batches:
        offsets.append(batch.column("offset").to_numpy())
        ids.append(batch.column("id").to_numpy())
        found.append(hashes(batch))
    if not offsets:
        return Side(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint64))
    return Side(np.concatenate(offsets), np.concatenate(ids), np.concatenate(found))


def compare(log: Side, lake: Side, start: int, stop: int) -> Compared:
    """Both sides rise by offset; in the lake an offset may stand twice, which is a fault."""
    there, first_rows, counts = np.unique(lake.offsets, return_index=True, return_counts=True)
    places = np.searchsorted(there, log.offsets)
    known = places < len(there)
    known[known] = there[places[known]] == log.offsets[known]
    same = np.ones(len(log.offsets), bool)
    same[known] = log.hashes[known] == lake.hashes[first_rows[places[known]]]
    alive = np.isin(there, log.offsets, assume_unique=True)
    twice = counts > 1
    runs = [
        *_runs(MISSING, log.offsets[~known], log.ids[~known]),
        *_runs(DOUBLED, there[twice], lake.ids[first_rows[twice]]),
        *_runs(DIFFERENT, log.offsets[~same], log.ids[~same]),
    ]
    gone = np.setdiff1d(np.arange(start, stop), there, assume_unique=True)
    holes = _runs(HOLE, gone, np.zeros(len(gone), np.int64))
    return Compared(
        log=log.sum,
        lake=lake.sum,
        dropped=int((~alive).sum()),
        runs=runs[:RUNS_MAX],
        holes=holes[:RUNS_MAX],
        cut=len(runs) > RUNS_MAX or len(holes) > RUNS_MAX,
    )


def judge(mark: Mark, found: Iterable[Compared]) -> list[Run]:
    """All that is wrong with a partition.

    Holes are, if the lake has fewer messages than were archived: then some of them were, and are gone. A hole that is
    there because the log lacks it too is told of with them; only the lost ones are told of where the log has them.
    """
    told = list(found)
    runs = [run for one in told for run in one.runs]
    lake = sum((one.lake for one in told), Sum())
    archived = mark.sum
    if archived is None or lake == archived:
        return runs
    if lake.rows < archived.rows:
        missing = {(run.first, run.last) for run in runs if run.fault == MISSING}
        runs += [hole for one in told for hole in one.holes if (hole.first, hole.last) not in missing]
    if not runs:  # as many as there should be, but not the same, and the log cannot tell which
        runs.append(Run(DIFFERENT, mark.start, mark.stop - 1))
    return runs


def _runs(fault: str, offsets: NDArray[np.int64], ids: NDArray[np.int64]) -> list[Run]:
    if not len(offsets):
        return []
    cuts = np.flatnonzero(np.diff(offsets) != 1) + 1
    starts, stops = np.concatenate([[0], cuts]), np.concatenate([cuts, [len(offsets)]])
    firsts, lasts = offsets[starts].tolist(), offsets[stops - 1].tolist()
    return [Run(fault, first, last, id) for first, last, id in zip(firsts, lasts, ids[starts].tolist(), strict=True)]
