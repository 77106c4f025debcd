"""What a node sees of a shard when it looks, once a second: who is alive, who owns what, what is new, what time it is.

All of it is asked by one thread, on a link of its own, so that nobody else waits when the shard is slow.
"""

from __future__ import annotations

import time
from uuid import UUID

from msgspec import Struct

from mqueue.cluster.time import TRIP_US_MAX
from mqueue.log.postgres import catalog, clock, frames, moving, owning
from mqueue.log.postgres.catalog import TopicRow
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.moving import Row
from mqueue.log.postgres.owning import Session
from mqueue.log.postgres.witness import note_standbys

_NEVER_SECONDS = 60.0


class Owner(Struct, frozen=True):
    """Where a virtual shard lives and who delivers from it; no address: nobody does."""

    map_epoch: int
    epoch: int
    address: str
    owner: UUID | None


class Survey(Struct, frozen=True):
    begun: float
    """When it was begun, by the clock of this machine."""
    alive: list[Session]
    """Who is there."""
    owners: dict[int, Owner]
    """Of the virtual shards that live there."""
    away: list[Row]
    """Of those that come, or have gone."""
    news: list[tuple[int, int, int]]
    """(topic, partition, end)"""
    quorum: bool
    """Whether what is committed there waits for a standby."""
    sampled: tuple[int, int, int]
    """What time it was at the server, how many µs it took to ask, and when the answer came."""

    @property
    def sessions(self) -> dict[UUID, str]:
        """Who is there, and where; "": whoever owns nothing."""
        return {session.owner: session.address for session in self.alive}

    @property
    def next_end(self) -> float:
        """In how many seconds the first of these sessions ends, if it is not renewed."""
        return min((session.left for session in self.alive), default=_NEVER_SECONDS)

    @property
    def server_ms(self) -> int:
        """What time it is at the server by now: whoever reads this may have waited for what was asked after it."""
        at, _, came = self.sampled
        return at + (time.monotonic_ns() - came) // 1_000_000

    @property
    def trip_us(self) -> int:
        return self.sampled[1]


def look(link: Link, since_id: int) -> Survey:
    begun = time.monotonic()
    sampled = clock.sample(link, TRIP_US_MAX)
    owners = _owners(link)
    alive = owning.sessions(link)
    news = frames.news(link, since_id)
    away = moving.rows(link, but_active=True)
    return Survey(begun, alive, owners, away, news, note_standbys(link), sampled)


def glance(link: Link) -> tuple[float, dict[int, Owner], list[Row]]:
    """Only what lives there and who owns it, what comes and what has gone; and when that was begun."""
    begun = time.monotonic()
    return begun, _owners(link), moving.rows(link, but_active=True)


def _owners(link: Link) -> dict[int, Owner]:
    found = owning.owners(link)
    return {vshard: Owner(map_epoch, epoch, where, who) for vshard, map_epoch, epoch, where, who in found}


def topics(link: Link, vshards: list[int]) -> dict[int, list[TopicRow]]:
    """The topics of virtual shards."""
    found: dict[int, list[TopicRow]] = {vshard: [] for vshard in vshards}
    for row in catalog.topics_of(link, vshards):
        found[row.vshard].append(catalog.known_as(row))
    return found
