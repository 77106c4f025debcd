"""In which order messages go out: the settings that say so, and how a user's value becomes ours.

Knows the words only: who has his turn when is the heart's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from mqueue.model.errors import BadSetting
from mqueue.model.limits import FAIR_WEIGHTS_MAX
from mqueue.model.names import check_name
from mqueue.model.priority import LANES

POLICIES = ("strict", "weighted", "ageing")
ON_FAILURE = ("block", "skip", "divert")
WEIGHTS = (50, 25, 15, 7, 3)
"""Of a hundred deliveries so many are for critical, high, normal, low and background."""
WEIGHT_MAX = 1_000
RATE_MIN, RATE_MAX = 0.001, 1_000_000
_FAIRNESS = ("weights", "in_flight_max", "rate", "limits")
_LIMITS = ("in_flight_max", "rate")


class KeyLimits(Struct, frozen=True):
    """What one fairness key may, in the place of what all may; None: as all."""

    in_flight_max: int | None = None
    rate: float | None = None


class Fairness(Struct, frozen=True):
    """Fairness keys take turns inside a priority; a key without a weight has 1."""

    weights: tuple[tuple[str, int], ...] = ()
    in_flight_max: int | None = None
    """So many messages of one key are in flight at most, in each group."""
    rate: float | None = None
    """So many messages of one key are handed out in a second at most, to each group."""
    limits: tuple[tuple[str, KeyLimits], ...] = ()
    """Of keys that have limits of their own."""


def parse_weights(name: str, value: Any) -> tuple[int, ...]:
    """A weight for each lane; those that are not named keep theirs."""
    if not isinstance(value, Mapping):
        raise BadSetting(f"{name} is {value!r:.80}; it takes a mapping with {', '.join(LANES)}")
    _check_names(name, value, tuple(LANES))
    return tuple(
        _whole(f"{name}: {lane}", value.get(lane, usual), WEIGHT_MAX)
        for lane, usual in zip(LANES, WEIGHTS, strict=True)
    )


def parse_fairness(name: str, value: Any) -> Fairness | None:
    """True, false, or a mapping of limits."""
    if isinstance(value, bool):
        return Fairness() if value else None
    if not isinstance(value, Mapping):
        raise BadSetting(f"{name} is {value!r:.80}; it takes true, false or a mapping with {', '.join(_FAIRNESS)}")
    _check_names(name, value, _FAIRNESS)
    weights, limits = (_by_key(f"{name}: {part}", value.get(part)) for part in ("weights", "limits"))
    most, rate = _limits(name, value)
    return Fairness(
        tuple(
            (check_name(key, "fairness key"), _whole(f"{name}: weight of {key}", weight, WEIGHT_MAX))
            for key, weight in weights.items()
        ),
        most,
        rate,
        tuple(_key_limits(f"{name}: limits", key, own) for key, own in limits.items()),
    )


def _by_key(name: str, value: Any) -> Mapping[str, Any]:
    if value is not None and (not isinstance(value, Mapping) or len(value) > FAIR_WEIGHTS_MAX):
        raise BadSetting(f"{name} is {value!r:.80}; it takes a mapping of at most {FAIR_WEIGHTS_MAX} keys")
    return value or {}


def _key_limits(name: str, key: Any, value: Any) -> tuple[str, KeyLimits]:
    key = check_name(key, "fairness key")
    if not isinstance(value, Mapping):
        raise BadSetting(f"{name}: {key} is {value!r:.80}; it takes a mapping with {', '.join(_LIMITS)}")
    _check_names(f"{name}: {key}", value, _LIMITS)
    return key, KeyLimits(*_limits(f"{name}: {key}", value))


def _limits(name: str, value: Mapping[str, Any]) -> tuple[int | None, float | None]:
    most, rate = (value.get(part) for part in _LIMITS)
    return (
        None if most is None else _whole(f"{name}: in_flight_max", most, 10_000_000),
        None if rate is None else parse_rate(f"{name}: rate", rate),
    )


def parse_rate(name: str, value: Any) -> float:
    """So many a second."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not RATE_MIN <= value <= RATE_MAX:
        raise BadSetting(f"{name} is {value!r:.80}; it takes a number above 0, {RATE_MIN} to {RATE_MAX}, per second")
    return float(value)


def show_weights(weights: tuple[int, ...]) -> dict[str, int]:
    return dict(zip(LANES, weights, strict=True))


def show_fairness(fairness: Fairness | None) -> bool | dict[str, Any]:
    """As users give it."""
    if fairness is None:
        return False
    parts = {
        "weights": dict(fairness.weights) or None,
        "in_flight_max": fairness.in_flight_max,
        "rate": fairness.rate,
        "limits": {key: _given(asdict(own)) for key, own in fairness.limits} or None,
    }
    return _given(parts) or True


def _given(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in parts.items() if part is not None}


def _check_names(name: str, value: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    unknown = sorted(str(part) for part in value if part not in allowed)
    if unknown:
        raise BadSetting(f"{name}: unknown {unknown[0]!r:.80}; allowed: {', '.join(allowed)}")


def _whole(name: str, value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise BadSetting(f"{name} is {value!r:.80}; it takes a whole number from 1 to {most}")
    return value
