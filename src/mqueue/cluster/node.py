"""A node: an estate at every PostgreSQL server, one number for its ids, and a map of who delivers what.

Knows no HTTP: where a request belongs is asked here, how it gets there is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from msgspec import Struct

from mqueue.cluster.atlas import Atlas
from mqueue.cluster.estate import Estate
from mqueue.cluster.founding import Founded, check_place, found
from mqueue.cluster.moving.healing import Healer
from mqueue.cluster.number import NodeNumber
from mqueue.cluster.plan import SESSION_MS, Plan, Seat, Waiting
from mqueue.cluster.rates import SharedRate
from mqueue.cluster.redis.lending import Lender, Lending, rate_pots
from mqueue.cluster.redis.line import Access, Line
from mqueue.cluster.redis.outpost import COPY_MS, NOTHING, NOWHERE, Outpost
from mqueue.cluster.redis.wake import Wake
from mqueue.cluster.shares import SharedQuotas
from mqueue.cluster.sightings import Sightings
from mqueue.cluster.time import ShardClock
from mqueue.cluster.vigil import Vigil
from mqueue.cluster.wal.abroad import Abroad
from mqueue.log.postgres.batch import Arrival
from mqueue.log.postgres.link import Link
from mqueue.model.clock import Clock, SystemClock
from mqueue.model.errors import BadSetting, Unavailable
from mqueue.model.limits import Limits
from mqueue.model.settings import Settings


class Home(Struct, frozen=True):
    """Who delivers from a virtual shard. No address: nobody does just now."""

    estate: Estate
    vshard: int
    address: str
    here: bool


class Node:
    """`databases`: the servers, always in the same order. `address`: where other nodes reach this one.

    `owns` False: it delivers nothing, and only publishes and forwards.
    """

    def __init__(
        self,
        databases: Sequence[str],
        address: str,
        *,
        defaults: Settings,
        limits: Limits,
        owns: bool = True,
        session_ms: int = SESSION_MS,
        poke: Callable[[str, str, str], None],
        clock: Clock | None = None,
        redis: Access = NOWHERE,
        copies_ms: int = COPY_MS,
        waiting: Waiting = Waiting(),  # noqa: B008 - it is frozen
    ) -> None:
        if not databases:
            raise BadSetting("a cluster needs the URL of one database at least")
        self.address = address
        self.quotas = SharedQuotas()
        self.rate = SharedRate()
        self._databases = list(databases)
        self._control = Link(databases[0], "control")
        self._number = NodeNumber(self._control)
        self._defaults = defaults
        self._limits = limits
        self._owns = owns
        self._session_ms = session_ms
        self._poke = poke
        self._clock = clock
        self._redis = redis
        self._copies_ms = copies_ms
        self._waiting = waiting
        self.outpost = NOTHING
        self._lending: Lending | None = None
        self.estates: list[Estate] = []
        self.atlas = Atlas(len(databases))
        self._healer: Healer | None = None
        self._vigil: Vigil | None = None
        self.time: Callable[[], int] = _unknown
        """What the clock of the first server shows: all nodes see the same, whatever clocks they have."""

    def start(self, founded: Founded | None = None) -> None:
        """Look at the servers, unless somebody has (`founded`), take a number, begin to own. If that fails nothing
        stays open. A server of a cluster that was whole once is waited for if it cannot be reached now, all but the
        first."""
        try:
            founded = founded or found(self._control, self._databases)
            self._control.seen = founded.seen[0]
            self.outpost = Outpost(self._redis, founded.cluster, self._copies_ms, self._heard)
            plan = Plan(
                Seat(self._number.take(), self.address if self._owns else "", self._session_ms),
                self._defaults,
                self._limits,
                self.quotas,
                self._number.ids,
                self._clock,
                waiting=self._waiting.of(founded.cluster),
                outpost=self.outpost,
                sightings=Sightings(founded.seen, self.outpost.line),
            )
            for number, url in enumerate(self._databases):
                check = partial(check_place, number=number, count=len(self._databases), cluster=founded.cluster)
                abroad = Abroad(self.atlas, self._databases, founded.seen, self._brought)
                seen = founded.seen[number]
                estate = Estate(
                    url, f"shard{number}", plan, self._poke, check, seen, number, atlas=self.atlas, abroad=abroad
                )
                estate.start(waiting=number in founded.away)
                self.estates.append(estate)
            self.outpost.start()
            first = self.estates[0].clock
            self.time = first.shown if isinstance(first, ShardClock) else first.now
            self._lending = Lending(list(self._lenders(self._number.number)))
            self._lending.start()
            self._healer = Healer(self.atlas, self._databases, founded.seen)
            self._healer.start()
            self._vigil = Vigil(self._databases, founded.seen)
            self._vigil.start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give back what is owned, so that others take over at once."""
        if self._healer is not None:
            self._healer.close()
        if self._lending is not None:
            self._lending.close()
        estates, self.estates = self.estates, []
        if estates:
            with ThreadPoolExecutor(len(estates)) as threads:  # what one server takes its time for waits at no other
                list(threads.map(Estate.close, estates))
        if self._vigil is not None:
            self._vigil.close()
        self.outpost.close()
        self._number.drop()
        self._control.close()

    @property
    def line(self) -> Line:
        """To Redis."""
        return self.outpost.line

    @property
    def answers_early(self) -> bool:
        """Whether a message may have been answered that is in no shard yet."""
        return self._waiting.wal_dir is not None

    def _lenders(self, number: int) -> Iterator[Lender]:
        """Quotas go by the time of the shards, calls by that of the server that is called."""
        yield Lender(self.line, self.quotas, number, self._nodes, self.estates[0].clock.now)
        clock = self._clock or SystemClock()
        yield Lender(self.line, self.rate.buckets, number, self._nodes, clock.now, rate_pots)

    def _nodes(self) -> int:
        return max(estate.nodes for estate in self.estates)

    def _brought(self, place: int, arrivals: list[Arrival]) -> None:
        self.estates[place].brought(arrivals)

    def _heard(self, wake: Wake) -> None:
        for estate in self.estates:
            if estate.name == wake.server:
                estate.heard(wake)

    def home(self, vshard: int) -> Home:
        """Raises Unavailable (`not_owner`) while it moves, ShardDown if it cannot be found."""
        place = self.atlas.map.homes.get(vshard)
        if place is not None:
            estate = self.estates[place]
            owner = estate.owners.get(vshard)
            if owner is not None:
                return Home(estate, vshard, owner.address, owner.address == self.address)
            raise Unavailable(f"virtual shard {vshard} is moving; try again", code="not_owner", retry_after=1)
        raise self.atlas.missing(vshard)

    async def meet(self) -> None:
        """Another node has joined, and answers for messages once all know of it."""
        await asyncio.gather(*(estate.run(estate.meet()) for estate in self.estates))

    def others(self) -> list[str]:
        """Where other nodes are that deliver something."""
        found = {owner.address for estate in self.estates for owner in list(estate.owners.values())}
        return sorted(found - {"", self.address})


def _unknown() -> int:
    raise AssertionError("a node that has not begun knows no time")
