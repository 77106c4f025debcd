"""A lease cut down to what one answer can carry: what is beyond that is given back at once, as if it never was leased.

For consumers elsewhere. Those in this process hold messages that are in memory anyway; an answer has to be made, and
ten thousand messages of a megabyte each would make one that no server survives.
"""

from __future__ import annotations

from mqueue.broker.deliver import TopicDesk
from mqueue.heart.group import Lease
from mqueue.model.errors import Corrupt, Unavailable
from mqueue.model.events import Span
from mqueue.model.limits import ANSWER_BYTES_MAX


def fit(desk: TopicDesk, lease: Lease, now: int, spare: int = ANSWER_BYTES_MAX, alone: bool = True) -> int:
    """Give back what does not fit `spare` bytes; one message always does. How many are left then. Hold the lock.

    `alone`: nobody cares how many are left.
    """
    if alone and lease.count * desk.engine.store.limits.payload_bytes_max <= spare:
        return spare
    try:
        beyond, spare = _beyond(desk, lease, spare)
    except (Corrupt, Unavailable):  # whoever reads the messages will find that out, and set it aside
        return spare
    if beyond:
        desk.settle_now(lease.token, "release", beyond, None, "", now)
        lease.runs = tuple(run for run in lease.runs if run.mask)
        lease.count = lease.open
    return spare


def _beyond(desk: TopicDesk, lease: Lease, spare: int) -> tuple[list[Span], int]:
    """What of a lease is too much, and how many bytes the rest leaves."""
    first = True
    for number, run in enumerate(lease.runs):
        for frame, rows in desk.pieces(run):
            size = frame.size * len(rows) // frame.count
            if size > spare:
                fits = max(spare * frame.count // frame.size, 1 if first else 0)
                cut = frame.base + rows.start + fits - run.start
                rest = (run.partition, run.start, run.stop, run.mask >> cut << cut)
                later = [(each.partition, each.start, each.stop, each.mask) for each in lease.runs[number + 1 :]]
                return [rest, *later] if rest[3] else later, 0
            spare -= size
            first = False
    return [], spare
