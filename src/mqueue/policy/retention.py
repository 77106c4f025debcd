"""How far a partition may be dropped: pure rules over the frames it has.

Does not know who is owed what: whoever asks keeps what somebody still needs.
"""

from __future__ import annotations

from collections.abc import Iterable

from mqueue.model.settings import Retention

REST_MS = 60_000
"""A frame is taken apart only when nothing was added to it for so long: until then most of what it holds may settle."""

_HOUR_MS = 3_600_000
_KEPT_PARTS = 4
"""At most one part in so many of what lies below a new floor is kept."""


def oldest(rule: Retention, now: int) -> int:
    """What was appended at this time or before is too old; -1 if nothing is."""
    return -1 if rule.hours is None else now - int(min(rule.hours, now / _HOUR_MS + 1) * _HOUR_MS)


def drops(rule: Retention, at: int, size: int, now: int) -> bool:
    """Whether the rule lets a frame go whose last message is from `at`, the oldest of a partition of so many bytes."""
    return rule.on_ack or at <= oldest(rule, now) or (rule.bytes is not None and size > rule.bytes)


def allowed(frames: Iterable[tuple[int, int, int]], floor: int, rule: Retention, size: int, now: int) -> int:
    """How far the rule lets the floor rise. `frames`: (stop, time of the last message, bytes), oldest first."""
    for stop, at, weight in frames:
        if not drops(rule, at, size, now):
            break
        floor = stop
        size -= weight
    return floor


def worthwhile(frames: Iterable[tuple[int, int]], floor: int) -> int:
    """How far the floor may rise so that it is worth it: of what it passes at most a quarter has to be kept.

    `frames`: (stop, how many of its messages somebody needs), oldest first. The rest waits until more of it is done.
    """
    best, needed = floor, 0
    for stop, count in frames:
        needed += count
        if needed * _KEPT_PARTS <= stop - floor:
            best = stop
    return best
