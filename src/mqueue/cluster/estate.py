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
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar
from uuid import uuid4

import msgspec

from mqueue.broker.engine import Engine
from mqueue.cluster import survey
from mqueue.cluster.catalog import ShardCatalog
from mqueue.cluster.committer import Committer
from mqueue.cluster.holding import Holding
from mqueue.cluster.mouth import Mouth
from mqueue.cluster.plan import Plan
from mqueue.cluster.problems import doubtful
from mqueue.cluster.rounds import Rounds
from mqueue.cluster.survey import SESSION_MS, Owner, Survey
from mqueue.cluster.time import ShardClock
from mqueue.cluster.tokens import token_epoch
from mqueue.heart.heart import Heart
from mqueue.log.postgres import catalog, frames, owning
from mqueue.log.postgres.batch import Arrival
from mqueue.log.postgres.cache import Cache
from mqueue.log.postgres.link import Link, SharedLink
from mqueue.log.postgres.log import PostgresLog
from mqueue.model.clock import Clock
from mqueue.model.errors import Error, Refused, Unavailable
from mqueue.model.events import Duplicated
from mqueue.model.ident import EPOCH_MS
from mqueue.policy.retry import JITTER_MAX
from mqueue.policy.routing import virtual_shard
from mqueue.policy.spread import share
from mqueue.store.recover import recover
from mqueue.store.shard import ShardStore
from mqueue.store.store import Store
from mqueue.store.tokens import Tokens

LOGGER = logging.getLogger("mqueue.cluster")
T = TypeVar("T")

BEAT_SECONDS = 1.0
_NEWS_MS = 15_000
"""What was appended within this time is looked for again: commits are seen in another order than their ids are."""
_CACHE_BYTES = 256 << 20
_TAIL_FRAMES = 1_000


class Estate:
    """`poke` tells another node, by its address, that something was appended to a topic of a namespace. It waits for
    nothing."""

    def __init__(self, dsn: str, name: str, plan: Plan, poke: Callable[[str, str, str], None]) -> None:
        self.name = name
        self.owners: dict[int, Owner] = {}
        """As far as we know: who delivers from which of the virtual shards that live here."""
        self.holdings: dict[int, Holding] = {}
        self._trouble = ""
        """Why the last look at the server failed: told once."""
        self._plan = plan
        self._poke = poke
        self.owner = uuid4()
        self._manual = plan.clock
        self._shard_clock = ShardClock()
        self.clock: Clock = plan.clock or self._shard_clock
        self.reader = SharedLink(dsn, f"{name}:read")
        self._scout = SharedLink(dsn, f"{name}:scout")
        self._commits = Link(dsn, f"{name}:commit")
        self._appends = Link(dsn, f"{name}:append")
        self._cache = Cache(_CACHE_BYTES)
        self._homes: dict[int, int] = {}
        """Of each topic that we heard of, its virtual shard."""
        self._mine: dict[int, int] = {}
        """The virtual shards that we own, with their epochs; an engine is made when one is needed."""
        self._loading: dict[int, asyncio.Future[Holding]] = {}
        self._errands = ThreadPoolExecutor(2, thread_name_prefix=f"mqueue-{name}")
        self._beaten_at = 0.0
        self._closing = False
        self._others = False
        """Whether other nodes are there."""
        self._tasks: list[asyncio.Task[None]] = []
        self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._live, name=f"mqueue-estate-{name}", daemon=True)

    # From other threads

    def start(self) -> None:
        """Begin to work. Raises if the server cannot be reached."""
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._begin(), self.loop).result()
        except BaseException:
            self._stop_thread()
            raise

    def close(self) -> None:
        """Give everything back, so that others need not wait for the session to end."""
        try:
            asyncio.run_coroutine_threadsafe(self._end(), self.loop).result()
        finally:
            self._stop_thread()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something in the loop of this estate. Who is cancelled meanwhile cancels it."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    def _live(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()

    def _stop_thread(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self._errands.shutdown(wait=True)
        for link in (self.reader, self._scout):
            link.close()

    # In the loop

    async def _begin(self) -> None:
        self._committer = Committer(self._commits, self.owner, self.stamp, self._were_lost)
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
        await self._look()
        self._tasks = [
            asyncio.create_task(self._beat(), name="mqueue-beat"),
            asyncio.create_task(self._rounds.walk(lambda: self.owner), name="mqueue-rounds"),
        ]

    async def _end(self) -> None:
        self._closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for vshard in list(self.holdings):
            self._lose(vshard, Unavailable("the node is closing", code="not_owner"))
        self._committer.close()
        self.mouth.close()
        try:
            await self._errand(owning.leave_session, self._scout, self.owner)
        except Error as problem:
            LOGGER.warning("%s: the session could not be ended: %s", self.name, problem)

    def stamp(self) -> int | None:
        """The time for what is appended; None: the server's."""
        return None if self._manual is None else self._manual.now()

    async def _errand(self, call: Callable[..., T], *args: Any) -> T:
        """Something that waits for the server, done by a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._errands, call, *args)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            try:
                await self._look()
                self._trouble = ""
            except Error as problem:
                if problem.message != self._trouble:
                    LOGGER.warning("%s: %s", self.name, problem)
                self._trouble = problem.message
            except Exception:
                LOGGER.exception("%s: a look at the shard failed", self.name)
            if self._beaten_at + SESSION_MS / 1000 < time.monotonic():
                self._doubt("no beat reached the shard in time")

    async def _look(self) -> None:
        """Renew the session, see who owns what, take what should be ours, learn what others have done."""
        found = await self._errand(
            survey.look, self._scout, self.owner, self._plan.seat.node, self._plan.seat.address, self._since()
        )
        if not found.alive:
            self._doubt("the session has ended")
            return
        self._beaten_at = found.begun
        if not self._shard_clock.set(found.server_ms, found.trip_us) and not self._shard_clock.is_set:
            raise Unavailable("the clock of the shard cannot be read: it takes too long", code="shard_slow")
        self.owners = found.owners
        self._others = len(found.sessions) > 1
        self._tasks = [task for task in self._tasks if not task.done()]
        for vshard in [vshard for vshard in self._mine if found.owners[vshard].owner != self.owner]:
            self._forget(vshard, "another node owns it now")
        await self._settle_shares(found)
        await self._follow(found.news)
        await self._look_at_topics()

    async def _look_at_topics(self) -> None:
        """Other nodes change and delete topics that we publish to."""
        known = self.mouth.store.state.topics
        rows = {row.id: row for row in await self._errand(catalog.rows_of, self.reader, list(known))} if known else {}
        for topic in list(known.values()):
            row = rows.get(topic.id)
            if row is None or row.settings != msgspec.msgpack.encode(topic.settings):
                self.mouth.forget(topic.id)

    def _since(self) -> int:
        if not self._shard_clock.is_set:
            return 1 << 62
        slot = max(0, self.clock.now() - EPOCH_MS - _NEWS_MS)
        return slot << 22

    async def _settle_shares(self, found: Survey) -> None:
        free = [
            vshard for vshard, owner in found.owners.items() if owner.owner is None or self._is_stray(vshard, owner)
        ]
        sessions = sorted(found.sessions)
        rank = sessions.index(self.owner) if self.owner in sessions else 0
        wanted = share(list(self._mine), free, len(found.owners), len(sessions), rank)
        if wanted.give:
            for vshard in wanted.give:
                self._forget(vshard, "it goes to another node")
            await self._errand(owning.disown, self._scout, self.owner, wanted.give)
        if wanted.take:
            taken = await self._errand(owning.own, self._scout, self.owner, wanted.take)
            for vshard, epoch in taken.items():
                self._mine[vshard] = epoch
                before = found.owners[vshard]
                self.owners[vshard] = Owner(before.map_epoch, epoch, self._plan.seat.address, self.owner)
            topics = await self._errand(survey.topics, self.reader, list(taken))
            for vshard, rows in topics.items():
                if rows:
                    await self._try_load(vshard)

    def _is_stray(self, vshard: int, owner: Owner) -> bool:
        """Whether it is ours, and we do not know it: a commit failed, and so did owning it again."""
        return owner.owner == self.owner and vshard not in self._mine

    async def _try_load(self, vshard: int) -> None:
        try:
            await self.holding(vshard)
        except Error as problem:
            LOGGER.warning("%s: virtual shard %d could not be taken over: %s", self.name, vshard, problem)

    async def _follow(self, news: list[tuple[int, int, int]]) -> None:
        """Take in what others have appended and nobody told us of."""
        await self._hear_of({topic for topic, _, _ in news} - self._homes.keys())
        behind = []
        for topic, partition, end in news:
            holding = self.holdings.get(self._homes.get(topic, -1))
            if holding is not None and (start := holding.log.next(topic, partition)) < end:
                behind.append((topic, partition, start))
        if behind:
            await self._tail(behind)

    async def _hear_of(self, topics: set[int]) -> None:
        if topics:
            for row in await self._errand(catalog.rows_of, self.reader, sorted(topics)):
                self._homes[row.id] = row.vshard

    async def refresh(self, holding: Holding) -> None:
        """Let time pass, and take in what other nodes have appended by now: who was answered there is seen here."""
        self._rounds.tick(holding)
        if holding.log.batch or holding.log.flying:
            await holding.wait(holding.log.number)
        if not self._others:
            return
        places = [
            (topic.id, partition.number)
            for topic in holding.store.state.topics.values()
            for partition in topic.partitions
        ]
        ends = await self._errand(frames.ends, self.reader, places) if places else []
        known = [holding.log.next(*place) for place in places]
        behind = [(*place, next) for place, end, next in zip(places, ends, known, strict=True) if next < end]
        if behind:
            await self._tail(behind)

    async def _tail(self, places: list[tuple[int, int, int]]) -> None:
        rows = await self._errand(frames.tails, self.reader, places, _TAIL_FRAMES, False)
        self.arrived([Arrival(*row) for row in rows])

    # Owned virtual shards

    async def holding(self, vshard: int) -> Holding:
        """A virtual shard that is ours, taken over if need be. Raises Unavailable if it is not."""
        found = self.holdings.get(vshard)
        if found is not None:
            return found
        if vshard not in self._mine:
            raise Unavailable(f"this node does not deliver from virtual shard {vshard}", code="not_owner")
        loading = self._loading.get(vshard)
        if loading is None:
            loading = self._loading[vshard] = asyncio.ensure_future(self._load(vshard, self._mine[vshard]))
            loading.add_done_callback(lambda done: self._loading.pop(vshard, None))
        return await asyncio.shield(loading)

    async def _load(self, vshard: int, epoch: int) -> Holding:
        log = PostgresLog(self.reader, vshard, self._cache)
        holding = Holding(vshard, epoch, log, self._committer.ask, self._epoch_of, self.arrived)
        state = await self._errand(recover, log)
        holding.point_seq, holding.point_at = log.point_seq, self.clock.now()
        if self._mine.get(vshard) != epoch:
            raise Unavailable(f"virtual shard {vshard} went to another node", code="not_owner")
        log.started(state)
        holding.store = ShardStore(
            log,
            ShardCatalog(self.reader, self.stamp, vshard),
            owner=True,
            ids=self._plan.ids,
            tokens=Tokens(token_epoch(vshard, epoch), os.urandom),
            jitter=_jitter(random.Random(os.urandom(16))),  # noqa: S311 - spreads retries, guards nothing
            defaults=self._plan.defaults,
            limits=self._plan.limits,
            homes=self._homes,
            heart=Heart(state),
        )
        holding.store.abroad = self._abroad
        self._homes.update(dict.fromkeys(state.topics, vshard))
        holding.engine = Engine(holding.store, self.clock, self._plan.quotas, holding.gate)
        holding.changed = self.mouth.forget
        holding.engine.start()
        self.holdings[vshard] = holding
        await self._catch_up(holding)
        return holding

    async def _catch_up(self, holding: Holding) -> None:
        """What was appended while it was taken over."""
        places = [
            (topic.id, partition.number, holding.log.next(topic.id, partition.number))
            for topic in holding.store.state.topics.values()
            for partition in topic.partitions
        ]
        if places:
            await self._tail(places)

    def _forget(self, vshard: int, why: str) -> None:
        self._mine.pop(vshard, None)
        self._lose(vshard, Unavailable(f"virtual shard {vshard}: {why}; try again", code="not_owner"))

    def _lose(self, vshard: int, why: Error) -> None:
        holding = self.holdings.pop(vshard, None)
        if holding is not None:
            holding.lose(why, doubtful(why))

    def _were_lost(self, holdings: list[Holding]) -> None:
        """A commit failed: they are owned again before anything is done with them."""
        for holding in holdings:
            self.holdings.pop(holding.vshard, None)
            self._mine.pop(holding.vshard, None)
        if not self._closing:
            self._tasks.append(asyncio.ensure_future(self._own_again([holding.vshard for holding in holdings])))

    async def _own_again(self, vshards: list[int]) -> None:
        try:
            taken = await self._errand(owning.own, self._scout, self.owner, vshards)
        except Error as problem:
            LOGGER.warning("%s: %s", self.name, problem)
            return
        for vshard, epoch in taken.items():
            self._mine[vshard] = epoch
            await self._try_load(vshard)

    def _doubt(self, why: str) -> None:
        """Nothing that we remember is to be believed: forget it all, and begin a new session."""
        LOGGER.warning("%s: %s: everything owned there is forgotten", self.name, why)
        for vshard in list(self._mine):
            self._forget(vshard, why)
        self.owner = uuid4()
        self._committer.owner = self.owner
        self._beaten_at = time.monotonic()

    # Publishing

    def _make_mouth(self) -> Mouth:
        log = PostgresLog(self.reader, -1, self._cache)
        mouth = Mouth(self._appends, log, self.stamp, self._epoch_of, self._told)
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
        mouth.store.repeated = self._repeated
        mouth.engine = Engine(mouth.store, self.clock, self._plan.quotas, mouth.gate)
        return mouth

    def _repeated(self, topic: int, partition: int, offset: int) -> None:
        """A message was published again: that belongs to its trace, if we keep it."""
        if self._homes.get(topic) in self._mine:
            self._tasks.append(asyncio.ensure_future(self._note_repeated(topic, partition, offset)))

    async def _note_repeated(self, topic: int, partition: int, offset: int) -> None:
        with suppress(Error):  # a trace that lacks a line is better than a publish that fails
            holding = await self.holding(self._homes[topic])
            if topic in holding.store.state.topics:
                with holding.gate.inside:
                    now = holding.engine.clock.now()
                    holding.store.happen(Duplicated(now, topic, partition, offset), now)
                self._committer.ask(holding)

    def _abroad(self, namespace: str, name: str) -> Store:
        """The store that knows the topics of this server, whoever delivers them."""
        if virtual_shard(namespace, name) not in self.owners:
            raise Refused(
                f"topic {name!r:.80} lives on another server; what is to happen in one commit has to share one",
                code="elsewhere",
            )
        return self.mouth.store

    def _epoch_of(self, vshard: int) -> int:
        return self.owners[vshard].map_epoch

    async def _told(self, arrivals: list[Arrival]) -> None:
        """What was published here goes to whoever delivers it."""
        self.arrived(arrivals)
        for number in {arrival.topic for arrival in arrivals}:
            vshard, topic = self._homes[number], self.mouth.store.state.topics.get(number)
            address = self.owners[vshard].address
            if vshard not in self._mine and address and topic is not None:
                self._poke(address, topic.namespace, topic.name)

    def arrived(self, arrivals: list[Arrival]) -> None:
        """Frames are there: whoever delivers them takes them in. What does not follow is found at the next look."""
        by_holding: dict[int, list[Arrival]] = {}
        for arrival in arrivals:
            if self._manual is None:
                self._shard_clock.not_before(arrival.at)
            by_holding.setdefault(self._homes.get(arrival.topic, -1), []).append(arrival)
        for vshard, theirs in by_holding.items():
            holding = self.holdings.get(vshard)
            if holding is not None:
                self._introduce(holding, theirs)
                holding.arrived(theirs)

    def _introduce(self, holding: Holding, arrivals: list[Arrival]) -> None:
        """A topic may be new to whoever delivers it."""
        unknown = {arrival.topic for arrival in arrivals} - holding.store.state.topics.keys()
        if unknown:
            with holding.gate.inside:
                for row in catalog.rows_of(self.reader, sorted(unknown)):
                    holding.store.learn(catalog.known_as(row))


def _jitter(chance: random.Random) -> Callable[[], float]:
    return lambda: chance.uniform(-JITTER_MAX, JITTER_MAX)
