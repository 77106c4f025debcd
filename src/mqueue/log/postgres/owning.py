"""Who delivers from which virtual shard: sessions that end unless they are renewed, and owners with epochs.

Everything goes by the server's clock. Does not know what an owner does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import LiteralString
from uuid import UUID

from msgspec import Struct

from mqueue.log.postgres.arrays import Longs
from mqueue.log.postgres.link import Link

GREETING: LiteralString = "select mqueue.begin_timeline()"
"""What a node says first on each connection. A server that was promoted, or restored, may lack what nodes have heard of
the one before: by this all sessions and epochs of owners are over there, before a statement of theirs can be done."""


class Session(Struct, frozen=True):
    """`until`: by the server's clock, in µs; `left`: in seconds, when it was asked for."""

    owner: UUID
    address: str
    until: int
    left: float


def beat(link: Link, owner: UUID, node: int, address: str, ms: int) -> bool:
    """Begin a session, or renew it for so long. False: it has ended, and does not begin again."""
    rows = link.call("select mqueue.beat(%b, %b, %b::text, %b)", (owner, node, address, ms))
    return bool(rows[0][0])


def unowned(link: Link) -> list[int]:
    """The virtual shards here whose owner is not alive, or that have none."""
    rows = link.call(
        "select v.vshard from mqueue.vshards v "
        "left join mqueue.sessions s on s.owner = v.owner and s.until > clock_timestamp() "
        "where v.state = 'active' and s.owner is null order by 1"
    )
    return [vshard for (vshard,) in rows]


def owners(link: Link) -> list[tuple[int, int, int, str, UUID | None]]:
    """(virtual shard, map epoch, owner epoch, address, owner) of those here. No owner, no address: nobody is alive."""
    rows = link.call(
        "select v.vshard, v.map_epoch, v.owner_epoch, coalesce(s.address, ''), s.owner from mqueue.vshards v "
        "left join mqueue.sessions s on s.owner = v.owner and s.until > clock_timestamp() "
        "where v.state = 'active' order by 1"
    )
    return [(vshard, map_epoch, epoch, address, owner) for vshard, map_epoch, epoch, address, owner in rows]


def own(link: Link, owner: UUID, vshards: Sequence[int]) -> dict[int, int]:
    """Own those of them that are free, or its own already: of each the new epoch. Nothing if the session has ended.

    Waits for statements of the owner before that are running now.
    """
    return dict(link.call("select v, e from mqueue.own(%b, %b)", (owner, Longs(vshards))))


def owns(link: Link, owner: UUID, vshard: int, epoch: int) -> bool:
    """Whether a virtual shard is here, and still his: what he has read of it before is all that there was."""
    rows = link.call(
        "select 1 from mqueue.vshards where vshard = %b and owner = %b and owner_epoch = %b and state = 'active'",
        (vshard, owner, epoch),
    )
    return bool(rows)


def disown(link: Link, owner: UUID, vshards: Sequence[int]) -> None:
    """Give them back, so that the next one need not wait for the session to end."""
    link.call("select mqueue.disown(%b, %b)", (owner, Longs(vshards)))


def leave_session(link: Link, owner: UUID) -> None:
    """End the session and give back everything it owns."""
    link.call("select mqueue.leave_session(%b)", (owner,))


def alive(link: Link) -> list[tuple[UUID, int, str]]:
    """(owner, node, address) of the sessions that have not ended."""
    rows = link.call(
        "select owner, node, address from mqueue.sessions where until > clock_timestamp() order by node, owner"
    )
    return [(owner, node, address) for owner, node, address in rows]


def sessions(link: Link) -> list[Session]:
    """Those that have not ended."""
    rows = link.call(
        "select owner, address, (extract(epoch from until) * 1000000)::bigint,"
        " extract(epoch from until - clock_timestamp())::float8"
        " from mqueue.sessions where until > clock_timestamp()"
    )
    return [Session(*row) for row in rows]


def end(link: Link, session: Session) -> None:
    """End one, unless it was renewed meanwhile."""
    link.call(
        "update mqueue.sessions set until = clock_timestamp()"
        " where owner = %b and (extract(epoch from until) * 1000000)::bigint = %b",
        (session.owner, session.until),
    )
