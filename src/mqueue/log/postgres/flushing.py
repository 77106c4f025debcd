"""How far the logs of nodes have been flushed into a server. `append` goes on with it, in the same transaction."""

from __future__ import annotations

from uuid import UUID

from mqueue.log.postgres.link import Link


def flushed(link: Link, wal: UUID) -> int:
    """The position up to which a log is here."""
    rows = link.call(
        "select to_pos from mqueue.flush_progress where wal = %b order by from_pos desc limit 1",
        (wal,),
    )
    return int(rows[0][0]) if rows else 0


def forget_older(link: Link, wal: UUID) -> None:
    """Of the steps that a log was flushed in, only the last is needed."""
    link.call(
        "delete from mqueue.flush_progress where wal = %b "
        "and from_pos < (select max(from_pos) from mqueue.flush_progress where wal = %b)",
        (wal, wal),
    )


def forget(link: Link, wal: UUID) -> None:
    """A log is gone, and nobody has a copy of it."""
    link.call("delete from mqueue.flush_progress where wal = %b", (wal,))
