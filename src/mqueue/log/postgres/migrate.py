"""The schema of a shard: numbered files of SQL, each run once, in order, each in a transaction of its own.

Several nodes may start at once: one runs a file, the others find that it was run. A schema that is newer than this
version of mqueue is left alone, and worked with if it says that it can be: see `living`. No file is run under nodes at
work that could not live with it.
"""

from __future__ import annotations

from importlib.resources import files
from uuid import UUID

from mqueue.log.postgres import living
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.problems import Outrun, Rejected, Stranger
from mqueue.model.errors import BadSetting
from mqueue.policy.routing import VIRTUAL_SHARDS

_FOLDER = files("mqueue.log.postgres") / "migrations"

# Under a lock, and only if nobody else was quicker.
_BEFORE = """
select pg_advisory_xact_lock(-5, 0);
do $$
declare
  version int := 0;
begin
  if to_regclass('mqueue.meta') is not null then
    select (value #>> '{{}}')::int into version from mqueue.meta where key = 'schema';
  end if;
  if version <> {before} then
    raise exception 'the schema is at version %', version using errcode = 'MQ007';
  end if;
end $$;
"""
_AFTER = """
insert into mqueue.meta (key, value) values ('schema', '{version}'), ('schema_nodes', '[{version}, {nodes}]')
  on conflict (key) do update set value = excluded.value;
"""


def latest() -> int:
    """The version of the schema that this code works with."""
    return max(_scripts())


def migrate(link: Link, *, create: bool = True) -> list[int]:
    """Bring the schema up to date; the versions that were applied. `create`: also where there is none at all."""
    scripts, applied = _scripts(), []
    while (version := version_of(link)) < max(scripts):
        if version == 0 and not create:
            raise BadSetting(f"{link.server} has no schema mqueue: it is not the server that was there before")
        least = living.needed(scripts, version + 1)
        if version:
            _check_running(link, version + 1, least)
        after = _AFTER.format(version=version + 1, nodes=least)
        try:
            link.script(_BEFORE.format(before=version) + scripts[version + 1] + after)
        except Outrun:
            continue
        except BadSetting as problem:  # this user may not
            found = f"is of version {version}" if version else "is not there"
            raise BadSetting(
                f"the schema of {link.server} {found}, and this mqueue needs {max(scripts)}: run `mqueue migrate` with"
                f" the URL of a user who may change it ({problem.message})"
            ) from None
        applied.append(version + 1)
    check(link)
    return applied


def check(link: Link) -> int:
    """The version of the schema; raises if this code cannot work with it."""
    version, needed = version_of(link), latest()
    if version > needed and nodes_of(link) > needed:
        raise BadSetting(
            f"the schema of {link.server} is of version {version}; this mqueue knows {needed}: run a newer mqueue",
            code="schema_too_new",
        )
    if version < needed:
        found = f"is of version {version}" if version else "is not there"
        raise BadSetting(f"the schema of {link.server} {found}; this mqueue needs {needed}: migrate it first")
    return version


def to_do(version: int) -> list[int]:
    """The versions that are still to be applied to a schema."""
    return [number for number in sorted(_scripts()) if number > version]


def least(version: int) -> int:
    """What nodes have to know to live with a version of the schema that this code knows."""
    return living.needed(_scripts(), version)


def _check_running(link: Link, version: int, least: int) -> None:
    old = living.too_old(living.running(link), least)
    if old:
        raise BadSetting(
            f"{link.server} cannot be brought to version {version} while there is {', '.join(map(str, old))}: it takes"
            f" nodes that know {least}. Stop them first",
            code="nodes_too_old",
        )


def assign(link: Link, shard: int, shards: int, cluster: UUID) -> None:
    """Tell a server its place: `shard` of `shards`. At its first start it gets its virtual shards; later it must agree.
    Servers that joined since may be missing: whoever knows the others serves what those have.

    Raises BadSetting if it has another place, or belongs to another cluster.
    """
    if not 0 <= shard < shards <= VIRTUAL_SHARDS:
        raise BadSetting(f"shard {shard} of {shards}; there are 1 to {VIRTUAL_SHARDS}, counted from 0")
    rows = link.call("select mqueue.assign(%b, %b, %b, %b)", (shard, shards, cluster, VIRTUAL_SHARDS))
    place = rows[0][0]
    if place["cluster"] != str(cluster):
        raise BadSetting(f"{link.server} belongs to cluster {place['cluster']}, not to {cluster}")
    least, most = place["shards"], max(place["shards"], servers(link))
    if place["shard"] != shard or not least <= shards <= most:
        raise BadSetting(
            f"{link.server} is shard {place['shard']} of {most}, not {shard} of {shards}: the database URLs are those"
            " of the first start, in the same order, and after them those that `mqueue shards add` was given"
        )


def join(link: Link, shard: int, cluster: UUID) -> None:
    """Give a new server a place, and no virtual shards. Raises BadSetting if it has another place, or cluster."""
    if not 0 < shard < VIRTUAL_SHARDS:
        raise BadSetting(f"shard {shard}; there are at most {VIRTUAL_SHARDS}, counted from 0")
    place = link.call("select mqueue.join_cluster(%b, %b)", (shard, cluster))[0][0]
    if place["cluster"] != str(cluster):
        raise BadSetting(f"{link.server} belongs to cluster {place['cluster']}, not to {cluster}")
    if place["shard"] != shard:
        raise BadSetting(f"{link.server} is shard {place['shard']} of this cluster already, not {shard}")


def grow(link: Link, servers: int) -> None:
    """Tell a server how many there are by now."""
    link.call("select mqueue.grow(%b)", (servers,))


def servers(link: Link) -> int:
    """How many servers there are, as far as this one was told since it got its place; 0: nothing was said."""
    rows = link.call("select (value #>> '{}')::int from mqueue.meta where key = 'servers'")
    return int(rows[0][0]) if rows else 0


def _scripts() -> dict[int, str]:
    return {
        int(file.name.removesuffix(".sql")): file.read_text(encoding="utf-8")
        for file in _FOLDER.iterdir()
        if file.name.endswith(".sql")
    }


def version_of(link: Link) -> int:
    """Of the schema; 0: there is none. Raises BadSetting if the server does not let us in."""
    try:
        if link.call("select to_regclass('mqueue.meta') is null")[0][0]:
            return 0
    except (Rejected, Stranger) as problem:
        raise BadSetting(problem.message) from None
    rows = link.call("select (value #>> '{}')::int from mqueue.meta where key = 'schema'")
    return int(rows[0][0]) if rows else 0


def nodes_of(link: Link) -> int:
    """What nodes have to know to work with the schema that is there, as who made it has said of just this version."""
    rows = link.call("select value from mqueue.meta where key = 'schema_nodes'")
    version = version_of(link)
    return int(rows[0][0][1]) if rows and rows[0][0][0] == version else version


def cluster_of(link: Link) -> UUID | None:
    """The cluster that a server belongs to; None: to none yet."""
    rows = link.call("select value ->> 'cluster' from mqueue.meta where key = 'place'")
    return UUID(rows[0][0]) if rows else None


def place_of(link: Link) -> int | None:
    """The place of a server in its cluster; None: it has none yet."""
    rows = link.call("select (value ->> 'shard')::int from mqueue.meta where key = 'place'")
    return int(rows[0][0]) if rows else None


def is_whole(link: Link) -> bool:
    """Whether all servers of the cluster have had their places. Only the first one knows."""
    return bool(link.call("select 1 from mqueue.meta where key = 'whole'"))


def is_whole_now(link: Link) -> None:
    link.call("insert into mqueue.meta (key, value) values ('whole', 'true') on conflict do nothing")


def secret_of(link: Link, fresh: bytes) -> bytes:
    """What all nodes of a cluster share, and nobody else: `fresh` if there was none before."""
    link.call(
        "insert into mqueue.meta (key, value) values ('secret', to_jsonb(%b::text)) on conflict do nothing",
        (fresh.hex(),),
    )
    rows = link.call("select value #>> '{}' from mqueue.meta where key = 'secret'")
    return bytes.fromhex(rows[0][0])
