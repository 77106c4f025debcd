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


class Appended(Struct, frozen=True, gc=False):
    """Where a sheet went, and when. Base -1: it was there already."""

    base: int
    at: int


SHEET_PARAMS = (
    "%b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], "
    "%b::bytea[], %b::bytea[], "
    "%b::bigint[], %b::bigint[], %b::bytea[], %b::bytea[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[]"
)
"""Of `sheet_params`, as they stand in a statement."""

_APPEND = f"select bases, ats from mqueue.append(%b::bigint, %b::uuid, %b, %b, %b, {SHEET_PARAMS})"  # noqa: S608 - constants only


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
    milliseconds a claim on a key holds; for ever if it is not named. Raises Moved, NoTopic, Taken, Flushed.
    """
    if not sheets and wal is None:
        return []
    log, start, stop = wal or (None, 0, 0)
    rows = dated(link, _APPEND, (now, log, start, stop, once, *sheet_params(sheets, windows)))
    return appended(rows)


def sheet_params(sheets: Sequence[Sheet], windows: Mapping[int, int] | None) -> tuple[Any, ...]:
    keys = [(number, *key) for number, sheet in enumerate(sheets, 1) for key in sheet.keys]
    windows = windows or {} if keys else {}
    return (
        Longs(sheet.vshard for sheet in sheets),
        Longs(sheet.map_epoch for sheet in sheets),
        Longs(sheet.topic for sheet in sheets),
        Longs(sheet.partition for sheet in sheets),
        Longs(sheet.count for sheet in sheets),
        Longs(sheet.base_id for sheet in sheets),
        Longs(sheet.size for sheet in sheets),
        Blobs(sheet.head for sheet in sheets),
        Blobs(sheet.body for sheet in sheets),
        Longs(key[0] for key in keys),
        Longs(key[1] for key in keys),
        Blobs(key[2] for key in keys),
        Blobs(key[3] for key in keys),
        Longs(key[4] for key in keys),
        Longs(key[5] for key in keys),
        Longs(windows),
        Longs(windows.values()),
    )


def appended(rows: list[tuple[Any, ...]]) -> list[Appended] | None:
    ((bases, ats),) = rows
    return None if bases is None else [Appended(base, at) for base, at in zip(bases, ats, strict=True)]
