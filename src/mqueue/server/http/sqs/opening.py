"""The queue that a call about messages is about, and the entries of its batch: what is wrong with them as a whole."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from mqueue.broker.overview import settings_of
from mqueue.model.errors import Error
from mqueue.model.settings import Settings
from mqueue.server.http.call import Call
from mqueue.server.http.sqs.attributes import Traits, traits_of
from mqueue.server.http.sqs.errors import Fault, old_code, told
from mqueue.server.http.sqs.naming import Place, place_of
from mqueue.server.security.principal import Verb
from mqueue.wire import json_sqs as wire

BATCH_MAX = 10
_ENTRY_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")


class Queue(Struct):
    """A queue that is there, at the broker that has it."""

    place: Place
    settings: Settings
    traits: Traits
    is_plain: bool
    """A message of nothing but a body is one of nothing but a payload."""


def open_queue(call: Call, url: str, verb: Verb) -> Queue:
    """The queue that a call is about, for who may do that to it. From here on the call is one of its namespace."""
    place = place_of(call, url)
    call.namespace = place.namespace
    call.demand(verb, place.namespace, place.name)
    settings = settings_of(call.behind, place.name)
    if settings is None:
        raise place.absent()
    traits = traits_of(settings.labels)
    return Queue(place, settings, traits, not traits.delay_seconds and not place.is_fifo)


def check_entries(entries: Sequence[Any]) -> None:
    """What is wrong with a batch as a whole."""
    if not entries:
        raise Fault("EmptyBatchRequest", "a batch without entries; it takes at least one")
    if len(entries) > BATCH_MAX:
        raise Fault("TooManyEntriesInBatchRequest", f"{len(entries)} entries in a batch; {BATCH_MAX} are allowed")
    ids = [entry.id for entry in entries]
    for id in ids:
        if _ENTRY_ID.fullmatch(id) is None:
            raise Fault("InvalidBatchEntryId", f"entry id {id!r:.200}; it takes 1 to 80 letters, digits, - and _")
    if len(set(ids)) < len(ids):
        twice = next(id for id in ids if ids.count(id) > 1)
        raise Fault("BatchEntryIdsNotDistinct", f"entry id {twice!r} stands twice")


def failed(id: str, error: Error) -> wire.FailedOut:
    return wire.FailedOut(id, old_code(told(error)[0]), error.message)
