"""What cannot be read any more: set aside, told, and never handed out, so that the rest can be."""

from __future__ import annotations

import logging

from mqueue.heart.group import Lease
from mqueue.heart.runs import Run, each
from mqueue.heart.topic import Topic
from mqueue.log.base import Log
from mqueue.model import events as ev
from mqueue.model.errors import Corrupt, Unavailable
from mqueue.store.store import Store

LOGGER = logging.getLogger("mqueue")
CAUSE = "damaged"
LATER_MS = 10_000
"""When to try again what could not be read."""
REPORTS_MAX = 1000


def set_aside(store: Store, topic: Topic, lease: Lease, now: int) -> bool:
    """Take out of a lease what cannot be read; whether anything is left in it.

    What is damaged ends, for every group. What only could not be read now comes back a little later; the attempt does
    not count.
    """
    found = [(run, *_unreadable(store.log, topic.id, run)) for run in lease.runs]
    damaged = [(run, bits) for run, bits, _ in found if bits]
    late = [(run, bits) for run, _, bits in found if bits]
    if damaged:
        _end(store, topic, lease, damaged, now)
    held = [(run.partition, run.start, run.stop, bits & run.mask) for run, bits in late]
    if late and lease.open:
        due = now + LATER_MS
        group = lease.group
        store.heart.happen(ev.Settled(now, topic.id, group.name, lease.token, "release", tuple(held), due))
    store.commit(now)
    for run, bits in (*damaged, *late):  # a lease that was acked as it was handed out only tells what to read
        run.mask &= ~bits
    lease.runs = tuple(run for run in lease.runs if run.mask)
    lease.count = sum(run.mask.bit_count() for run in lease.runs)
    return bool(lease.runs)


def _end(store: Store, topic: Topic, lease: Lease, damaged: list[tuple[Run, int]], now: int) -> None:
    for run, bits in damaged:
        first = next(each(run.start, bits))
        where = f"{topic.name}/{run.partition} from offset {first} on"
        tell(store.log, f"{bits.bit_count()} messages of {where} are damaged: set aside")
    keyed = tuple((run.partition, run.start, run.stop, bits, run.priority, run.at) for run, bits in damaged)
    store.heart.happen(ev.Voided(now, topic.id, CAUSE, keyed))
    store.heart.settle(lease.token, "release", [span[:4] for span in keyed], now)


def tell(log: Log, report: str) -> None:
    """Say it once, and keep it; of very many only the first and the last."""
    LOGGER.error("%s", report)
    if len(log.reports) >= REPORTS_MAX:
        del log.reports[REPORTS_MAX // 2]
    log.reports.append(report)


def _unreadable(log: Log, topic: int, run: Run) -> tuple[int, int]:
    """The bits of a run whose messages are damaged, and of those that could not be read just now."""
    damaged = late = 0
    for offset in each(run.start, run.mask):
        bit = 1 << offset - run.start
        try:
            if log.frame(topic, run.partition, offset) is None:
                damaged |= bit
        except Corrupt:
            damaged |= bit
        except Unavailable:
            late |= bit
    return damaged, late
