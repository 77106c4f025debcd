"""The journal of virtual shards: what became of their messages, one row for each group commit, and checkpoints.

Only the owner writes, and only where the journal ends: whoever has lost a virtual shard learns of it here. Does not
know what is in a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, LiteralString
from uuid import UUID

from msgspec import Struct

from mqueue.log.postgres.appends import Appended, Sheet, confirmed, placed, sheet_params, surely
from mqueue.log.postgres.arrays import Blobs, Longs
from mqueue.log.postgres.days import dated
from mqueue.log.postgres.link import Link


class Entry(Struct, frozen=True, gc=False):
    """A row of the journal of one virtual shard. `blocks`: (topic, partition, offset // 4096) of what it speaks of."""

    vshard: int
    epoch: int
    seq: int
    at: int
    body: bytes
    blocks: tuple[tuple[int, int, int], ...] = ()


Late = tuple[int, int, int, int, int]
"""(topic, partition, base, count, time in the order) of a frame that stands later in the order than its own time."""

Noted = tuple[int, int, int, int, int, int, int]
"""The same, with the virtual shard and the epoch of who says so before it."""


class Change(Struct, frozen=True, gc=False):
    """What becomes of a topic: new settings, or its end (None). `epoch`: of the owner of its virtual shard."""

    topic: int
    epoch: int
    settings: bytes | None


_RECORD = "select mqueue.record(%b, %b, %b, %b, %b)"
_COMMIT = "select bases, ats from mqueue.commit(%b, %b, %b, %b, %b, %b::bigint, %b, %b)"
_COMMIT_KEYS = "select bases, ats from mqueue.commit(%b, %b, %b, %b, %b, %b::bigint, %b, %b, %b, %b, %b)"
_TOPICS = "select bases, ats from mqueue.commit_topics(%b, %b, %b, %b, %b, %b, %b, %b::bigint, %b, %b)"
_TOPICS_KEYS = "select bases, ats from mqueue.commit_topics(%b, %b, %b, %b, %b, %b, %b, %b::bigint, %b, %b, %b, %b, %b)"


def commit(
    link: Link,
    owner: UUID,
    entries: Sequence[Entry],
    sheets: Sequence[Sheet],
    now: int | None,
    *,
    late: Sequence[Noted] = (),
    changes: Sequence[Change] = (),
    windows: Mapping[int, int] | None = None,
    quorum: bool = False,
) -> list[Appended]:
    """Write down all entries, append the sheets, change the topics, all or nothing. `quorum`: only if a standby
    confirms it. Raises Fenced, and what `append` does.

    The entries of a virtual shard go on where its journal ends, without a gap.
    """
    params = _entry_params(owner, entries, late)
    order, appends = sheet_params(sheets, windows)
    sql: LiteralString
    if changes:
        topics = Longs(number for one in changes for number in (one.topic, one.epoch, one.settings is None))
        settings = Blobs(one.settings or b"" for one in changes)
        sql = _TOPICS if len(appends) == 2 else _TOPICS_KEYS
        params = [topics, settings, *params, now, *appends]
    elif sheets:
        sql = _COMMIT if len(appends) == 2 else _COMMIT_KEYS
        params = [*params, now, *appends]
    elif entries or late:
        sql = _RECORD
    else:
        return []
    rows = dated(link, surely(sql) if quorum else sql, params)
    if quorum:
        confirmed(link, rows)
    found = placed(rows, order) if sheets else []
    assert found is not None, "only a log can have been flushed before"
    return found


def point(link: Link, owner: UUID, vshard: int, epoch: int, seq: int, at: int, body: bytes) -> None:
    """Keep a checkpoint: the state after row `seq`. It and the one before are kept. Raises Fenced."""
    link.call("select mqueue.point(%b, %b, %b, %b, %b, %b)", (owner, epoch, vshard, seq, at, body))


def last_point(link: Link, vshard: int, before: int | None = None) -> tuple[int, bytes] | None:
    """(seq, body) of the newest checkpoint; of the newest below `before`, if that one cannot be read."""
    rows = link.call(
        "select seq, body from mqueue.checkpoints where vshard = %b and seq < coalesce(%b::bigint, 1::bigint << 62) "
        "order by seq desc limit 1",
        (vshard, before),
    )
    return (rows[0][0], rows[0][1]) if rows else None


def entries(link: Link, vshard: int, after: int, limit: int) -> list[tuple[int, int, bytes]]:
    """(seq, at, body) of the rows after one, in order."""
    return _rows(
        link.call(
            "select seq, at, body from mqueue.journal where vshard = %b and seq > %b order by seq limit %b",
            (vshard, after, limit),
        )
    )


def last_seq(link: Link, vshard: int) -> int:
    """Where the journal ends; 0 if nothing was ever written."""
    rows = link.call("select seq from mqueue.last_row(%b)", (vshard,))
    return int(rows[0][0])


def rows_about(
    link: Link, vshard: int, topic: int, partition: int, blocks: Sequence[int]
) -> list[tuple[int, int, bytes]]:
    """(seq, at, body) of the rows that speak of these blocks of offsets, in order."""
    return _rows(
        link.call(
            "select j.seq, j.at, j.body from ("
            "select distinct day, seq from mqueue.journal_index "
            "where topic_id = %b and part = %b and block = any (%b::bigint[])) i "
            "join mqueue.journal j on j.vshard = %b and j.seq = i.seq and j.day = i.day order by j.seq",
            (topic, partition, Longs(blocks), vshard),
        )
    )


def lates(link: Link, topics: Sequence[int]) -> list[Late]:
    """What was written down as late of these topics, in order."""
    rows = link.call(
        "select topic_id, part, base, count, at from mqueue.late where topic_id = any (%b::bigint[]) order by 1, 2, 3",
        (Longs(topics),),
    )
    return [(topic, part, base, count, at) for topic, part, base, count, at in rows]


def _entry_params(owner: UUID, entries: Sequence[Entry], late: Sequence[Noted]) -> list[Any]:
    """Sorted, since locks are taken in this order; those of one virtual shard stay in theirs."""
    numbers, bodies, blocks = Longs(), Blobs(), Longs()
    for number, one in enumerate(sorted(entries, key=lambda one: one.vshard), 1):
        numbers += (one.vshard, one.epoch, one.seq, one.at)
        bodies.append(one.body)
        for block in one.blocks:
            blocks += (number, *block)
    return [owner, numbers, bodies, blocks, Longs(value for one in late for value in one)]


def _rows(rows: list[tuple[Any, ...]]) -> list[tuple[int, int, bytes]]:
    return [(seq, at, body) for seq, at, body in rows]
