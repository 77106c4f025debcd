"""Priorities: an int32 where lower goes first, and the five lanes that have names.

Knows nothing of how messages are picked: the order, the weights and the ageing are the heart's.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from mqueue.model.errors import BadPriority

CRITICAL = 0
HIGH = 25
NORMAL = 50
LOW = 75
BACKGROUND = 100

LANES: Mapping[str, int] = MappingProxyType(
    {"critical": CRITICAL, "high": HIGH, "normal": NORMAL, "low": LOW, "background": BACKGROUND}
)

PRIORITY_MIN = -(1 << 31)
PRIORITY_MAX = (1 << 31) - 1

_NAMES = {level: lane for lane, level in LANES.items()}
_ALLOWED = f"one of {', '.join(LANES)}, or an int from {PRIORITY_MIN} to {PRIORITY_MAX}"


def priority(value: int | str) -> int:
    """The level. Text must be the name of a lane: "5" from a form or a header is more likely a mistake than a wish."""
    if type(value) is int and PRIORITY_MIN <= value <= PRIORITY_MAX:
        return value
    level = _level(value)
    if level is None:
        raise BadPriority(f"priority {value!r:.80} is not allowed: give {_ALLOWED}")
    return level


def name(priority: int) -> str | None:
    """The lane of exactly this level, if it has a name."""
    return _NAMES.get(priority)


def _level(value: object) -> int | None:
    if isinstance(value, str):
        return LANES.get(value)
    if isinstance(value, int) and not isinstance(value, bool) and PRIORITY_MIN <= value <= PRIORITY_MAX:
        return int(value)  # an IntEnum may come in, a plain int goes on
    return None
