"""Virtual shards on their way from one server to another: the statements of both ends.

Rows are read at the source, some at a time, and written at the target by a statement that asks whether it still expects
them. Nothing is locked while the network is read. Does not know in which order all this is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any, LiteralString

from msgspec import Struct

from mqueue.log.postgres import catalog
from mqueue.log.postgres.arrays import Blobs, Longs
from mqueue.log.postgres.days import dated
from mqueue.log.postgres.link import Link

_EPOCH = date(1970, 1, 1)
_END_MS = 5_000
"""So long the end of another's connection is waited for."""
_AWAY, _HERE = 2**32 - 7, 2**32 - 8
"""The locks of those who move something, as `pg_locks` shows -7 and -8."""
_HOLDERS: LiteralString = (
    "from pg_locks l join pg_stat_activity a on a.pid = l.pid where l.locktype = 'advisory' and l.granted "
    "and l.database = (select oid from pg_database where datname = current_database()) "
    "and l.classid = %b::bigint::oid and l.objid = %b::bigint::oid and l.objsubid = 2"
)


class Row(Struct, frozen=True):
    """Where a virtual shard lives, as one server sees it. `to`, `came_from`: places of other servers."""

    vshard: int
    state: str
    map_epoch: int
    owner_epoch: int
    to: int | None
    came_from: int | None
    remains: str
    """Of one that moved away: what lies here still is `needed` until it is active elsewhere, then `free` to go."""


class Left(Struct, frozen=True):
    """A virtual shard that has left its server: the epochs that it goes on with."""

    vshard: int
    map_epoch: int
    owner_epoch: int


class Topic(Struct, frozen=True):
    id: int
    namespace: str
    name: str
    settings: bytes
    first_settings: bytes
    made_at: int
    hidden: bool
    version: int


Place = tuple[int, int, int, int]
"""(topic, partition, base, size) of a frame."""

Tip = tuple[int, int, int]
"""(base, count, first id) of the newest frame of a partition."""

Frame = tuple[Any, ...]
"""(topic, partition, base, count, first id, time, size, head, body)"""


def rows(link: Link, *, but_active: bool = False) -> list[Row]:
    """All virtual shards that a server knows of. `but_active`: without those that live there."""
    found = link.call(
        "select vshard, state, map_epoch, owner_epoch, moved_to::int, moves_from, remains from mqueue.vshards "
        "where not %b or state <> 'active' order by 1",
        (but_active,),
    )
    return [Row(*row) for row in found]


def lock(link: Link) -> bool:
    """Be the one who moves something away from a server, for as long as this connection lasts."""
    return bool(link.call("select pg_try_advisory_lock(-7, 0)")[0][0])


def follow(link: Link) -> bool:
    """The same, and end the connection of whoever is it now. Whether that went well."""
    _end(link, _AWAY, 0)
    return lock(link)


def succeed(link: Link, source: int) -> bool:
    """Be the one who brings something from a source to this server, for as long as this connection lasts. For whoever
    has the lock of the source: the connection of one who had it before is ended first, and with it what he may still
    be about to write. Whether that went well."""
    taken: LiteralString = "select pg_try_advisory_lock(-8, %b::int)"
    if link.call(taken, (source,))[0][0]:
        return True
    _end(link, _HERE, source)
    return bool(link.call(taken, (source,))[0][0])


def are_still(link: Link, ms: int, source: int | None = None) -> bool:
    """Whether a server has waited for so long for whoever moves something away from it, or brings something to it from
    a source. Also if there is nobody."""
    busy: LiteralString = (
        " and (a.wait_event_type is distinct from 'Client' "
        "or a.state_change > clock_timestamp() - %b * interval '1 ms')"
    )
    which = (_AWAY, 0) if source is None else (_HERE, source)
    return not link.call("select 1 " + _HOLDERS + busy, (*which, ms))


def _end(link: Link, lock: int, number: int) -> None:
    link.call("select pg_terminate_backend(l.pid, %b) " + _HOLDERS, (_END_MS, lock, number))


def is_locked(link: Link) -> bool:
    """Whether somebody is moving something away from a server."""
    return not link.call("select pg_try_advisory_xact_lock_shared(-7, 0)")[0][0]


# Steps


def empty(link: Link, vshards: Sequence[int]) -> list[int]:
    """Those of them that have nothing to be copied."""
    rows = link.call(
        "select v from unnest(%b::bigint[]) v where mqueue.is_empty(v) order by 1",
        (Longs(vshards),),
    )
    return [vshard for (vshard,) in rows]


def expect(link: Link, vshards: Sequence[int], source: int) -> list[int]:
    """Let them come from a server; which of them may."""
    return _numbers(link.call("select mqueue.expect(%b, %b)", (Longs(vshards), source)))


def refuse(link: Link, vshards: Sequence[int]) -> list[int]:
    """Let them not come after all; which of them were about to. What was copied goes by `clear`."""
    return _numbers(link.call("select mqueue.refuse(%b)", (Longs(vshards),)))


def barrier(link: Link, vshard: int) -> int:
    """Wait for what is being appended; the time from which on everything else is."""
    return int(link.call("select mqueue.barrier(%b)", (vshard,))[0][0])


def leave(link: Link, vshards: Sequence[int], target: int, *, only_empty: bool = False) -> list[Left]:
    """From now on nothing is appended or committed here. Those that were not active, or not empty, stay as they are."""
    found = link.call("select v, map, own from mqueue.leave(%b, %b, %b)", (Longs(vshards), target, only_empty))
    return [Left(*row) for row in found]


def activate(link: Link, left: Sequence[Left]) -> list[int]:
    """They live here now; which of them were expected."""
    numbers = Longs(number for one in left for number in (one.vshard, one.map_epoch, one.owner_epoch))
    return _numbers(link.call("select mqueue.activate(%b)", (numbers,)))


def release(link: Link, left: Sequence[Left]) -> None:
    """Their new place has everything: what is here may go, unless they have been here again since."""
    link.call(
        "update mqueue.vshards s set remains = 'free' from unnest(%b::bigint[], %b::bigint[]) u(v, map) "
        "where s.vshard = u.v and s.map_epoch = u.map and s.state = 'moved' and s.remains = 'needed'",
        (Longs(one.vshard for one in left), Longs(one.map_epoch for one in left)),
    )


def clear(link: Link, vshard: int, limit: int) -> bool:
    """Remove what may go, so many rows of each kind at most. Whether there is more."""
    return bool(link.call("select mqueue.clear(%b, %b)", (vshard, limit))[0][0])


def leftovers(link: Link) -> list[int]:
    """The virtual shards of which something may go."""
    return _numbers(
        link.call("select vshard from mqueue.vshards where state = 'moved' and remains = 'free' order by 1")
    )


def weight(link: Link) -> tuple[int, int]:
    """How many messages lie above the floors at a server, and how many bytes its frames and journals take."""
    rows = link.call(
        "select coalesce(sum(pg_total_relation_size(i.inhrelid)), 0)::bigint from pg_inherits i "
        "where i.inhparent in ('mqueue.frames'::regclass, 'mqueue.journal'::regclass, 'mqueue.journal_index'::regclass)"
    )
    return messages(link, [row.id for row in catalog.topics_of(link, None)]), int(rows[0][0])


def messages(link: Link, topics: Sequence[int]) -> int:
    """How many of these topics lie above the floors."""
    below = {(row[0], row[1]): row[2] for row in floors(link, topics)}
    return sum(end - below.get(place, 0) for place, end in ends(link, topics).items())


# Topics


def topics(link: Link, vshard: int) -> list[Topic]:
    found = link.call(
        "select topic_id, namespace, name, settings, first_settings, made_at, hidden, version from mqueue.topics "
        "where vshard = %b and deleted_at is null order by 1",
        (vshard,),
    )
    return [Topic(*row) for row in found]


def take_topics(link: Link, vshard: int, topics: Sequence[Topic]) -> None:
    """Raises Moved, TopicTaken."""
    numbers = Longs(number for one in topics for number in (one.id, one.made_at, int(one.hidden), one.version))
    names = [name for one in topics for name in (one.namespace, one.name)]
    settings = Blobs(data for one in topics for data in (one.settings, one.first_settings))
    link.call("select mqueue.take_topics(%b, %b, %b::text[], %b)", (vshard, numbers, names, settings))


# Frames


def tips(link: Link, topics: Sequence[int]) -> dict[tuple[int, int], Tip]:
    """By topic and partition, the newest frame; those that have none are missing."""
    found = link.call(
        "with recursive k as ("
        "select t as topic, n.part from unnest(%b::bigint[]) t cross join lateral "
        "(select f.part from mqueue.frames f where f.topic_id = t order by f.part limit 1) n "
        "union all select k.topic, n.part from k cross join lateral "
        "(select f.part from mqueue.frames f where f.topic_id = k.topic and f.part > k.part order by f.part limit 1) n"
        ") select k.topic, k.part, f.base, f.count, f.base_id from k cross join lateral "
        "(select base, count, base_id from mqueue.frames f where f.topic_id = k.topic and f.part = k.part "
        "order by f.base desc limit 1) f",
        (Longs(topics),),
    )
    return {(topic, part): (base, count, base_id) for topic, part, base, count, base_id in found}


def ends(link: Link, topics: Sequence[int]) -> dict[tuple[int, int], int]:
    """By topic and partition, where frames end; those that have none are missing."""
    return {place: base + count for place, (base, count, _) in tips(link, topics).items()}


def frames_at(link: Link, places: Sequence[tuple[int, int, int]]) -> dict[tuple[int, int], Tip]:
    """The frames that begin at these places (topic, partition, base), as `tips` tells them."""
    found = link.call(
        "select f.topic_id, f.part, f.base, f.count, f.base_id "
        "from unnest(%b::bigint[], %b::bigint[], %b::bigint[]) k(topic, part, base) join mqueue.frames f "
        "on f.topic_id = k.topic and f.part = k.part and f.base = k.base",
        tuple(Longs(place[column] for place in places) for column in range(3)),
    )
    return {(topic, part): (base, count, base_id) for topic, part, base, count, base_id in found}


def frames(link: Link, starts: Sequence[tuple[int, int, int]], limit: int, bytes_max: int) -> list[Frame]:
    """Those that begin at an offset or later, or reach beyond it, in order: so many of each (topic, partition, offset),
    and so many bytes and one more of all."""
    return link.call(
        "select topic, part, base, count, base_id, at, size, head, body from ("
        "select k.topic, k.part, k.i, f.*, sum(f.size) over (order by k.i, f.base) - f.size as before "
        "from unnest(%b::bigint[], %b::bigint[], %b::bigint[]) with ordinality k(topic, part, start, i) "
        "cross join lateral (select f.base, f.count, f.base_id, f.at, f.size, f.head, f.body from mqueue.frames f "
        "where f.topic_id = k.topic and f.part = k.part and f.base > k.start - 4096 and f.base + f.count > k.start "
        "order by f.base limit %b) f) f where before < %b order by i, base",
        (*(Longs(start[column] for start in starts) for column in range(3)), limit, bytes_max),
    )


def kept_frames(link: Link, places: Sequence[Place]) -> list[Frame]:
    """What is kept below floors at these places."""
    return link.call(
        "select f.topic_id, f.part, f.base, f.count, f.base_id, f.at, f.size, f.head, f.body "
        "from unnest(%b::bigint[], %b::bigint[], %b::bigint[]) k(topic, part, base) join mqueue.frames_kept f "
        "on f.topic_id = k.topic and f.part = k.part and f.base = k.base",
        tuple(Longs(place[column] for place in places) for column in range(3)),
    )


def take_frames(link: Link, vshard: int, frames: Sequence[Frame], *, kept: bool = False) -> None:
    numbers = Longs(number for frame in frames for number in frame[:7])
    blobs = Blobs(data for frame in frames for data in frame[7:])
    dated(link, "select mqueue.take_frames(%b, %b, %b, %b)", (vshard, numbers, blobs, kept))


def kept(link: Link, topics: Sequence[int]) -> dict[tuple[int, int, int], tuple[int, int, int]]:
    """(size, count, first id) of what is kept below floors, by topic, partition and base."""
    found = link.call(
        "select topic_id, part, base, size + length(head), count, base_id from mqueue.frames_kept "
        "where topic_id = any (%b::bigint[])",
        (Longs(topics),),
    )
    return {row[:3]: row[3:] for row in found}


def floors(link: Link, topics: Sequence[int]) -> list[tuple[int, ...]]:
    """(topic, partition, floor, next, time)"""
    return link.call(
        "select topic_id, part, floor, next, at from mqueue.floors where topic_id = any (%b::bigint[])",
        (Longs(topics),),
    )


def late(link: Link, topics: Sequence[int]) -> list[tuple[int, ...]]:
    return link.call(
        "select topic_id, part, base, count, at from mqueue.late where topic_id = any (%b::bigint[])", (Longs(topics),)
    )


def take_floors(
    link: Link,
    vshard: int,
    topics: Sequence[int],
    kept: Sequence[tuple[int, ...]],
    floors: Sequence[tuple[int, ...]],
    late: Sequence[tuple[int, ...]],
) -> None:
    """All floors of these topics, what is kept below them (topic, partition, base) and what came late: nothing else."""
    lists = [Longs(number for row in rows for number in row) for rows in (kept, floors, late)]
    link.call("select mqueue.take_floors(%b, %b, %b, %b, %b)", (vshard, Longs(topics), *lists))


# The journal


def journal(link: Link, vshard: int, after: int, limit: int, bytes_max: int) -> list[tuple[int, int, int, int, bytes]]:
    """(sequence, epoch, time, day, body) of the rows after one: so many, or so many bytes and one more."""
    found = link.call(
        "select seq, epoch, at, day, body from ("
        "select *, sum(length(body)) over (order by seq) - length(body) as before from ("
        "select * from mqueue.journal where vshard = %b and seq > %b order by seq limit %b) j) j "
        "where before < %b order by seq",
        (vshard, after, limit, bytes_max),
    )
    return [(seq, epoch, at, (day - _EPOCH).days, body) for seq, epoch, at, day, body in found]


def last_row(link: Link, vshard: int) -> tuple[int, int, int]:
    """(sequence, epoch, time) of the newest row; zeros: there is none."""
    found = link.call(
        "select seq, epoch, at from mqueue.journal where vshard = %b order by seq desc limit 1", (vshard,)
    )
    return (found[0][0], found[0][1], found[0][2]) if found else (0, 0, 0)


def has_row(link: Link, vshard: int, row: tuple[int, int, int]) -> bool:
    """Whether there is just this one."""
    found = link.call(
        "select 1 from mqueue.journal where vshard = %b and seq = %b and epoch = %b and at = %b", (vshard, *row)
    )
    return bool(found)


def take_journal(
    link: Link,
    vshard: int,
    entries: Sequence[tuple[int, int, int, int, bytes]],
    blocks: Sequence[tuple[int, int, int, int]],
) -> None:
    """`blocks`: the number of the entry, from 1, topic, partition, block."""
    params = (
        vshard,
        Longs(number for entry in entries for number in entry[:4]),
        Blobs(entry[4] for entry in entries),
        Longs(number for block in blocks for number in block),
    )
    dated(link, "select mqueue.take_journal(%b, %b, %b, %b)", params)


def points(link: Link, vshard: int) -> dict[int, int]:
    """The times of checkpoints, by the row that they come after."""
    return dict(link.call("select seq, at from mqueue.checkpoints where vshard = %b", (vshard,)))


def point(link: Link, vshard: int, seq: int) -> tuple[int, bytes] | None:
    """(time, body); None: it is gone."""
    found = link.call("select at, body from mqueue.checkpoints where vshard = %b and seq = %b", (vshard, seq))
    return (found[0][0], found[0][1]) if found else None


def take_point(link: Link, vshard: int, seq: int, at: int, body: bytes, there: Sequence[int]) -> None:
    link.call("select mqueue.take_point(%b, %b, %b, %b, %b)", (vshard, seq, at, body, Longs(there)))


# Idempotency keys


def keyed(link: Link, topics: Sequence[int], since: int) -> list[int]:
    """The topics that have keys which were made at a time or later."""
    return _numbers(
        link.call(
            "select t from unnest(%b::bigint[]) t where exists ("
            "select from mqueue.idempotency i where i.topic_id = t and i.made_at >= %b) order by 1",
            (Longs(topics), since),
        )
    )


def keys(link: Link, topic: int, since: int, after: bytes, limit: int) -> list[tuple[Any, ...]]:
    """(topic, id, partition, offset, priority, due, made_at, key, digest), those made at a time behind a key, then
    later ones."""
    return link.call(
        'select topic_id, id, part, "offset", priority, due, made_at, key, digest from mqueue.idempotency '
        "where topic_id = %b and made_at >= %b and (made_at > %b or key > %b) order by made_at, key limit %b",
        (topic, since, since, after, limit),
    )


def take_keys(link: Link, vshard: int, keys: Sequence[tuple[Any, ...]]) -> None:
    numbers = Longs(number for key in keys for number in key[:7])
    link.call("select mqueue.take_keys(%b, %b, %b)", (vshard, numbers, Blobs(data for key in keys for data in key[7:])))


def drop_keys(link: Link, vshard: int, topic: int, keys: Sequence[bytes]) -> None:
    link.call(
        "delete from mqueue.idempotency where topic_id = %b and key = any (%b) "
        "and exists (select from mqueue.vshards where vshard = %b and state = 'incoming')",
        (topic, Blobs(keys), vshard),
    )


# Transactions


def transactions(link: Link, vshard: int) -> list[tuple[str, str, int, int]]:
    """(namespace, name, where it is staged, when it was begun) of those that a virtual shard keeps."""
    found = link.call(
        "select namespace, name, vshard, at from mqueue.transactions where mqueue.vshard_of(namespace, name) = %b",
        (vshard,),
    )
    return [(namespace, name, home, at) for namespace, name, home, at in found]


def take_transactions(link: Link, vshard: int, found: Sequence[tuple[str, str, int, int]]) -> None:
    numbers = Longs(number for one in found for number in one[2:])
    names = [name for one in found for name in one[:2]]
    link.call("select mqueue.take_transactions(%b, %b, %b::text[])", (vshard, numbers, names))


def _numbers(found: list[tuple[Any, ...]]) -> list[int]:
    return [number for (number,) in found]
