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


def set_aside(store: Store, topic: Topic, lease: Lease, now: int) -> bool:
    """End the messages of a lease that cannot be read, for every group; whether any others are left in it."""
    damaged = [(run, bits) for run in lease.runs if (bits := _damaged(store.log, topic.id, run))]
    for run, bits in damaged:
        offsets = ", ".join(map(str, list(each(run.start, bits))[:5]))
        LOGGER.error(
            "%d messages of %s/%d from offset %s on are damaged: set aside",
            bits.bit_count(),
            topic.name,
            run.partition,
            offsets,
        )
    keyed = tuple((run.partition, run.start, run.stop, bits, run.priority, run.at) for run, bits in damaged)
    store.heart.happen(ev.Voided(now, topic.id, CAUSE, keyed))
    store.heart.settle(lease.token, "release", [span[:4] for span in keyed], now)
    store.commit(now)
    for run, bits in damaged:  # a lease that was acked as it was handed out holds nothing: it only tells what to read
        run.mask &= ~bits
    lease.runs = tuple(run for run in lease.runs if run.mask)
    lease.count = sum(run.mask.bit_count() for run in lease.runs)
    return bool(lease.runs)


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
