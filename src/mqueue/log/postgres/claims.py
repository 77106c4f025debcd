"""Idempotency keys that were used: claimed together with their frames, looked up and forgotten here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from mqueue.log.postgres.arrays import Blobs, Longs
from mqueue.log.postgres.link import Link


class Used(Struct, frozen=True, gc=False):
    """What a key was used for. `digest`: of the payload. `made_at`: when its message was appended."""

    id: int
    partition: int
    offset: int
    digest: bytes
    priority: int
    due: int
    made_at: int


def lookup(link: Link, topic: int, keys: Sequence[bytes]) -> dict[bytes, Used]:
    """Those of the keys that were used, whatever the window. None of a topic that is deleted: its claims go later."""
    rows = link.call(
        'select key, id, part, "offset", digest, priority, due, made_at from mqueue.idempotency '
        "where topic_id = %b and key = any (%b) "
        "and (select deleted_at is null from mqueue.topics where topic_id = %b)",
        (topic, Blobs(keys), topic),
    )
    return {row[0]: Used(*row[1:]) for row in rows}


def forget(link: Link, topic: int, over: Mapping[bytes, int]) -> None:
    """Forget claims, by their keys, each only if it is still that of this message: somebody may have made a newer."""
    link.call(
        "delete from mqueue.idempotency c using unnest(%b, %b) gone (key, id) "
        "where c.topic_id = %b and c.key = gone.key and c.id = gone.id",
        (Blobs(over), Longs(over.values()), topic),
    )


def sweep(link: Link, topic: int, before: int, limit: int = 10_000) -> int:
    """Forget the oldest of the claims made before a time, so many at most; how many went."""
    rows = link.call(
        "with gone as (delete from mqueue.idempotency where topic_id = %b and key in ("
        "select key from mqueue.idempotency where topic_id = %b and made_at < %b order by made_at limit %b) "
        "and made_at < %b returning 1) select count(*) from gone",
        (topic, topic, before, limit, before),
    )
    return int(rows[0][0])


def count(link: Link, topic: int, most: int) -> int:
    """How many keys of a topic are used; counted up to so many."""
    rows = link.call(
        "select count(*) from (select from mqueue.idempotency where topic_id = %b limit %b) used", (topic, most)
    )
    return int(rows[0][0])


def page(link: Link, topic: int, after: bytes, limit: int) -> dict[bytes, Used]:
    """The next keys of a topic behind one, in order."""
    rows = link.call(
        'select key, id, part, "offset", digest, priority, due, made_at from mqueue.idempotency '
        "where topic_id = %b and key > %b order by key limit %b",
        (topic, after, limit),
    )
    return {row[0]: Used(*row[1:]) for row in rows}
