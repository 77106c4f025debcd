"""Where the dead of a queue go: RedrivePolicy and RedriveAllowPolicy, as they are given, heeded and shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from mqueue.model.names import dlq_name
from mqueue.server.http.sqs.errors import Fault
from mqueue.server.http.sqs.naming import Place, place_of_arn

TARGET = "sqs.target"
"""The label of a queue whose dead-letter queue is on another server; see `carrying`."""
_SOURCES_MAX = 10
_RECEIVES_MAX = 1000


class Redrive(Struct, frozen=True):
    """A RedrivePolicy."""

    target: Place
    receives_max: int


class _Policy(Struct):
    dead_letter_target_arn: str = msgspec.field(name="deadLetterTargetArn")
    max_receive_count: int | str = msgspec.field(name="maxReceiveCount", default=10)


class Allowed(Struct, rename="camel"):
    """A RedriveAllowPolicy: whose dead may lie here."""

    redrive_permission: str
    source_queue_arns: list[str] = []

    def allows(self, source: Place) -> bool:
        return self.redrive_permission == "allowAll" or (
            self.redrive_permission == "byQueue" and source in map(place_of_arn, self.source_queue_arns)
        )


_POLICY = msgspec.json.Decoder(_Policy)
_ALLOWED = msgspec.json.Decoder(Allowed)


def read_redrive(text: str) -> Redrive | None:
    """None: there is none any more."""
    if not text:
        return None
    try:
        policy = _POLICY.decode(text)
        receives = int(policy.max_receive_count)
    except (msgspec.MsgspecError, ValueError) as error:
        raise Fault("InvalidParameterValue", f"RedrivePolicy {text!r:.200} cannot be read: {error!s:.200}") from None
    if not 1 <= receives <= _RECEIVES_MAX:
        raise Fault("InvalidParameterValue", f"maxReceiveCount {receives}; it takes 1 to {_RECEIVES_MAX}")
    return Redrive(place_of_arn(policy.dead_letter_target_arn), receives)


def read_allowed(text: str) -> Allowed:
    try:
        allowed = _ALLOWED.decode(text)
    except msgspec.MsgspecError as error:
        why = f"RedriveAllowPolicy {text!r:.200} cannot be read: {error!s:.200}"
        raise Fault("InvalidParameterValue", why) from None
    named = allowed.source_queue_arns
    if allowed.redrive_permission not in ("allowAll", "denyAll", "byQueue"):
        why = f"redrivePermission {allowed.redrive_permission!r:.80}; it takes allowAll, denyAll or byQueue"
        raise Fault("InvalidParameterValue", why)
    if bool(named) != (allowed.redrive_permission == "byQueue") or len(named) > _SOURCES_MAX:
        why = f"{len(named)} sourceQueueArns; byQueue takes 1 to {_SOURCES_MAX}, the others none"
        raise Fault("InvalidParameterValue", why)
    for arn in named:
        place_of_arn(arn)
    return allowed


def redriven(place: Place, policy: Redrive | None) -> dict[str, Any]:
    if policy is None:
        return {"dlq": True, "max_retries": None, "on_failure": "block"}
    target = policy.target
    if target.namespace != place.namespace or target.name == place.name:
        raise Fault("InvalidParameterValue", f"{target.arn} is not another queue of the same account")
    if target.is_fifo != place.is_fifo:
        raise Fault("InvalidParameterValue", "the dead-letter queue of a FIFO queue is one, and of no other")
    on_failure = "skip" if place.is_fifo else "block"
    return {"dlq": target.name, "max_retries": policy.receives_max - 1, "on_failure": on_failure}


def redrive_of(place: Place, settings: Mapping[str, Any]) -> Redrive | None:
    """Where the dead of a topic go, and after how many receives; None: they are tried for ever."""
    if settings["max_retries"] is None or not settings["dlq"]:
        return None
    named = settings["labels"].get(TARGET, settings["dlq"])
    name = named if isinstance(named, str) else dlq_name(place.name)
    return Redrive(Place(place.namespace, name), settings["max_retries"] + 1)


def policy_text(redrive: Redrive, given: str) -> str:
    """As it was given, while that is what holds."""
    told = {"deadLetterTargetArn": redrive.target.arn, "maxReceiveCount": redrive.receives_max}
    return given if given and msgspec.json.decode(given) == told else msgspec.json.encode(told).decode()
