"""What cannot be read any more: set aside, told, and never handed out, so that the rest can be."""

from __future__ import annotations

import logging

from mqueue.heart.group import Lease
from mqueue.heart.runs import Run, each
from mqueue.heart.topic import Topic
from mqueue.log.base import Log
from mqueue.model import events as ev
from mqueue.model.errors import Corrupt
from mqueue.store.store import Store

LOGGER = logging.getLogger("mqueue")
CAUSE = "damaged"
REPORTS_MAX = 1000


def set_aside(store: Store, topic: Topic, lease: Lease, now: int) -> bool:
    """End the messages of a lease that cannot be read, for every group; whether any others are left in it."""
    damaged = [(run, bits) for run in lease.runs if (bits := _damaged(store.log, topic.id, run))]
    for run, bits in damaged:
        first = next(each(run.start, bits))
        where = f"{topic.name}/{run.partition} from offset {first} on"
        tell(store.log, f"{bits.bit_count()} messages of {where} are damaged: set aside")
    keyed = tuple((run.partition, run.start, run.stop, bits, run.priority, run.at) for run, bits in damaged)
    store.heart.happen(ev.Voided(now, topic.id, CAUSE, keyed))
    store.heart.settle(lease.token, "release", [span[:4] for span in keyed], now)
    store.commit(now)
    for run, bits in damaged:  # a lease that was acked as it was handed out holds nothing: it only tells what to read
        run.mask &= ~bits
    lease.runs = tuple(run for run in lease.runs if run.mask)
    lease.count = sum(run.mask.bit_count() for run in lease.runs)
    return bool(lease.runs)


def tell(log: Log, report: str) -> None:
    """Say it once, and keep it; of very many only the first and the last."""
    LOGGER.error("%s", report)
    if len(log.reports) >= REPORTS_MAX:
        del log.reports[REPORTS_MAX // 2]
    log.reports.append(report)


def _damaged(log: Log, topic: int, run: Run) -> int:
    """The bits of a run whose messages cannot be read."""
    found = 0
    for offset in each(run.start, run.mask):
        try:
            sound = log.frame(topic, run.partition, offset) is not None
        except Corrupt:
            sound = False
        found |= (not sound) << offset - run.start
    return found
