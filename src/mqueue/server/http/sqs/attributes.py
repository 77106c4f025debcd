"""Attributes of queues: what each may be, which settings of a topic it is, and which are only noted with the topic.

    VisibilityTimeout        visibility; 0 is a label besides
    MessageRetentionPeriod   default_ttl, and retention by hours
    RedrivePolicy            dlq and max_retries; of FIFO queues also on_failure
    the others, and tags     labels `sqs.<name>` and `sqs.tag.<key>`: what SQS heeds here is read from them

A topic that was not made through SQS has the attributes that its settings amount to. Asks no broker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from msgspec import Struct

from mqueue.model.limits import MIB
from mqueue.server.http.sqs.carrying import far_sources
from mqueue.server.http.sqs.errors import Fault
from mqueue.server.http.sqs.naming import Place
from mqueue.server.http.sqs.redriving import TARGET, policy_text, read_allowed, read_redrive, redrive_of, redriven

LABEL = "sqs."
TAG = "sqs.tag."
TAGS_MAX = 50
SIZE_MAX = MIB
_TAG_KEY_MAX, _TAG_MAX = 128, 256

NUMBERS = {
    "DelaySeconds": (0, 900, 0),
    "MaximumMessageSize": (1024, SIZE_MAX, SIZE_MAX),
    "MessageRetentionPeriod": (60, 1_209_600, 345_600),
    "ReceiveMessageWaitTimeSeconds": (0, 20, 0),
    "VisibilityTimeout": (0, 43_200, 30),
}
"""From, to, and what holds where nothing is said."""
_FIFO_CHOICES = {
    "ContentBasedDeduplication": ("false", "true"),
    "DeduplicationScope": ("queue", "messageGroup"),
    "FifoThroughputLimit": ("perQueue", "perMessageGroupId"),
}
"""What FIFO queues may choose; the first is what holds."""
POLICIES = ("RedrivePolicy", "RedriveAllowPolicy")
COUNTED = {
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
}
_TOLD = {"QueueArn", "CreatedTimestamp", "LastModifiedTimestamp", "FifoQueue"}
REFUSED = {
    "Policy": "who may do what is said by the grants of keys and tokens",
    "KmsMasterKeyId": "messages are not encrypted at rest here",
    "KmsDataKeyReusePeriodSeconds": "messages are not encrypted at rest here",
    "SqsManagedSseEnabled": "messages are not encrypted at rest here",
}
"""Taken only where they ask for nothing: promises that would not be kept."""
KNOWN = {*NUMBERS, *_FIFO_CHOICES, *POLICIES, *COUNTED, *_TOLD, *REFUSED, "All"}


class Traits(Struct, frozen=True):
    """What of the labels of a queue matters when messages come and go."""

    delay_seconds: int
    size_max: int
    wait_seconds: int
    is_shown_at_once: bool
    """A received message is not hidden from others."""
    by_content: bool
    """Messages without a deduplication id have one made from their body."""
    by_group: bool
    """A deduplication id counts in its message group alone."""
    far_sources: tuple[str, ...]
    """Queues on other servers whose dead belong here."""


@lru_cache(maxsize=4096)
def traits_of(labels: tuple[tuple[str, str], ...]) -> Traits:
    noted = dict(labels)

    def number(name: str) -> int:
        return int(noted.get(LABEL + name, NUMBERS[name][2]))

    return Traits(
        number("DelaySeconds"),
        number("MaximumMessageSize"),
        number("ReceiveMessageWaitTimeSeconds"),
        noted.get(f"{LABEL}VisibilityTimeout") == "0",
        noted.get(f"{LABEL}ContentBasedDeduplication") == "true",
        noted.get(f"{LABEL}DeduplicationScope") == "messageGroup",
        tuple(far_sources(noted)),
    )


# In


def settings_for(place: Place, attributes: Mapping[str, str], is_new: bool) -> dict[str, Any]:
    """What the settings of a topic become by these attributes. Raises Fault for one that cannot be."""
    _check_names(place, attributes, is_new)
    settings: dict[str, Any] = {}
    labels: dict[str, str | None] = {}
    given = {name: str(usual) for name, (_, _, usual) in NUMBERS.items()} if is_new else {}
    for name, value in {**given, **attributes}.items():
        if name in NUMBERS:
            _set_number(name, _number(name, value), settings, labels)
        elif name in _FIFO_CHOICES:
            labels[LABEL + name] = _choice(name, value, _FIFO_CHOICES[name])
        elif name == "RedriveAllowPolicy":
            if value:
                read_allowed(value)
            labels[LABEL + name] = value or None
    if is_new:
        settings |= {"max_retries": None, "dlq": True}
        if place.is_fifo:
            settings |= {"ordered": True, "dedup_window": "5m"}
    if "RedrivePolicy" in attributes:
        settings |= redriven(place, read_redrive(attributes["RedrivePolicy"]))
        labels |= {TARGET: None, f"{LABEL}RedrivePolicy": attributes["RedrivePolicy"] or None}
    return {**settings, "labels": labels}


def _check_names(place: Place, attributes: Mapping[str, str], is_new: bool) -> None:
    for name, value in attributes.items():
        if name in REFUSED and value.lower() not in ("", "false", "{}"):
            raise Fault("UnsupportedOperation", f"{name} {value!r:.80} is not taken: {REFUSED[name]}")
        if name not in KNOWN or name in COUNTED | (_TOLD - {"FifoQueue"}) | {"All"}:
            raise Fault("InvalidAttributeName", f"unknown attribute {name!r:.80}")
        if name in _FIFO_CHOICES and not place.is_fifo:
            raise Fault("InvalidAttributeName", f"attribute {name} is for FIFO queues, and {place.name!r} is not one")
    fifo = attributes.get("FifoQueue")
    if fifo is not None and (fifo.lower() == "true") != place.is_fifo:
        raise Fault("InvalidParameterValue", f"FifoQueue {fifo!r:.80}; the name {place.name!r} says otherwise")
    if fifo is None and place.is_fifo and is_new:
        raise Fault("InvalidParameterValue", f"the name {place.name!r} ends in .fifo, but FifoQueue is not true")


def _set_number(name: str, number: int, settings: dict[str, Any], labels: dict[str, str | None]) -> None:
    if name == "VisibilityTimeout":
        labels[LABEL + name] = None if number else "0"
        if number:
            settings["visibility"] = number
    elif name == "MessageRetentionPeriod":
        settings |= {"default_ttl": number, "retention": {"hours": number / 3600}}
    else:
        labels[LABEL + name] = None if number == NUMBERS[name][2] else str(number)


def _number(name: str, value: str) -> int:
    low, high, _ = NUMBERS[name]
    if not re.fullmatch(r"[0-9]{1,9}", value) or not low <= int(value) <= high:
        raise Fault("InvalidAttributeValue", f"{name} {value!r:.80}; it takes a whole number from {low} to {high}")
    return int(value)


def _choice(name: str, value: str, allowed: tuple[str, ...]) -> str | None:
    if value not in allowed:
        raise Fault("InvalidAttributeValue", f"{name} {value!r:.80}; it takes {' or '.join(allowed)}")
    return None if value == allowed[0] else value


def tag_labels(tags: Mapping[str, str]) -> dict[str, str | None]:
    for key, value in tags.items():
        if not 1 <= len(key) <= _TAG_KEY_MAX or len(value) > _TAG_MAX:
            why = f"tag {key!r:.200}: {value!r:.80}; it takes a key of 1 to {_TAG_KEY_MAX} and a value of up to"
            raise Fault("InvalidParameterValue", f"{why} {_TAG_MAX} characters")
    return {TAG + key: value for key, value in tags.items()}


# Out


def tags_of(settings: Mapping[str, Any]) -> dict[str, str]:
    return {name[len(TAG) :]: text for name, text in settings["labels"].items() if name.startswith(TAG)}


def shown(place: Place, settings: Mapping[str, Any]) -> dict[str, str]:
    """All attributes but those that are counted. `settings` as a broker answers them."""
    labels: Mapping[str, str] = settings["labels"]
    found = {name: labels.get(LABEL + name, str(usual)) for name, (_, _, usual) in NUMBERS.items()}
    if f"{LABEL}VisibilityTimeout" not in labels:
        found["VisibilityTimeout"] = str(int(settings["visibility"]))
    found["MessageRetentionPeriod"] = str(_kept_seconds(settings))
    found["QueueArn"] = place.arn
    found["SqsManagedSseEnabled"] = "false"
    for name in ("CreatedTimestamp", "LastModifiedTimestamp"):
        found[name] = labels.get(LABEL + name, "0")
    if place.is_fifo:
        found["FifoQueue"] = "true"
        found |= {name: labels.get(LABEL + name, choices[0]) for name, choices in _FIFO_CHOICES.items()}
    redrive = redrive_of(place, settings)
    if redrive is not None:
        found["RedrivePolicy"] = policy_text(redrive, labels.get(f"{LABEL}RedrivePolicy", ""))
    if f"{LABEL}RedriveAllowPolicy" in labels:
        found["RedriveAllowPolicy"] = labels[f"{LABEL}RedriveAllowPolicy"]
    return found


def _kept_seconds(settings: Mapping[str, Any]) -> int:
    """For how long a message that nobody takes stays; of a topic that keeps it for ever, the longest there is."""
    if settings["default_ttl"] is not None:
        return int(settings["default_ttl"])
    return NUMBERS["MessageRetentionPeriod"][1]
