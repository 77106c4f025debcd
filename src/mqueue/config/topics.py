"""The defaults of topics: from the words of a configuration to `mqueue.model.settings`, and back.

That module decides what a setting may be; here only shapes differ: durations come in milliseconds, and what is one
setting there (retention, dlq, max_delay, weights, fairness) is several keys in a file. Weights and limits of single
fairness keys, and labels, cannot be given here: they belong to a topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from msgspec.structs import asdict

from mqueue.model.errors import BadSetting
from mqueue.model.policies import show_weights
from mqueue.model.priority import LANES
from mqueue.model.settings import Settings, parse

_DURATIONS = ("backoff", "backoff_max", "visibility", "default_ttl", "max_delay", "hold", "dedup_window", "age_limit")
_RETENTION = "retention."
_WEIGHTS = "weights."
_FAIRNESS = "fairness."
_LIMITS = ("in_flight_max", "rate")


def topic_settings(given: Mapping[str, Any]) -> tuple[Settings, dict[str, str]]:
    """The settings, and what is wrong, a sentence by name."""
    wrong: dict[str, str] = {}
    words = _words(given)
    if given.get("dlq") is False and given.get("dlq_topic"):
        wrong["dlq_topic"] = "dlqTopic is given, but dlqEnabled is false"
    for name, value in list(words.items()):
        try:
            parse({name: value})
        except BadSetting as error:
            if name != "backoff":  # above the default of backoff_max alone; together they are judged below
                wrong[name] = error.message
                del words[name]
    try:
        return parse(words), wrong
    except BadSetting as error:
        return Settings(), wrong | {"on_failure" if "on_failure" in error.message else "backoff_max": error.message}


def topic_values(settings: Settings) -> dict[str, Any]:
    """Every name that `topic_settings` takes, with its value."""
    fields = asdict(settings)
    del fields["labels"]
    retention = asdict(fields.pop("retention"))
    weights = show_weights(fields.pop("weights"))
    fairness = fields.pop("fairness")
    values = {name.removesuffix("_ms"): value for name, value in fields.items()}
    return {
        **values,
        **{_RETENTION + name: value for name, value in retention.items()},
        **{_WEIGHTS + name: value for name, value in weights.items()},
        **{_FAIRNESS + name: fairness and getattr(fairness, name) for name in _LIMITS},
        f"{_FAIRNESS}enabled": fairness is not None,
        "delayed": values["max_delay"] != 0,
    }


def _words(given: Mapping[str, Any]) -> dict[str, Any]:
    apart = (_RETENTION, _WEIGHTS, _FAIRNESS)
    words = {name: value for name, value in given.items() if not name.startswith(apart)}
    for name in _DURATIONS:
        if words.get(name) is not None:
            words[name] = timedelta(milliseconds=words[name])
    named, kept = words.pop("dlq_topic", None), words.pop("dlq", True)
    words["dlq"] = kept and (named or True)
    if not words.pop("delayed", True):
        words["max_delay"] = timedelta(0)
    retention = asdict(Settings().retention)
    words["retention"] = retention | {n: given[_RETENTION + n] for n in retention if _RETENTION + n in given}
    words["weights"] = {lane: given[_WEIGHTS + lane] for lane in LANES if _WEIGHTS + lane in given}
    limits = {name: given[_FAIRNESS + name] for name in _LIMITS if given.get(_FAIRNESS + name) is not None}
    words["fairness"] = limits or given.get(f"{_FAIRNESS}enabled", False)
    return words
