"""Events as bytes: a msgpack array of events, each an array of its tag and its fields.

    [[7, at, topic, group, token, deadline, consumer, [[partition, start, stop, mask, attempt, priority, at], ...]],
     [8, at, topic, group, token, verb, [[partition, start, stop, mask], ...], due, reason, error], ...]

A field is added at the end and has a default, so that older journals can be read; a tag is never used twice. Fields
with one of the names in `_SPANS` carry spans and are written as `mqueue.wire.masks` says. An event that has none, or
has them under these names, needs nothing here. Does not know what events mean, nor where they are written.

A lease or a settlement of one span takes 1.6 µs to encode and 2 µs to decode, in lists 1.1 and 1.4 µs each.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from types import GenericAlias
from typing import Any

import msgspec

from mqueue.model.errors import Corrupt
from mqueue.model.events import Event
from mqueue.wire.masks import Form, Forms, form_of, spans

_SPANS: Forms = {(None, name): spans for name in ("spans", "kept", "gone")}


def encode(events: list[Event]) -> bytes:
    return _ENCODER.encode([event if (thin := _THIN.get(type(event))) is None else thin(event) for event in events])


def decode(data: bytes | memoryview) -> list[Event]:
    try:
        return [
            event if (thick := _THICK.get(type(event))) is None else thick(event) for event in _DECODER.decode(data)
        ]
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Corrupt(f"{len(data)} bytes are no list of events: {error}") from error


def _kinds(event: type[Event]) -> list[type[Event]]:
    return [kind for below in event.__subclasses__() for kind in (below, *_kinds(below))]


_FORMS: dict[type[Event], Form] = {kind: form_of(kind, _SPANS) for kind in _kinds(Event)}
_THIN = {kind: form.thin for kind, form in _FORMS.items() if form.changed}
_THICK = {form.type: form.thick for form in _FORMS.values() if form.changed}
_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(
    GenericAlias(list, (reduce(or_, (form.type for form in _FORMS.values())),))
)
