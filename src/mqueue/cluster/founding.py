"""The servers of a cluster, looked at when a node starts: their schemas are up to date, and each is in its place.

The first server says which cluster this is, and the others have to agree. At the first start all of them have to be
there; from then on one that cannot be reached is waited for. One that is empty then is not the one that was there.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID, uuid4

from msgspec import Struct

from mqueue.log.postgres import migrate, witness
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.seen import Seen, Sight
from mqueue.model.errors import BadSetting, ShardDown


class Founded(Struct, frozen=True):
    """`away`: servers, by their number, that could not be reached; each is to be looked at by `check_place` first."""

    cluster: UUID
    away: dict[int, ShardDown]
    seen: list[Seen]
    """Of each shard, what was seen of the servers that hold it."""


def found(first: Link, databases: Sequence[str]) -> Founded:
    """`first` is a link to the first of them. Raises BadSetting for what only a user can mend, ShardDown for what may
    pass."""
    seen = [first.seen, *(Seen() for _ in databases[1:])]
    migrate.migrate(first)
    cluster, whole = migrate.cluster_of(first), migrate.is_whole(first)
    if cluster is None:
        cluster = _begin(first, databases, seen)
    migrate.assign(first, 0, len(databases), cluster)
    _learn(first, 0, seen, whole)
    away: dict[int, ShardDown] = {}
    for number, url in enumerate(databases[1:], 1):
        try:
            _look(Link(url, f"shard{number}:setup", seen=seen[number]), number, cluster, whole, seen)
        except ShardDown as problem:
            if not whole:
                raise
            away[number] = problem
    first.reach()  # others may have told of a later one
    if not whole:
        migrate.is_whole_now(first)
    return Founded(cluster, away, seen)


def check_place(link: Link, number: int, count: int, cluster: UUID, whole: bool = True) -> None:
    """Raises if this is not the server that belongs there."""
    migrate.migrate(link, create=not whole)
    migrate.assign(link, number, count, cluster)


def _begin(first: Link, databases: Sequence[str], seen: Sequence[Seen]) -> UUID:
    """A new cluster, unless the others belong to one: then only the first one is new, and is not to be taken."""
    for number, url in enumerate(databases[1:], 1):
        link = Link(url, f"shard{number}:setup", seen=seen[number])
        try:
            if migrate.version_of(link) and (other := migrate.cluster_of(link)) is not None:
                if migrate.cluster_of(first) == other:  # somebody was quicker
                    return other
                raise BadSetting(
                    f"{link.server} belongs to cluster {other}, but {first.server}, which is named first, to none: the"
                    " database URLs are those of the first start, in the same order"
                )
        finally:
            link.close()
    with suppress(BadSetting):  # somebody was quicker; what he made of it is judged by whoever called
        migrate.assign(first, 0, len(databases), uuid4())
    cluster = migrate.cluster_of(first)
    assert cluster is not None, "it has its place now"
    return cluster


def _look(link: Link, number: int, cluster: UUID, whole: bool, seen: Sequence[Seen]) -> None:
    try:
        check_place(link, number, len(seen), cluster, whole)
        _learn(link, number, seen, whole)
    finally:
        link.close()


def _learn(link: Link, number: int, seen: Sequence[Seen], whole: bool) -> None:
    """What a server knows of the others. When a cluster is founded, or one of its shards anew, that is nothing."""
    if not whole:
        witness.forget_sightings(link)
        return
    for shard, sight in witness.sightings(link):
        if shard < len(seen) and shard != number:
            _check(seen[shard], shard, sight, link.server)


def _check(seen: Seen, shard: int, sight: Sight, said_by: str) -> None:
    found = seen.sight
    if found is not None and found.system != sight.system:
        raise BadSetting(
            f"shard {shard} is PostgreSQL system {found.system}, but {said_by} has seen {sight.system} there: it is"
            f" another server, or was made anew; if that is meant, stop all nodes and delete the rows of shard {shard}"
            " from mqueue.sightings at the others"
        )
    seen.learn(sight)
