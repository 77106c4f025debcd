"""Frames into PostgreSQL: any number of them, of any topics, in one statement that is one transaction.

The server gives offsets and times. Does not know how frames look inside, nor who asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, LiteralString
from uuid import UUID

from msgspec import Struct

from mqueue.log.postgres.arrays import Blobs, Longs
from mqueue.log.postgres.days import dated
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.problems import NoQuorum, lost
from mqueue.model.errors import ShardDown

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
_PLACES: LiteralString = "select bases, ats from"
_PLACES_LSN: LiteralString = "select bases, ats, pg_current_wal_insert_lsn()::text from"


def append(
    link: Link,
    sheets: Sequence[Sheet],
    now: int | None,
    *,
    wal: tuple[UUID, int, int] | None = None,
    once: bool = False,
    windows: Mapping[int, int] | None = None,
    quorum: bool = False,
) -> list[Appended] | None:
    """Append them all, or none. None: this stretch of the log (its uuid, from, to) was flushed before.

    `now`: None for the server's clock. `once`: leave out what is there already. `windows`: of a topic, for how many
    milliseconds a claim on a key holds; for ever if it is not named. `quorum`: only if a standby confirms it. Raises
    Moved, NoTopic, Changed, Taken, Flushed, NoQuorum.
    """
    if not sheets and wal is None:
        return []
    log, start, stop = wal or (None, 0, 0)
    order, params = sheet_params(sheets, windows)
    sql: LiteralString = _APPEND if len(params) == 2 else _APPEND_KEYS
    rows = dated(link, surely(sql) if quorum else sql, (now, log, start, stop, once, *params))
    if quorum:
        confirmed(link, rows)
    return placed(rows, order)


def surely(sql: LiteralString) -> LiteralString:
    """The same statement, refused as a whole unless a standby confirms its commit. Its last column tells how far the
    log of the server went."""
    if _PLACES in sql:
        return sql.replace(_PLACES, _PLACES_LSN) + ", mqueue.check_quorum()"
    return sql + ", mqueue.check_quorum(), pg_current_wal_insert_lsn()::text"


_CONFIRMED = (
    "select mqueue.check_quorum(), not pg_has_role('pg_read_all_stats', 'usage') or exists (select from"
    " pg_stat_replication where sync_state in ('sync', 'quorum') and flush_lsn >= %b::text::pg_lsn)"
)


def confirmed(link: Link, rows: list[tuple[Any, ...]]) -> None:
    """After a commit that a standby was to confirm, and what it answered: the settings may have changed before it, and
    be known only now. And if they have just been made, the server does not wait before its checkpointer has read them,
    whatever they say: so it is asked how far the standbys are, if we may see that.

    By the same session. Whatever goes wrong here, the commit may have been made.
    """
    before = link.backend
    try:
        if not link.call(_CONFIRMED, (rows[0][-1],))[0][1]:
            raise ShardDown("none has it, and the server did not wait")
    except (NoQuorum, ShardDown) as problem:
        raise lost(link.server, f"it is not certain that a standby confirmed the commit: {problem}") from None
    if link.backend != before:
        raise lost(link.server, "the session ended before it was certain that a standby confirmed the commit")


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
    ((bases, ats, *_),) = rows
    if bases is None:
        return None
    found = dict(zip(order, zip(bases, ats, strict=True), strict=True))
    return [Appended(*found[index]) for index in range(len(order))]


def _place(sheet: Sheet) -> tuple[int, int, int]:
    return sheet.vshard, sheet.topic, sheet.partition
