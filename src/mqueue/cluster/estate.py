"""What a node has at one PostgreSQL server: a session, the virtual shards it owns, and a mouth to publish through.

It lives in a thread with an event loop of its own, so that a server in trouble holds up nobody else: what is read there
may wait for the server. Nothing in here is asked from elsewhere but through `run`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import uvloop

from mqueue.broker.engine import Engine
from mqueue.broker.views import Views
from mqueue.cluster import census, survey, tenure
from mqueue.cluster.arriving import Arriving
from mqueue.cluster.atlas import Atlas
from mqueue.cluster.breaker import Breaker
from mqueue.cluster.buffer import Buffer
from mqueue.cluster.catalog import ShardCatalog
from mqueue.cluster.committer import Committer
from mqueue.cluster.crossing import Crossing, Undo
from mqueue.cluster.errands import Errands
from mqueue.cluster.glances import Glances
from mqueue.cluster.holding import Holding
from mqueue.cluster.meters import Meters
from mqueue.cluster.mouth import Mouth
from mqueue.cluster.plan import Plan
from mqueue.cluster.problems import doubtful
from mqueue.cluster.pulse import Pulse
from mqueue.cluster.redis.wake import Wake
from mqueue.cluster.repeats import Repeats
from mqueue.cluster.rounds import Rounds
from mqueue.cluster.survey import Owner
from mqueue.cluster.takeovers import Takeovers, recovered
from mqueue.cluster.telling import Telling
from mqueue.cluster.tenure import Tenure
from mqueue.cluster.time import ShardClock
from mqueue.cluster.tokens import token_epoch
from mqueue.cluster.topics import Topics
from mqueue.cluster.wal.abroad import Abroad
from mqueue.cluster.wal.copies import Copies
from mqueue.cluster.wal.flush import Flush
from mqueue.cluster.wal.wal import Logs, opened
from mqueue.heart.far import FAR_MS
from mqueue.heart.heart import Heart
from mqueue.log.postgres import frames, living, migrate, owning
from mqueue.log.postgres.batch import Arrival
from mqueue.log.postgres.cache import Cache
from mqueue.log.postgres.link import Link, SharedLink
from mqueue.log.postgres.log import PostgresLog
from mqueue.log.postgres.seen import Seen
from mqueue.model.clock import Clock
from mqueue.model.errors import Error, Refused, Unavailable
from mqueue.model.ident import EPOCH_MS
from mqueue.policy.retry import JITTER_MAX
from mqueue.policy.routing import virtual_shard
from mqueue.store.shard import ShardStore
from mqueue.store.store import Store
from mqueue.store.tokens import Tokens

LOGGER = logging.getLogger("mqueue.cluster")
T = TypeVar("T")

_CHANCE = random.Random(os.urandom(16))  # noqa: S311 - spreads retries, guards nothing
_NEWS_MS = 15_000
"""What was appended within this time is looked for again: commits are seen in another order than their ids are."""
_CACHE_BYTES = 256 << 20
_READY_SECONDS = 3.0
"""So long a node that starts waits for what it takes over; what takes longer goes on behind it."""
_LEAVE_SECONDS = 2.0
"""So long the last commit of a virtual shard may take that is given away: the session must not end meanwhile."""


class Estate:
    """`poke` tells another node, by its address, that something was appended to a topic of a namespace. It waits for
    nothing. `check` looks whether the server is the one that belongs here, before it is used at all. `seen`: what is
    known of the servers that hold the shard, which is the `number`th. `atlas`: what all estates of the node know of who
    has what. `abroad` takes what lies in the log of the node for topics that have moved to other servers."""

    def __init__(
        self,
        dsn: str,
        name: str,
        plan: Plan,
        poke: Callable[[str, str, str], None],
        check: Callable[[Link], None],
        seen: Seen | None = None,
        number: int = 0,
        *,
        atlas: Atlas | None = None,
        abroad: Abroad | None = None,
    ) -> None:
        self.name = name
        self.seen = seen = seen or Seen()
        self._number = number
        self._atlas = atlas or Atlas()
        self._abroad_log = abroad
        self._generation = 0
        self._quorum = False
        self.meters = Meters()
        self.holdings: dict[int, Holding] = {}
        self._plan = plan
        self._check = check
        self._checked = False
        """Whether the server was there since we began, and is the right one: from then on there is a beat."""
        self._joined = False
        """Whether we know what is there."""
        self._manual = plan.clock
        self._shard_clock = ShardClock()
        self.clock: Clock = plan.clock or self._shard_clock
        hello = owning.GREETING
        self.reader, self._scout = (SharedLink(dsn, f"{name}:{what}", seen, hello) for what in ("read", "scout"))
        beat = living.beat_name(name, migrate.latest(), plan.seat.address)
        self._line = Link(dsn, beat, plan.seat.session_ms, seen=seen, greeting=hello)  # a slower one is of no use
        self._commits, self._appends, self._flushes = (
            Link(dsn, f"{name}:{what}", seen=seen, greeting=hello) for what in ("commit", "append", "flush")
        )
        self.annex = plan.outpost.annex(name)
        self._cache = Cache(_CACHE_BYTES, self.annex)
        self._homes: dict[int, int] = {}
        """Of each topic that we heard of, its virtual shard."""
        self._errand = Errands(name, 2)
        self._looks = Errands(f"{name}-look")
        self._loads = Errands(f"{name}-load", 2)
        """One for what is taken over in the background, one for what is asked for."""
        asked = (self._line, self._scout, self._looks)
        self._tenure = Tenure(
            name, plan.seat, *asked, lambda vs: self._takeovers.want(vs), self._not_ours, self._give, self.meters
        )
        self._pulse = Pulse(name, self._tenure.beat, self._soon, self._was_beaten)
        self._takeovers = Takeovers(name, self.holdings, self._tenure.mine, self._load)
        self._arriving = Arriving(self.holdings, self._homes, self.reader, self._errand, self._passed)
        self._topics = Topics(self.holdings, self._homes, self.reader, self._errand)
        here = (self._arriving, self.holdings, self._homes, self._tenure)
        self._telling = Telling(*here, self.annex, poke, self.reader, self._errand)
        self._wal: Logs | None = None
        """The log of this node, or who looks after those of others; neither without Redis."""
        self._tasks: set[asyncio.Future[None]] = set()
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._crossing = Crossing(self.loop)
        self._thread = threading.Thread(target=self._live, name=f"mqueue-estate-{name}", daemon=True)

    # From other threads

    def start(self, waiting: bool = False) -> None:
        """Begin to work. `waiting`: as soon as the server is there; else raises if it cannot be reached."""
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._begin(waiting), self.loop).result()
        except BaseException:
            self._stop_thread()
            raise

    def close(self) -> None:
        """Give everything back, so that others need not wait for the session to end."""
        try:
            asyncio.run_coroutine_threadsafe(self._end(), self.loop).result()
        finally:
            self._stop_thread()

    def run(self, work: Coroutine[Any, Any, T], undo: Undo[T] | None = None) -> Coroutine[Any, Any, T]:
        """Do something in the loop of this estate. Who is cancelled meanwhile cancels it; if it was too late for that,
        `undo` gets what it gave."""
        return self._crossing.run(work, undo)

    @property
    def takes(self) -> bool:
        """Whether messages can be published to this server, as far as we know."""
        now, beaten_at = time.monotonic(), self.meters.beaten_at
        if not self._joined or not beaten_at or now - beaten_at >= self._plan.seat.session_ms / 1000:
            return False
        return not self.mouth.breaker.rests(now)  # after that somebody has to come, or it would rest for ever

    @property
    def lives(self) -> bool:
        return self._thread.is_alive()

    @property
    def owned(self) -> int:
        """How many virtual shards are ours."""
        return len(self._tenure.mine)

    def look_soon(self) -> None:
        """Something is not where it was."""
        self._soon(self._glances.stir)

    def heard(self, wake: Wake) -> None:
        """Another node says that it has appended something."""
        self._soon(self._telling.hear, wake, self._begin_task)

    def _soon(self, call: Callable[..., None], *args: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(call, *args)

    def _live(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()

    def _stop_thread(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self._pulse.close()
        for errands in (self._errand, self._looks, self._loads):
            errands.close()
        for link in (self.reader, self._scout, self._line):
            link.close()

    # In the loop

    async def _begin(self, waiting: bool) -> None:
        self._glances = Glances(self._atlas, self._number, self._tenure, self.reader, self._errand)
        self._atlas.on_stir(self.look_soon)
        self._committer = Committer(self._commits, lambda: self._tenure.owner, self.stamp, self._were_lost, self.meters)
        self._rounds = Rounds(
            self.name,
            self.holdings,
            self.clock,
            self.reader,
            self._errand,
            self._committer.ask,
            self._were_lost,
        )
        self.mouth = self._make_mouth()
        if not waiting:
            await self._join()
            await self._takeovers.quiet(_READY_SECONDS)
        self._begin_task(self._look_around())
        self._begin_task(self._glances.walk())

    async def _join(self) -> None:
        if not self._checked:
            await self._looks(self._check, self._scout)
            await self._looks(self._tenure.beat)
            self._checked = True
            self._pulse.start()
        await self._look()
        if self._plan.outpost.line.configured:
            self._wal = self._open_wal()
            self.mouth.gate.intake = self._wal.intake
            self._begin_task(self._wal.run())
        self._joined = True
        self._begin_task(self._rounds.walk(lambda: self._tenure.owner))

    async def _end(self) -> None:
        self._tenure.closing = True
        self._pulse.stop()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._takeovers.close()
        await self._give(list(self.holdings), "the node is closing")
        self._committer.close()
        if self._wal is not None:
            await self._wal.close()
        self.mouth.close()
        await self._tenure.end()

    def _begin_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stamp(self) -> int | None:
        """The time for what is appended; None: the server's."""
        return None if self._manual is None else self._manual.now()

    def _passed(self, at: int) -> None:
        """Something was appended at a time: the clock is not behind that."""
        if self._manual is None:
            self._shard_clock.not_before(at)

    def _was_beaten(self) -> None:
        """Nothing else decides when the session has ended."""
        self._tenure.check()
        self._notice()

    async def _look_around(self) -> None:
        trouble = ""
        while True:
            pause, self._tenure.next_look = self._tenure.next_look, tenure.BEAT_SECONDS
            await self._tenure.pause(pause)
            trouble = await self._tried(self._look() if self._joined else self._join(), trouble)
            if trouble:
                self._tenure.next_look = tenure.SEARCH_SECONDS
            self._notice()

    def _notice(self) -> None:
        """Another server is the primary, or the same one has started again: publishers need not wait any longer."""
        if self._generation != self.seen.generation:
            self._generation = self.seen.generation
            self.mouth.breaker.renewed()

    async def _tried(self, work: Coroutine[Any, Any, None], told: str) -> str:
        """Do something that is done again if it fails. What went wrong, to be said once: `told` was."""
        try:
            await work
        except Error as problem:
            if problem.message != told:
                LOGGER.warning("%s: %s", self.name, problem)
            return problem.message
        except Exception:
            LOGGER.exception("%s: a look at the shard failed", self.name)
        return ""

    async def _look(self) -> None:
        """See who owns what, begin to take what should be ours, learn what others have done."""
        sightings = self._plan.sightings
        if sightings is not None:
            await self._looks(sightings.look, self._number, self._scout)
        found = await self._tenure.look(self._since())
        if found is None:
            return
        if not self._shard_clock.set(found.server_ms, found.trip_us) and not self._shard_clock.is_set:
            raise Unavailable("the clock of the shard takes too long to be read", code="shard_slow", retry_after=1)
        self._quorum = found.quorum
        self._glances.believe(found.owners, found.away, found.begun)
        await self._tenure.settle(found)
        self._takeovers.again()
        await self._arriving.look(found.news, self._tenure.others)
        await self._topics.look(self.mouth)

    def _since(self) -> int:
        if not self._shard_clock.is_set:
            return 1 << 62
        slot = max(0, self.clock.now() - EPOCH_MS - _NEWS_MS)
        return slot << 22

    async def refresh(self, holding: Holding) -> None:
        """Take in what other nodes have appended by now, and let time pass: who was answered there is seen here, and
        before what is due only now.

        What we have published ourselves, dead letters for one, is seen when it has its place.
        """
        if self._tenure.others or holding.behind:
            await self._arriving.catch_up(holding)
        self._rounds.tick(holding)
        if holding.log.promised:
            await holding.placed()

    async def meet(self) -> None:
        """Another node has joined: from now on we look for what it appends."""
        if self._joined:
            await self._tenure.meet()

    async def everything(self) -> dict[int, Holding | None]:
        """All virtual shards that are ours; see `census`."""
        mine, topics_of = self._tenure.mine, partial(self._errand, survey.topics, self.reader)
        return await census.everything(
            mine, self.holdings, topics_of, self.holding, self._follow_news, self._rounds.tick
        )

    async def _follow_news(self) -> None:
        behind = self._tenure.others or any(holding.behind for holding in self.holdings.values())
        if self._tenure.mine and behind:
            await self._arriving.follow(await self._errand(frames.news, self.reader, self._since()))

    # Owned virtual shards

    @property
    def nodes(self) -> int:
        """How many are alive at this server."""
        return self._tenure.nodes

    @property
    def owners(self) -> dict[int, Owner]:
        """As far as we know: who delivers from which of the virtual shards that live here."""
        return self._tenure.owners

    async def holding(self, vshard: int) -> Holding:
        """A virtual shard that is ours, taken over if need be. Raises Unavailable if it is not."""
        return await self._takeovers.get(vshard)

    async def _load(self, vshard: int, epoch: int) -> Holding:
        begun = time.monotonic()
        log = PostgresLog(self.reader, vshard, self._cache)
        log.horizon = self.clock.now() + FAR_MS
        holding = Holding(vshard, epoch, log, self._committer.ask, self._epoch_of, self._arriving.take)
        state = await self._loads(recovered, log)
        holding.point_seq, holding.point_at = log.point_seq, self.clock.now()
        ours = await self._errand(owning.owns, self.reader, self._tenure.owner, vshard, epoch)
        if not ours or self._tenure.mine.get(vshard) != epoch:
            raise Unavailable(f"virtual shard {vshard} went to another node or server", code="not_owner")
        log.started(state)
        holding.store = ShardStore(
            log,
            ShardCatalog(self.reader, self.stamp, vshard),
            owner=True,
            ids=self._plan.ids,
            tokens=Tokens(token_epoch(vshard, epoch), os.urandom),
            jitter=partial(_CHANCE.uniform, -JITTER_MAX, JITTER_MAX),
            defaults=self._plan.defaults,
            limits=self._plan.limits,
            homes=self._homes,
            heart=Heart(state),
        )
        holding.store.abroad = self._abroad
        self._homes.update(dict.fromkeys(state.topics, vshard))
        holding.engine = Engine(holding.store, self.clock, self._plan.quotas, holding.gate)
        holding.views = Views(holding.engine)
        holding.changed = self.mouth.forget
        holding.gate.quorum = lambda: self._quorum
        holding.engine.start()
        self.holdings[vshard] = holding
        await self._arriving.catch_up(holding)
        holding.curb()
        self.meters.takeovers += 1
        self.meters.takeover_seconds += time.monotonic() - begun
        return holding

    def _not_ours(self, vshard: int, why: str) -> None:
        self._lose(vshard, Unavailable(f"virtual shard {vshard}: {why}; try again", code="not_owner"))

    async def _give(self, vshards: Sequence[int], why: str) -> None:
        """Others shall deliver from them: what was begun is finished before."""
        told = Unavailable(f"{why}; try again", code="not_owner")
        given = [self.holdings[vshard] for vshard in vshards if vshard in self.holdings]
        await asyncio.gather(*(holding.leave(told, _LEAVE_SECONDS) for holding in given))
        for holding in given:
            if self.holdings.get(holding.vshard) is holding:
                del self.holdings[holding.vshard]

    def _lose(self, vshard: int, why: Error) -> None:
        holding = self.holdings.pop(vshard, None)
        if holding is not None:
            holding.lose(why, doubtful(why))

    def _were_lost(self, holdings: list[Holding]) -> None:
        for holding in holdings:
            self.holdings.pop(holding.vshard, None)
        self._tenure.own_again([holding.vshard for holding in holdings])

    # Publishing

    def _make_mouth(self) -> Mouth:
        log = PostgresLog(self.reader, -1, self._cache)
        buffer = Buffer(self.meters, self._plan.waiting.length_max, self._plan.waiting.bytes_max)
        breaker = Breaker(self.meters, self._appends.server)
        mouth = Mouth(self._appends, log, self.stamp, self._epoch_of, self._telling.tell, self.meters, buffer, breaker)
        mouth.store = ShardStore(
            log,
            ShardCatalog(self.reader, self.stamp),
            owner=False,
            ids=self._plan.ids,
            tokens=Tokens(0, os.urandom),
            jitter=lambda: 0.0,
            defaults=self._plan.defaults,
            limits=self._plan.limits,
            homes=self._homes,
        )
        repeats = Repeats(self._homes, self._tenure, self.holding, self._committer.ask, self._begin_task)
        mouth.store.repeated, mouth.store.repeats = repeats.happened, repeats.check
        mouth.engine = Engine(mouth.store, self.clock, self._plan.quotas, mouth.gate)
        mouth.views = Views(mouth.engine)
        self._telling.mouth = mouth
        return mouth

    def _open_wal(self) -> Logs:
        return opened(
            self._plan.waiting.place(self.name),
            Copies(self._plan.outpost.line, self.name),
            Flush(self._flushes, self.stamp, self._epoch_of, self.meters, self._abroad_log),
            self.mouth,
            self.meters,
            self.clock.now,
            lambda: self._tenure.owner,
            self._telling.tell,
            self._telling.tell_unknown,
        )

    def brought(self, arrivals: list[Arrival]) -> None:
        """Another estate has appended something here. Called by any thread."""
        self._soon(lambda: self._begin_task(self._telling.tell_brought(arrivals)))

    def _abroad(self, namespace: str, name: str) -> Store:
        """The store that knows the topics of this server, whoever delivers them."""
        if virtual_shard(namespace, name) not in self.owners:
            raise Refused(
                f"topic {name!r:.80} lives on another server; what is to happen in one commit has to share one",
                code="elsewhere",
            )
        return self.mouth.store

    def _epoch_of(self, vshard: int) -> int:
        """One that is not here has none that the shard would take."""
        owner = self.owners.get(vshard)
        return -1 if owner is None else owner.map_epoch
