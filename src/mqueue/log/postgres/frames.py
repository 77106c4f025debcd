"""Frames out of PostgreSQL: heads for who rebuilds the state, bodies for who delivers.

A frame is stored packed, without its place: offset, ids and time are columns and the truth. Days that cannot hold what
is asked for need not be looked at: `since` says from which time on (milliseconds since 1970) it was appended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, LiteralString

from mqueue.log.postgres.arrays import Longs
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.problems import Fenced

HEADS_AT_ONCE = 10_000
_HEAD = "f.base, f.count, f.base_id, f.at, f.size, f.head"


def tails(
    link: Link, places: Sequence[tuple[int, int, int]], limit: int, bodies: bool, since: int = 0
) -> list[tuple[Any, ...]]:
    """(topic, partition, base, count, base_id, at, size, head[, body]) of frames that begin at an offset or later.

    `places`: (topic, partition, offset). At most `limit` of each, in the order of places, then of offsets.
    """
    return link.call(
        f"select k.topic, k.part, {_HEAD}{', f.body' if bodies else ''} "  # noqa: S608 - constants only
        "from unnest(%b::bigint[], %b::bigint[], %b::bigint[]) with ordinality k(topic, part, start, i) "
        "cross join lateral (select * from mqueue.frames f where f.topic_id = k.topic and f.part = k.part "
        "and f.base >= k.start and f.day >= mqueue.day_of(%b) order by f.base limit %b) f order by k.i, f.base",
        (*_columns(places, 3), since, limit),
    )


def heads(link: Link, topic: int, below: bool = False) -> list[tuple[Any, ...]]:
    """(partition, base, count, base_id, at, size, head) of all frames above the floors, in order.

    Those that are kept as well come with `kept_heads`. `below`: all that are left, wherever the floors are.
    """
    return _pages(
        link,
        f"select f.part, {_HEAD} from mqueue.frames f "  # noqa: S608 - constants only
        "left join mqueue.floors o on o.topic_id = f.topic_id and o.part = f.part "
        "left join mqueue.frames_kept k on k.topic_id = f.topic_id and k.part = f.part and k.base = f.base "
        "where f.topic_id = %b and (f.part, f.base) > (%b, %b) "
        "and (%b or f.base + f.count > coalesce(o.floor, 0) and k.base is null) order by f.part, f.base limit %b",
        topic,
        below,
    )


def kept_heads(link: Link, topic: int) -> list[tuple[Any, ...]]:
    """The same of what is kept below the floors."""
    return _pages(
        link,
        f"select f.part, {_HEAD} from mqueue.frames_kept f "  # noqa: S608
        "where f.topic_id = %b and (f.part, f.base) > (%b, %b) order by f.part, f.base limit %b",
        topic,
    )


def _pages(link: Link, sql: LiteralString, topic: int, *params: Any) -> list[tuple[Any, ...]]:
    """All rows of a topic, some at a time: a topic may have millions, and a statement has only so long."""
    found: list[tuple[Any, ...]] = []
    last = (-1, -1)
    while True:
        page = link.call(sql, (topic, *last, *params, HEADS_AT_ONCE))
        found += page
        if len(page) < HEADS_AT_ONCE:
            return found
        last = page[-1][:2]


def floors(link: Link, topic: int) -> dict[int, int]:
    """How far retention went in each partition; those where it never went anywhere are missing."""
    return dict(link.call("select part, floor from mqueue.floors where topic_id = %b and floor > 0", (topic,)))


def ends_kept(link: Link, topic: int) -> list[tuple[int, int]]:
    """(partition, end) of what was dropped: offsets go on there, though no frame tells."""
    rows = link.call("select part, next from mqueue.floors where topic_id = %b order by part", (topic,))
    return [(part, end) for part, end in rows]


def bodies(
    link: Link, topic: int, partition: int, bases: Sequence[int], since: int = 0
) -> list[tuple[int, bytes, bytes]]:
    """(base, head, body) of the frames with these bases, in order: as they are kept, else as they were appended."""
    rows = link.call(
        "select u.base, coalesce(k.head, f.head), coalesce(k.body, f.body) from unnest(%b::bigint[]) u(base) "
        "left join mqueue.frames_kept k on k.topic_id = %b and k.part = %b and k.base = u.base "
        "left join lateral (select f.head, f.body from mqueue.frames f where k.base is null and f.topic_id = %b "
        "and f.part = %b and f.base = u.base and f.day >= mqueue.day_of(%b) limit 1) f on true "
        "where k.base is not null or f.head is not null order by u.base",
        (Longs(bases), topic, partition, topic, partition, since),
    )
    return [(base, head, body) for base, head, body in rows]


def find(link: Link, id: int) -> tuple[int, int, int, int] | None:
    """(topic, partition, offset, virtual shard) of a message; None if it is not here, or was dropped."""
    for topic, part, offset, vshard in link.call(_FIND, (id,) * 8):
        return topic, part, offset, vshard
    return None


_NEAREST = "where base_id > %b - 4096 and base_id <= %b order by base_id desc limit 1) f"
_FOUND = "f.topic_id, f.part, f.base + %b - f.base_id, t.vshard"
_ITS_TOPIC = "join mqueue.topics t on t.topic_id = f.topic_id and t.deleted_at is null"
# Of what lies below a floor and is not kept some may still be there; it counts as dropped.
_FIND = (
    f"(select {_FOUND} from (select * from mqueue.frames_kept {_NEAREST} {_ITS_TOPIC} "  # noqa: S608 - constants only
    "where f.base_id + f.count > %b) union all "
    f"(select {_FOUND} from (select * from mqueue.frames {_NEAREST} {_ITS_TOPIC} "
    "left join mqueue.floors o on o.topic_id = f.topic_id and o.part = f.part "
    "where f.base_id + f.count > %b and f.base + f.count > coalesce(o.floor, 0)) limit 1"
)


def news(link: Link, since_id: int) -> list[tuple[int, int, int]]:
    """(topic, partition, end) of the partitions that got frames with this id or a later one."""
    rows = link.call(
        "select topic_id, part, max(base + count) from mqueue.frames where base_id >= %b group by 1, 2 order by 1, 2",
        (since_id,),
    )
    return [(topic, part, end) for topic, part, end in rows]


def ends(link: Link, places: Sequence[tuple[int, int]], owned: tuple[int, int] | None = None) -> list[int]:
    """The next offset of each (topic, partition). Raises Fenced if they are of a virtual shard that is not here, or not
    owned any more at an epoch."""
    vshard, epoch = owned or (None, None)
    rows = link.call(
        "select greatest(tip.next, o.next, 0) "
        "from unnest(%b::bigint[], %b::bigint[]) with ordinality k(topic, part, i) "
        "cross join lateral mqueue.tip(k.topic::int, k.part::int) tip "
        "left join mqueue.floors o on o.topic_id = k.topic and o.part = k.part "
        "where %b::bigint is null or exists (select from mqueue.vshards v "
        "where v.vshard = %b::bigint and v.owner_epoch = %b::bigint and v.state = 'active') order by k.i",
        (*_columns(places, 2), vshard, vshard, epoch),
    )
    if len(rows) < len(places):
        raise Fenced(f"virtual shard {vshard} is owned by another")
    return [end for (end,) in rows]


def _columns(rows: Sequence[tuple[int, ...]], width: int) -> list[Longs]:
    return [Longs(row[column] for row in rows) for column in range(width)]
