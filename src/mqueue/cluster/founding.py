"""The servers of a cluster, looked at when a node starts: their schemas are up to date, and each is in its place.

The first server says which cluster this is, and the others have to agree. At the first start all of them have to be
there; from then on one that cannot be reached is waited for. One that is empty then is not the one that was there.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID, uuid4

from msgspec import Struct

from mqueue.log.postgres import migrate
from mqueue.log.postgres.link import Link
from mqueue.model.errors import BadSetting, ShardDown


class Founded(Struct, frozen=True):
    """`away`: servers, by their number, that could not be reached; each is to be looked at by `check_place` first."""

    cluster: UUID
    away: dict[int, ShardDown]


def found(first: Link, databases: Sequence[str]) -> Founded:
    """`first` is a link to the first of them. Raises BadSetting for what only a user can mend, ShardDown for what may
    pass."""
    migrate.migrate(first)
    cluster, whole = migrate.cluster_of(first), migrate.is_whole(first)
    if cluster is None:
        cluster = _begin(first, databases)
    migrate.assign(first, 0, len(databases), cluster)
    away: dict[int, ShardDown] = {}
    for number, url in enumerate(databases[1:], 1):
        try:
            _look(url, number, len(databases), cluster, whole)
        except ShardDown as problem:
            if not whole:
                raise
            away[number] = problem
    if not whole:
        migrate.is_whole_now(first)
    return Founded(cluster, away)


def check_place(link: Link, number: int, count: int, cluster: UUID, whole: bool = True) -> None:
    """Raises if this is not the server that belongs there."""
    migrate.migrate(link, create=not whole)
    migrate.assign(link, number, count, cluster)


def _begin(first: Link, databases: Sequence[str]) -> UUID:
    """A new cluster, unless the others belong to one: then only the first one is new, and is not to be taken."""
    for number, url in enumerate(databases[1:], 1):
        link = Link(url, f"shard{number}:setup")
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


def _look(url: str, number: int, count: int, cluster: UUID, whole: bool) -> None:
    link = Link(url, f"shard{number}:setup")
    try:
        check_place(link, number, count, cluster, whole)
    finally:
        link.close()
