"""What servers tell of each other and of their standbys: tables that are only added to."""

from __future__ import annotations

from collections.abc import Iterable

from mqueue.log.postgres.link import Link
from mqueue.log.postgres.seen import Sight


def sightings(link: Link) -> list[tuple[int, Sight]]:
    """(shard, the highest that was seen of it), as nodes have noted it here."""
    rows = link.call("select shard, system, max(timeline) from mqueue.sightings group by shard, system")
    return [(shard, Sight(system, timeline)) for shard, system, timeline in rows]


def note_sightings(link: Link, found: Iterable[tuple[int, Sight]]) -> None:
    for shard, sight in found:
        link.call(
            "insert into mqueue.sightings (shard, system, timeline, at) values (%b, %b, %b, mqueue.now_ms())"
            " on conflict do nothing",
            (shard, sight.system, sight.timeline),
        )


def forget_sightings(link: Link) -> None:
    """A shard is founded anew: what was seen of servers before means nothing."""
    link.call("delete from mqueue.sightings")


def note_standbys(link: Link) -> bool:
    """Whether commits wait for a standby; which ones is noted when it changes."""
    return bool(link.call("select mqueue.note_standbys()")[0][0])


def standbys_at(link: Link, at: int) -> list[str]:
    """Those that confirmed commits at a time."""
    rows = link.call("select names from mqueue.standbys where at <= %b order by at desc limit 1", (at,))
    return list(rows[0][0]) if rows else []


def standby_lags(link: Link) -> list[tuple[str, str, str, int | None, float | None]]:
    """Of each standby its name, its state, whether commits wait for it, and by how many bytes and seconds it is behind.

    To whom the server does not show these, there are the names alone.
    """
    rows = link.call(
        "select application_name, coalesce(state, ''), coalesce(sync_state, ''),"
        " pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::bigint, extract(epoch from replay_lag)::float8"
        " from pg_stat_replication order by application_name"
    )
    return [tuple(row) for row in rows]
