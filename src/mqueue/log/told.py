"""What frames tell to whoever rebuilds the state: order keys, and claims on idempotency keys."""

from __future__ import annotations

from collections.abc import Iterator

from mqueue.heart.dedup import Claim, digest
from mqueue.heart.fold import Appended
from mqueue.wire.frame import Frame


def appended(frame: Frame, stamp: int) -> Appended:
    """The messages of one stamp, ready to be folded."""
    stretches = frame.stretches(stamp)
    rows = range(stretches[0][0] - frame.base, stretches[-1][1] - frame.base)
    return frame.topic, frame.partition, stretches, frame.at[stamp], list(claims_of(frame, rows))


def claims_of(frame: Frame, rows: range) -> Iterator[tuple[bytes, Claim]]:
    """The claims that some messages of a frame make on their idempotency keys."""
    if not frame.uses("idempotency_key"):
        return
    keys = frame.rows.idempotency_key
    assert keys is not None
    for row in rows:
        key = keys[row]
        if key is not None:
            at = frame.at_of(row)
            due = max(at, frame.number("deliver_at", row))
            priority = frame.number("priority", row)
            claim = Claim(
                at, frame.id_of(row), frame.partition, frame.base + row, priority, due, digest(frame.rows.payload[row])
            )
            yield digest(key.encode()), claim
