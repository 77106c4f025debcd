"""The schema of a shard: numbered files of SQL, each run once, in order, each in a transaction of its own.

Several nodes may start at once: one runs a file, the others find that it was run. A schema that is newer than this
version of mqueue is left alone.
"""

from __future__ import annotations

from importlib.resources import files
from uuid import UUID

from mqueue.log.postgres.link import Link
from mqueue.log.postgres.problems import Outrun, Rejected
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
insert into mqueue.meta (key, value) values ('schema', '{version}')
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
        try:
            link.script(_BEFORE.format(before=version) + scripts[version + 1] + _AFTER.format(version=version + 1))
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
    if version > needed:
        raise BadSetting(
            f"the schema of {link.server} is of version {version}; this mqueue knows {needed}: run a newer mqueue"
        )
    if version < needed:
        found = f"is of version {version}" if version else "is not there"
        raise BadSetting(f"the schema of {link.server} {found}; this mqueue needs {needed}: migrate it first")
    return version


def assign(link: Link, shard: int, shards: int, cluster: UUID) -> None:
    """Tell a server its place: `shard` of `shards`. At its first start it gets its virtual shards; later it must agree.

    Raises BadSetting if it has another place, or belongs to another cluster.
    """
    if not 0 <= shard < shards <= VIRTUAL_SHARDS:
        raise BadSetting(f"shard {shard} of {shards}; there are 1 to {VIRTUAL_SHARDS}, counted from 0")
    rows = link.call("select mqueue.assign(%b, %b, %b, %b)", (shard, shards, cluster, VIRTUAL_SHARDS))
    place = rows[0][0]
    if place["cluster"] != str(cluster):
        raise BadSetting(f"{link.server} belongs to cluster {place['cluster']}, not to {cluster}")
    if (place["shard"], place["shards"]) != (shard, shards):
        raise BadSetting(
            f"{link.server} is shard {place['shard']} of {place['shards']}, not {shard} of {shards}: "
            "the database URLs are those of the first start, in the same order"
        )


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
    except Rejected as problem:
        raise BadSetting(problem.message) from None
    rows = link.call("select (value #>> '{}')::int from mqueue.meta where key = 'schema'")
    return int(rows[0][0]) if rows else 0


def cluster_of(link: Link) -> UUID | None:
    """The cluster that a server belongs to; None: to none yet."""
    rows = link.call("select value ->> 'cluster' from mqueue.meta where key = 'place'")
    return UUID(rows[0][0]) if rows else None


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
