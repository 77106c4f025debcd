"""What can be set per topic: names, defaults, and how a user's value becomes ours.

An unknown name is refused with the allowed ones; a bad value names itself and what would do. `labels` are notes that
users and faces keep with a topic: nobody here reads them, and of them, too, only what is named changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from mqueue.model.errors import BadSetting, Error
from mqueue.model.limits import (
    LABEL_LENGTH_MAX,
    LABEL_NAME_LENGTH_MAX,
    LABELS_MAX,
    PARTITIONS_MAX,
    VISIBILITY_MS_MAX,
)
from mqueue.model.names import check_name
from mqueue.model.policies import (
    ON_FAILURE,
    POLICIES,
    WEIGHTS,
    Fairness,
    parse_fairness,
    parse_rate,
    parse_weights,
    show_fairness,
    show_weights,
)
from mqueue.model.times import duration_ms

CLUSTER_PARTITIONS = 6
"""What topics of a cluster have if nobody says how many: some to share among members, few enough to look at in turn."""


class Retention(Struct, frozen=True):
    """When a message that nobody is owed leaves the log. The first rule that fires decides; None never does.

    `compact` is no such rule: of messages with a key only the last one of each key stays, and no rule drops that.
    """

    hours: float | None = 168.0
    bytes: int | None = None
    on_ack: bool = False
    compact: bool = False


class Settings(Struct, frozen=True):
    partitions: int = 1
    max_retries: int | None = 3
    backoff_ms: int = 1_000
    backoff_max_ms: int = 60_000
    visibility_ms: int = 30_000
    default_ttl_ms: int | None = None
    max_delay_ms: int | None = None
    max_depth: int | None = None
    overflow: str = "refuse"
    in_flight_max: int = 100_000
    retention: Retention = Retention()
    hold_ms: int = 7 * 24 * 3600 * 1000
    dlq: bool = True
    dlq_topic: str | None = None
    dlq_expired: bool = False
    dlq_dropped: bool = False
    dedup: str = "window"
    dedup_window_ms: int = 24 * 3600 * 1000
    dedup_keys_max: int = 1_000_000
    start: str = "earliest"
    policy: str = "strict"
    weights: tuple[int, ...] = WEIGHTS
    age_limit_ms: int = 60_000
    fairness: Fairness | None = None
    ordered: bool = False
    on_failure: str = "block"
    due_rate: float | None = None
    labels: tuple[tuple[str, str], ...] = ()
    """By name, in the order of names."""
    trace: bool = True

    @property
    def attempts_max(self) -> int | None:
        return None if self.max_retries is None else self.max_retries + 1


def parse(values: Mapping[str, Any], base: Settings | None = None) -> Settings:
    """The settings `base` with what `values` names changed, from the words users type."""
    before = base or Settings()
    merged = replace(before, **check_values(values))
    if "labels" in values:
        merged = replace(merged, labels=_labelled(before.labels, values["labels"]))
    if merged.backoff_max_ms < merged.backoff_ms:
        raise BadSetting(f"backoff_max ({merged.backoff_max_ms} ms) is below backoff ({merged.backoff_ms} ms)")
    if merged.ordered and merged.on_failure == "divert" and not merged.dlq:
        raise BadSetting("on_failure is 'divert', but dlq is off: the messages of a key would have nowhere to go")
    return merged


def check_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that `values` names, each checked for itself, whatever the others are."""
    changes: dict[str, Any] = {}
    for name, value in values.items():
        if name not in _PARSERS:
            raise BadSetting(f"unknown setting {name!r:.80}; allowed: {', '.join(sorted(_PARSERS))}")
        field, parser = _PARSERS[name]
        try:
            changes[field] = parser(name, value)
        except BadSetting:
            raise
        except Error as error:
            raise BadSetting(f"{name}: {error.message}") from error
    if "dlq" in changes:
        named = isinstance(changes["dlq"], str)
        changes["dlq_topic"] = changes["dlq"] if named else None
        changes["dlq"] = named or changes["dlq"]
    return changes


def describe(settings: Settings) -> dict[str, Any]:
    """Settings as the user names them, durations in seconds."""
    values = asdict(settings)
    shown: dict[str, Any] = {}
    for name, (field, _) in _PARSERS.items():
        value = values[field]
        shown[name] = value / 1000 if field.endswith("_ms") and value is not None else value
    shown["retention"] = {k: v for k, v in asdict(settings.retention).items() if v not in (None, False)}
    shown["weights"] = show_weights(settings.weights)
    shown["fairness"] = show_fairness(settings.fairness)
    shown["labels"] = dict(settings.labels)
    if settings.dlq and settings.dlq_topic:
        shown["dlq"] = settings.dlq_topic
    return shown


def _count(low: int, high: int) -> Callable[[str, Any], int]:
    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise BadSetting(f"{name} is {value!r:.80}; it takes a whole number from {low} to {high}")
        return value

    return check


def _or_none(parser: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    return lambda name, value: None if value is None else parser(name, value)


def _choice(*allowed: str) -> Callable[[str, Any], str]:
    def check(name: str, value: Any) -> str:
        if value not in allowed:
            raise BadSetting(f"{name} is {value!r:.80}; it takes one of {', '.join(allowed)}")
        return str(value)

    return check


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise BadSetting(f"{name} is {value!r:.80}; it takes true or false")
    return value


def _duration(name: str, value: Any) -> int:
    return duration_ms(value, name)


def _duration_or_none(name: str, value: Any) -> int | None:
    return None if value is None else duration_ms(value, name)


def _lasting(name: str, value: Any) -> int:
    lasting = duration_ms(value, name)
    if not lasting:
        raise BadSetting(f"{name} is {value!r:.80}; it takes more than 0")
    return lasting


def _visibility(name: str, value: Any) -> int:
    lasting = duration_ms(value, name)
    if not 0 < lasting <= VISIBILITY_MS_MAX:
        raise BadSetting(f"{name} is {value!r:.80}; it takes more than 0 and at most {VISIBILITY_MS_MAX // 3_600_000}h")
    return lasting


def _dlq(name: str, value: Any) -> bool | str:
    """True: `<topic>.dlq`; False: the dead are dropped; a name: that topic."""
    return value if isinstance(value, bool) else check_name(value, "dead-letter topic")


def _retention(name: str, value: Any) -> Retention:
    if not isinstance(value, Mapping):
        raise BadSetting(f"{name} is {value!r:.80}; it takes a mapping with hours, bytes, on_ack, compact")
    unknown = set(value) - {"hours", "bytes", "on_ack", "compact"}
    if unknown:
        raise BadSetting(
            f"{name}: unknown {sorted(map(str, unknown))[0]!r:.80}; allowed: hours, bytes, on_ack, compact"
        )
    hours, size = value.get("hours"), value.get("bytes")
    for label, number in (("hours", hours), ("bytes", size)):
        if number is not None and (
            isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < _MANY
        ):
            raise BadSetting(f"{name}: {label} is {number!r:.80}; it takes a number that is not negative")
    return Retention(
        hours=None if hours is None else float(hours),
        bytes=None if size is None else int(size),
        on_ack=_flag(f"{name}: on_ack", value.get("on_ack", False)),
        compact=_flag(f"{name}: compact", value.get("compact", False)),
    )


def _labels(name: str, value: Any) -> tuple[tuple[str, str], ...]:
    """Those that are given; None takes one away."""
    if not isinstance(value, Mapping):
        raise BadSetting(f"{name} is {value!r:.80}; it takes a mapping of names to text")
    for label, text in value.items():
        if not label or not _is_text(label, LABEL_NAME_LENGTH_MAX):
            most = LABEL_NAME_LENGTH_MAX
            raise BadSetting(f"{name}: {label!r:.80}; a name is Unicode text of 1 to {most} characters")
        if text is not None and not _is_text(text, LABEL_LENGTH_MAX):
            most = LABEL_LENGTH_MAX
            raise BadSetting(f"{name}: {label!r:.80} is {text!r:.80}; it takes Unicode text of up to {most} characters")
    return tuple(sorted((label, text) for label, text in value.items() if text is not None))


def _labelled(before: tuple[tuple[str, str], ...], changes: Mapping[str, str | None]) -> tuple[tuple[str, str], ...]:
    """The labels as they are with these changes, which were checked."""
    kept = {label: text for label, text in {**dict(before), **changes}.items() if text is not None}
    if len(kept) > LABELS_MAX:
        raise BadSetting(f"labels: {len(kept)} of them; {LABELS_MAX} are allowed")
    return tuple(sorted(kept.items()))


def _is_text(value: object, most: int) -> bool:
    return type(value) is str and len(value) <= most and value == value.encode("utf-8", "replace").decode()


_MANY = 2**63 - 1
_PARSERS: dict[str, tuple[str, Callable[[str, Any], Any]]] = {
    "partitions": ("partitions", _count(1, PARTITIONS_MAX)),
    "max_retries": ("max_retries", _or_none(_count(0, 1_000_000))),
    "backoff": ("backoff_ms", _duration),
    "backoff_max": ("backoff_max_ms", _duration),
    "visibility": ("visibility_ms", _visibility),
    "default_ttl": ("default_ttl_ms", _or_none(_lasting)),
    "max_delay": ("max_delay_ms", _duration_or_none),
    "max_depth": ("max_depth", _or_none(_count(1, _MANY))),
    "overflow": ("overflow", _choice("refuse", "drop_oldest", "drop_ready")),
    "in_flight_max": ("in_flight_max", _count(1, 10_000_000)),
    "retention": ("retention", _retention),
    "hold": ("hold_ms", _duration),
    "dlq": ("dlq", _dlq),
    "dlq_expired": ("dlq_expired", _flag),
    "dlq_dropped": ("dlq_dropped", _flag),
    "dedup": ("dedup", _choice("window", "until_acked", "forever")),
    "dedup_window": ("dedup_window_ms", _lasting),
    "dedup_keys_max": ("dedup_keys_max", _count(1, 1_000_000_000)),
    "start": ("start", _choice("earliest", "latest")),
    "policy": ("policy", _choice(*POLICIES)),
    "weights": ("weights", parse_weights),
    "age_limit": ("age_limit_ms", _lasting),
    "fairness": ("fairness", parse_fairness),
    "ordered": ("ordered", _flag),
    "on_failure": ("on_failure", _choice(*ON_FAILURE)),
    "due_rate": ("due_rate", _or_none(parse_rate)),
    "labels": ("labels", _labels),
    "trace": ("trace", _flag),
}
