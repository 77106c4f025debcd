"""A virtual shard that is ours: its engine over its log, and what waits until its changes are durable.

To forget it is to throw it away: nothing else remembers anything of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from mqueue.broker.engine import Engine, Shut
from mqueue.broker.views import Views
from mqueue.cluster.gate import ShardGate
from mqueue.cluster.problems import doubtful
from mqueue.heart.checkpoint import checkpoint
from mqueue.heart.topic import Topic
from mqueue.log.postgres.appends import Appended, Sheet
from mqueue.log.postgres.batch import Arrival, Batch, Promise, blocks_of
from mqueue.log.postgres.journal import Entry
from mqueue.log.postgres.log import PostgresLog
from mqueue.model.errors import Error
from mqueue.model.events import TopicDropped, TopicSet
from mqueue.store.shard import ShardStore

_SETTINGS = (TopicSet, TopicDropped)  # a union would be made anew for each event


class Job:
    """A batch of one holding on its way to the shard."""

    __slots__ = ("batch", "holding", "seq")

    def __init__(self, holding: Holding, batch: Batch, seq: int) -> None:
        self.holding = holding
        self.batch = batch
        self.seq = seq

    def entry(self) -> Entry | None:
        """What it adds to the journal. Also seals its frames: it takes a while, and needs no lock."""
        batch, holding = self.batch, self.holding
        body = batch.seal()
        if not batch.events:
            return None
        return Entry(holding.vshard, holding.epoch, self.seq, batch.at, body, blocks_of(batch.events))

    def sheets(self) -> list[Sheet]:
        return [self.holding.sheet(promise) for promise in self.batch.promises]


def sheet_of(promise: Promise, vshard: int, map_epoch: int) -> Sheet:
    """A frame as it is handed to the shard."""
    frame = promise.frame
    return Sheet(
        vshard,
        map_epoch,
        frame.topic,
        frame.partition,
        frame.count,
        promise.id,
        frame.size,
        promise.head,
        promise.body,
        tuple((row, key, claim.digest, claim.priority, claim.at) for row, key, claim in promise.claims),
        promise.version,
    )


class Holding:
    """`ask` is called when there is something to commit, `told` with what was published to topics of others.

    `epoch_of` gives the map epoch of a virtual shard.
    """

    def __init__(
        self,
        vshard: int,
        epoch: int,
        log: PostgresLog,
        ask: Callable[[Holding], None],
        epoch_of: Callable[[int], int],
        told: Callable[[list[Arrival]], None],
    ) -> None:
        self.vshard = vshard
        self.epoch = epoch
        self._epoch_of = epoch_of
        self._told = told
        self.log = log
        self.changed: Callable[[int], None] = _nobody
        """Told of topics whose settings have changed, or that are gone."""
        self.gate = ShardGate(log, self.wait)
        self.lost: Error | None = None
        """Why it is not ours any more."""
        self.leaving = False
        """Whether it is being given away."""
        self.point_seq, self.point_at = 0, 0
        """The row of the journal that the last checkpoint comes after, and when it was taken."""
        self.missed, self.made_good = 1, 0
        """How often something was appended, maybe, that was not taken in; how many of those times were followed by a
        look for all of it. Whoever takes it over missed what was appended while he loaded."""
        self._ask = ask
        self._tickets: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def behind(self) -> bool:
        """Whether something was appended that is not known here: whoever reads looks for it first."""
        return self.made_good < self.missed

    engine: Engine
    views: Views
    store: ShardStore
    """Whoever takes it over sets these."""

    def sheet(self, promise: Promise) -> Sheet:
        vshard = self.store.homes.get(promise.frame.topic, self.vshard)
        return sheet_of(promise, vshard, self._epoch_of(vshard))

    def cut(self) -> Job | None:
        """What is to be committed next."""
        with self.gate.inside:
            batch = self.log.cut()
        return None if batch is None else Job(self, batch, self.log.seq)

    def landed(self, job: Job, appended: Sequence[Appended]) -> None:
        """A job is durable, and its frames have their places."""
        promises = job.batch.promises
        arrivals = [promise.land(place.base, place.at) for promise, place in zip(promises, appended, strict=True)]
        with self.gate.inside:
            self.log.land(job.batch)
        known = self.store.state.topics
        self.arrived([arrival for arrival in arrivals if arrival.topic in known])
        self._told([arrival for arrival in arrivals if arrival.topic not in known])
        for event in job.batch.events:
            if isinstance(event, _SETTINGS):
                self.changed(event.topic)
        done = [future for number, future in self._tickets if number <= job.batch.number]
        self._tickets = [ticket for ticket in self._tickets if ticket[0] > job.batch.number]
        for future in done:
            if not future.done():
                future.set_result(None)

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Frames are there: those who wait for their topics should look. If they are more than their
        topic may hold the oldest go: what was on its way when they were let in could not go then.

        One that comes before the one in front of it, which somebody else has appended, is missed."""
        if not arrivals:
            return
        with self.gate.inside:
            for topic in self.store.take_in(arrivals):
                self._shed(topic)
                self.engine.wake(topic)
        if any(arrival.base >= self.log.next(arrival.topic, arrival.partition) for arrival in arrivals):
            self.missed += 1
        if self.log.batch:
            self._ask(self)

    def curb(self) -> None:
        """Let go of what topics may not hold. Whoever delivered before may have been gone before that was durable."""
        with self.gate.inside:
            for topic in self.store.state.topics.values():
                self._shed(topic)
        if self.log.batch:
            self._ask(self)

    def _shed(self, topic: Topic) -> None:
        if topic.settings.max_depth is not None and self.lost is None and not self.leaving:
            self.store.shed(topic, 0, self.engine.clock.now())

    def point(self) -> tuple[int, bytes]:
        """A checkpoint, and the row of the journal that it comes after. Nothing may be handed in and not cut."""
        with self.gate.inside:
            topics = list(self.store.state.topics.values())
            point = checkpoint(self.store.state, topics, self.engine.clock.now(), frames_tell=True)
            return self.log.seq, self.log.saved(point)

    def lose(self, why: Error, told: Error | None = None) -> None:
        """It is not ours any more, or nobody knows: whoever calls is told why; who waits for a commit, `told`."""
        if self.lost is not None:
            return
        self.lost = why
        self._shut(why)
        tickets, self._tickets = self._tickets, []
        for _, future in tickets:
            if not future.done():
                future.set_exception(told or why)

    async def leave(self, why: Error, seconds: float) -> None:
        """Take nothing more, and finish what was handed in; it is not ours when this returns."""
        self.leaving = True
        self._shut(why)
        with suppress(Error, TimeoutError):
            async with asyncio.timeout(seconds):
                await self.settled()
        self.lose(why, doubtful(why))

    def _shut(self, why: Error) -> None:
        """Whoever calls from now on, or waits, is told why."""
        engine = self.engine
        engine.lock = engine.clock = Gone(why)
        for waiting in engine.waiters.values():
            for waiter in tuple(waiting):
                waiter.wake()

    async def settled(self) -> None:
        """Until all that was handed in by now is durable."""
        if self.log.batch or self.log.flying:
            await self.wait(self.log.number)

    async def placed(self) -> None:
        """Until all frames that were handed in by now have their places."""
        if self.log.promised:
            await self.wait(self.log.number)

    def wait(self, batch: int) -> Awaitable[None]:
        """Something to await until a batch is durable."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.lost is not None:
            future.set_exception(self.lost)
            return future
        self._tickets.append((batch, future))
        self._ask(self)
        return future


def _nobody(topic: int) -> None:
    """Nobody wants to know."""


class Gone(Shut):
    """Stands where the lock of an engine was that is not ours any more."""

    def __init__(self, why: Error) -> None:
        super().__init__(why.message)
        self._why = why

    def __enter__(self) -> None:
        raise self._why

    def now(self) -> int:
        raise self._why

    def timeout(self, ms: int) -> float | None:
        raise self._why
