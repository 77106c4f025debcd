"""A server joins a cluster: it gets the next place, and nothing to serve yet.

Nodes learn of it from their DATABASE_URLS, one after the other: until all know it nothing is moved there. Each step may
be done twice, so whoever was interrupted begins again.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from mqueue.log.postgres import migrate
from mqueue.log.postgres.link import Link
from mqueue.model.errors import BadSetting


def add(known: Sequence[Link], new: Link) -> int:
    """The place of a new server behind those of a cluster, in their order."""
    cluster = migrate.cluster_of(known[0]) if migrate.version_of(known[0]) else None
    if cluster is None or not migrate.is_whole(known[0]):
        raise BadSetting(f"{known[0].server} belongs to no cluster yet: start a node first", code="no_cluster")
    _check_new(new, cluster)
    for link in known:
        migrate.check(link)
    migrate.migrate(new)
    _check_all(known, cluster, joined=migrate.cluster_of(new) is not None)
    migrate.join(new, len(known), cluster)
    for link in (*known, new):
        migrate.grow(link, len(known) + 1)
    return len(known)


def _check_new(new: Link, cluster: UUID) -> None:
    theirs = migrate.cluster_of(new) if migrate.version_of(new) else None
    if theirs is not None and theirs != cluster:
        raise BadSetting(f"{new.server} belongs to cluster {theirs}, not to {cluster}", code="other_cluster")


def _check_all(known: Sequence[Link], cluster: UUID, *, joined: bool) -> None:
    """Raise unless these are all servers of a cluster, in their order. `joined`: the new one counts already."""
    count = max(migrate.servers(link) for link in known) - joined
    if count > len(known):
        raise BadSetting(
            f"the cluster has {count} servers, and DATABASE_URLS names {len(known)}: name all of them, but for the new"
            " one, which goes behind them afterwards",
            code="servers_missing",
        )
    for place, link in enumerate(known):
        migrate.assign(link, place, len(known), cluster)
