"""How far a partition may be dropped: a pure rule over the frames it has.

Does not know who is owed what: whoever asks stops before the first offset that somebody still needs.
"""

from __future__ import annotations

from collections.abc import Iterable

from mqueue.model.settings import Retention

_HOUR_MS = 3_600_000


def allowed(frames: Iterable[tuple[int, int, int]], floor: int, rule: Retention, size: int, now: int) -> int:
    """How far the rule lets the floor rise. `frames`: (stop, time of the last message, bytes), oldest first."""
    oldest = -1 if rule.hours is None else now - int(min(rule.hours, now / _HOUR_MS + 1) * _HOUR_MS)
    for stop, at, weight in frames:
        too_old = at <= oldest
        too_much = rule.bytes is not None and size > rule.bytes
        if not (rule.on_ack or too_old or too_much):
            break
        floor = stop
        size -= weight
    return floor
