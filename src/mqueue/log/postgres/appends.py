"""Frames into PostgreSQL: any number of them, of any topics, in one statement that is one transaction.

The server gives offsets and times. Does not know how frames look inside, nor who asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from msgspec import Struct

from mqueue.log.postgres.arrays import Blobs, Longs
from mqueue.log.postgres.days import dated
from mqueue.log.postgres.link import Link

ANY_VERSION = -1


class Sheet(Struct, frozen=True, gc=False):
    """A frame to be appended: packed, without its place and time."""

    vshard: int
    map_epoch: int
    topic: int
    partition: int
    count: int
    base_id: int
    size: int
    head: bytes
    body: bytes
    keys: tuple[tuple[int, bytes, bytes, int, int], ...] = ()
    """Idempotency keys to be claimed: (row, digest of the key, digest of the payload, priority, due)."""
    version: int = ANY_VERSION
    """Of the topic that it was made for."""


class Appended(Struct, frozen=True, gc=False):
    """Where a sheet went, and when. Base -1: it was there already."""

    base: int
    at: int


_APPEND = "select bases, ats from mqueue.append(%b::bigint, %b::uuid, %b, %b, %b, %b, %b)"
_APPEND_KEYS = "select bases, ats from mqueue.append(%b::bigint, %b::uuid, %b, %b, %b, %b, %b, %b, %b, %b)"


def append(
    link: Link,
    sheets: Sequence[Sheet],
    now: int | None,
    *,
    wal: tuple[UUID, int, int] | None = None,
    once: bool = False,
    windows: Mapping[int, int] | None = None,
) -> list[Appended] | None:
    """Append them all, or none. None: this stretch of the log (its uuid, from, to) was flushed before.

    `now`: None for the server's clock. `once`: leave out what is there already. `windows`: of a topic, for how many
    milliseconds a claim on a key holds; for ever if it is not named. Raises Moved, NoTopic, Changed, Taken, Flushed.
    """
    if not sheets and wal is None:
        return []
    log, start, stop = wal or (None, 0, 0)
    order, params = sheet_params(sheets, windows)
    sql = _APPEND if len(params) == 2 else _APPEND_KEYS
    return placed(dated(link, sql, (now, log, start, stop, once, *params)), order)


def sheet_params(sheets: Sequence[Sheet], windows: Mapping[int, int] | None) -> tuple[list[int], list[Any]]:
    """The sheets as parameters, and in which order. Sorted: whoever appends takes locks in the same order.

    Few and long ones: each parameter costs time, here and on the server.
    """
    order = sorted(range(len(sheets)), key=lambda number: _place(sheets[number]))
    numbers, blobs, keys, digests = Longs(), Blobs(), Longs(), Blobs()
    for number, index in enumerate(order, 1):
        one = sheets[index]
        numbers += (one.vshard, one.map_epoch, one.topic, one.partition, one.count, one.base_id, one.size, one.version)
        blobs += (one.head, one.body)
        for row, key, digest, priority, due in one.keys:
            keys += (number, row, priority, due)
            digests += (key, digest)
    if not keys:
        return order, [numbers, blobs]
    return order, [numbers, blobs, keys, digests, Longs(value for pair in (windows or {}).items() for value in pair)]


def placed(rows: list[tuple[Any, ...]], order: list[int]) -> list[Appended] | None:
    """What the server answered, in the order of the call."""
    ((bases, ats),) = rows
    if bases is None:
        return None
    found = dict(zip(order, zip(bases, ats, strict=True), strict=True))
    return [Appended(*found[index]) for index in range(len(order))]


def _place(sheet: Sheet) -> tuple[int, int, int]:
    return sheet.vshard, sheet.topic, sheet.partition
