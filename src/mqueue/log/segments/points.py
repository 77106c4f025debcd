"""The checkpoint of one topic as bytes: a version, then msgpack.

    0     1
    +-----+------------------------------------------------------------+
    | u8  | {"at": ..., "id": ..., "partitions": [{"next": ..., ...}], |
    | 1   |  ..., "leases": [{..., "runs": [[0, 5, 9, mask, ...]]}]}   |
    +-----+------------------------------------------------------------+

Structs are written with the names of their fields, so a field that has a default can be added without a new version.
Runs are not, as there may be many: what is added to them goes to the end. Masks are written as `mqueue.wire.masks`
says. Has no checksum: a checkpoint is part of a file that has one.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mqueue.heart.checkpoint import PartitionPoint, TopicPoint
from mqueue.heart.runs import Run
from mqueue.model.errors import Corrupt
from mqueue.model.events import Settled
from mqueue.wire.masks import Forms, form_of, marks, mask, spans

VERSION = 1

_MASKS: Forms = {
    (PartitionPoint, "void"): marks,
    (PartitionPoint, "expired"): marks,
    (PartitionPoint, "kept"): marks,
    (Run, "mask"): mask,
    (Settled, "spans"): spans,
}
"""Every field that holds masks."""


def encode(point: TopicPoint) -> bytes:
    return _FRONT + _ENCODER.encode(_FORM.thin(point))


def decode(data: bytes | memoryview) -> TopicPoint:
    if not len(data) or data[0] != VERSION:
        raise Corrupt(f"a checkpoint of version {data[0] if len(data) else 'none'}; this reads version {VERSION}")
    try:
        point = _FORM.thick(_DECODER.decode(data[1:]))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Corrupt(f"{len(data)} bytes are no checkpoint of a topic: {error}") from error
    assert isinstance(point, TopicPoint)
    return point


_FRONT = bytes([VERSION])
_FORM = form_of(TopicPoint, _MASKS, nameless=frozenset({Run}))
_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(_FORM.type)
