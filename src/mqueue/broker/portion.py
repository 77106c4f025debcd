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


def fit(desk: TopicDesk, lease: Lease, now: int) -> None:
    """Give back what does not fit; one message always does. What is acked already stays. Hold the lock."""
    if not lease.open or lease.count * desk.engine.store.limits.payload_bytes_max <= ANSWER_BYTES_MAX:
        return
    try:
        beyond = _beyond(desk, lease)
    except (Corrupt, Unavailable):  # whoever reads the messages will find that out, and set it aside
        return
    if beyond:
        desk.settle_now(lease.token, "release", beyond, None, "", now)
        lease.runs = tuple(run for run in lease.runs if run.mask)
        lease.count = lease.open


def _beyond(desk: TopicDesk, lease: Lease) -> list[Span]:
    """What of a lease is too much."""
    spare = ANSWER_BYTES_MAX
    first = True
    for number, run in enumerate(lease.runs):
        for frame, rows in desk.pieces(run):
            size = frame.size * len(rows) // frame.count
            if size > spare:
                fits = max(spare * frame.count // frame.size, 1 if first else 0)
                cut = frame.base + rows.start + fits - run.start
                rest = (run.partition, run.start, run.stop, run.mask >> cut << cut)
                later = [(each.partition, each.start, each.stop, each.mask) for each in lease.runs[number + 1 :]]
                return [rest, *later] if rest[3] else later
            spare -= size
            first = False
    return []
