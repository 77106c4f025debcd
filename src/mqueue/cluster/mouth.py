"""Where a node publishes to the topics of a shard, whoever owns them: straight into PostgreSQL, in group commits.

To the calls that publish it is an engine like any other; its store knows of topics only that they are there. What was
appended is told to whoever delivers it, here or at another node, before who published is answered.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from mqueue.broker.commits import WAITS
from mqueue.broker.engine import Engine
from mqueue.broker.views import Views
from mqueue.cluster.breaker import Breaker
from mqueue.cluster.buffer import Buffer
from mqueue.cluster.gate import IN_LOG, IN_QUORUM, IN_SHARD, LEVELS, ShardGate, Sure
from mqueue.cluster.holding import sheet_of
from mqueue.cluster.meters import Meters
from mqueue.cluster.problems import REFUSALS, doubtful, reason
from mqueue.cluster.tickets import Ticket, answered
from mqueue.cluster.wal.intake import Intake
from mqueue.log.postgres import appends
from mqueue.log.postgres.appends import Appended, Sheet
from mqueue.log.postgres.batch import Arrival, Batch, Promise, bind, kindred
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.log import PostgresLog
from mqueue.log.postgres.problems import Changed, Ended, Moved, NoQuorum, NoTopic
from mqueue.log.postgres.readback import confirm, read_back
from mqueue.model import events as ev
from mqueue.model.errors import ShardDown
from mqueue.store.shard import ShardStore

LOGGER = logging.getLogger("mqueue.cluster")

DOUBT_SECONDS = 10.0
"""So long those wait whose statement was not answered, until it is known what became of it. Clients wait for 30."""
_LOOK_SECONDS = 0.05


class Mouth:
    """`stamp` gives the time for what is appended, None where the server's clock counts; `epoch_of` the map epoch of a
    virtual shard; `told` is awaited with what was appended. Whoever comes while the breaker is open, or when the buffer
    is full, is refused before anything is handed in."""

    def __init__(
        self,
        link: Link,
        log: PostgresLog,
        stamp: Callable[[], int | None],
        epoch_of: Callable[[int], int],
        told: Callable[[list[Arrival]], Awaitable[None]],
        meters: Meters,
        buffer: Buffer,
        breaker: Breaker,
    ) -> None:
        self.log = log
        self.gate = MouthGate(log, self.wait, self.confirm, buffer, breaker)
        self._link = link
        self._stamp = stamp
        self._epoch_of = epoch_of
        self._told = told
        self._meters = meters
        self.buffer = buffer
        self.breaker = breaker
        self._tickets: list[Ticket] = []
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mqueue-append")
        self._closing = threading.Event()

    engine: Engine
    views: Views
    store: ShardStore
    """Whoever makes it sets these."""

    def close(self) -> None:
        self._closing.set()
        self._thread.shutdown(wait=True)
        self._link.close()

    def forget(self, topic: int) -> None:
        """A topic is gone, or has changed: whoever needs it looks it up again."""
        if topic in self.store.state.topics:
            self.store.state.apply(ev.TopicDropped(0, topic))
            self.store.versions.pop(topic, None)

    def wait(self, promises: list[Promise]) -> Awaitable[None]:
        """Something to await until these have their places."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._expect([(promises, future)])
        return future

    async def confirm(self) -> None:
        """Until a standby has all that is in the shard by now: what was published before is to be as safe as asked."""
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._thread, functools.partial(confirm, self._link, quorum=True))
        except Exception as problem:
            self._judge(problem)
            raise reason(problem) from None
        self.breaker.worked()

    def adopt(self, promises: list[Promise], tickets: list[Ticket]) -> None:
        """Publish what could not be written elsewhere, for those who wait for it."""
        with self.gate.inside:
            self.log.batch.promises += promises
        self._expect(tickets)

    def _expect(self, tickets: list[Ticket]) -> None:
        self._tickets += tickets
        if self._task is None:
            self._task = asyncio.create_task(self._work(), name="mqueue-mouth")

    async def _work(self) -> None:
        """Until nothing is left to do. All that is handed in during one turn of the loop goes together."""
        try:
            await asyncio.sleep(0)
            while (batch := self._cut()) is not None:
                try:
                    await self._publish(batch)
                finally:
                    self._landed(batch)
        finally:
            self._task = None
            self._tickets = answered(self._tickets)

    def _landed(self, batch: Batch) -> None:
        """Whoever waits for something of a batch is answered, whatever became of it."""
        for promise in batch.promises:
            if not promise.landed and promise.failed is None:
                promise.failed = reason(RuntimeError("the node gave up"))
        with self.gate.inside:
            self.log.land(batch)
        self.buffer.release(batch.promises)
        self._tickets = answered(self._tickets)

    def _cut(self) -> Batch | None:
        with self.gate.inside:
            return self.log.cut()

    async def _publish(self, batch: Batch) -> None:
        """All of a batch by one statement. If that is refused, each call by its own: others are not to blame."""
        promises = batch.promises
        if self.breaker.open:  # it opened while they waited: they need not wait for one more failure
            for promise in promises:
                promise.failed = self.breaker.refusal(time.monotonic())
            return
        problem = await self._try(promises)
        if isinstance(problem, REFUSALS):
            for kin in kindred(promises):
                self._fail(kin, problem if len(kin) == len(promises) else await self._try(kin))
        else:
            self._fail(promises, problem)

    async def _try(self, promises: list[Promise]) -> Exception | None:
        loop = asyncio.get_running_loop()
        try:
            places = await loop.run_in_executor(self._thread, self._append, promises)
        except Exception as problem:
            self._judge(problem)
            return problem
        self.breaker.worked()
        arrivals = [promise.land(place.base, place.at) for promise, place in zip(promises, places, strict=True)]
        try:
            await self._told(arrivals)
        except Exception:  # they are stored; whoever delivers them finds them when he looks
            LOGGER.exception("what was published could not be told")
        return None

    def _judge(self, problem: Exception) -> None:
        if isinstance(problem, ShardDown):
            self.breaker.failed(time.monotonic())
        else:  # who refuses something answers
            self.breaker.worked()

    def _append(self, promises: list[Promise]) -> list[Appended]:
        """In the thread."""
        for promise in promises:
            if not promise.head:
                promise.seal()
        claiming = {promise.frame.topic for promise in promises if promise.claims}
        windows = {
            topic.id: topic.settings.dedup_window_ms
            for topic in list(self.store.state.topics.values())  # one that was changed meanwhile is not among them
            if topic.id in claiming and topic.settings.dedup == "window"
        }
        sheets = [self.sheet(promise) for promise in promises]
        quorum = any(promise.quorum for promise in promises)
        until = time.monotonic() + DOUBT_SECONDS
        doubted = False
        while True:
            try:
                return self._send(sheets, windows, quorum)
            except ShardDown as problem:
                if problem.applied is not None and not isinstance(problem, Ended):
                    raise
                found = self._read_back(problem, sheets, quorum, until)
                if found is not None:
                    return found
                doubted = True
            except Moved as problem:
                if doubted:  # what was not found may have gone along: it is not to be sent to where it lives now
                    raise doubtful(reason(problem)) from None
                raise

    def _send(self, sheets: list[Sheet], windows: dict[int, int], quorum: bool) -> list[Appended]:
        meters, begun = self._meters, time.monotonic()
        meters.appends += 1
        try:
            places = appends.append(self._link, sheets, self._stamp(), windows=windows, quorum=quorum)
        except BaseException:
            meters.append_failures += 1
            raise
        finally:
            meters.append_seconds += time.monotonic() - begun
        meters.append_rows += sum(sheet.count for sheet in sheets)
        assert places is not None, "no log was flushed"
        return places

    def _read_back(self, doubt: ShardDown, sheets: list[Sheet], quorum: bool, until: float) -> list[Appended] | None:
        """What became of a statement that was not answered: where the frames are; None: nowhere. If nobody can tell in
        time, it is in doubt."""
        before, meters = self._link.backend, self._meters
        assert before is not None, "somebody was asked"
        meters.in_doubt += 1
        while time.monotonic() < until and not self._closing.wait(_LOOK_SECONDS):
            try:
                return read_back(self._link, before, sheets, quorum=quorum)
            except ShardDown:
                continue
            except NoQuorum:  # it is there, and no standby will tell that it has it
                break
        meters.in_doubt_left += 1
        raise doubtful(doubt)

    def sheet(self, promise: Promise) -> Sheet:
        """A frame that is sealed, as it is handed to the shard."""
        vshard = self.store.homes[promise.frame.topic]
        return sheet_of(promise, vshard, self._epoch_of(vshard))

    def _fail(self, promises: list[Promise], problem: Exception | None) -> None:
        """None: nothing has failed."""
        if problem is None:
            return
        for promise in promises:
            if isinstance(problem, NoTopic | Changed):
                self.forget(promise.frame.topic)
            promise.failed = reason(problem)


class MouthGate(ShardGate):
    """Who leaves waits for what he handed in himself: others may fail."""

    def __init__(
        self,
        log: PostgresLog,
        wait: Callable[[list[Promise]], Awaitable[None]],
        confirm: Callable[[], Awaitable[None]],
        buffer: Buffer,
        breaker: Breaker,
    ) -> None:
        super().__init__(log, _never)
        self._wait_for = wait
        self._confirm = confirm
        self._buffer = buffer
        self._breaker = breaker
        self._open: dict[int, list[Promise]] = {}
        self._number = 0
        self.intake: Intake | None = None
        """Where those go who are content with the log of the node, if it has one."""

    @property
    def levels(self) -> Mapping[str, int]:
        return {name: level for name, level in LEVELS.items() if level != IN_LOG or self.intake is not None}

    def at(self, level: int) -> AbstractContextManager[None]:
        if level == IN_QUORUM:
            return Surely(self, self._log)
        return self if level == IN_SHARD else Early(self, self._log)

    def __enter__(self) -> None:
        self._buffer.check()
        self._breaker.admit(time.monotonic())
        super().__enter__()
        self._log.touched = []

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave(IN_SHARD)

    def leave(self, level: int) -> None:
        touched = self._log.touched
        self.inside.release()
        if touched or level == IN_QUORUM:
            bind(touched)
            self._buffer.hold(touched)
            self._number += 1
            self._open[self._number] = touched
            WAITS.open.append((self, self._number, level))
        else:
            self._breaker.gave_up()

    def early(self) -> Intake | None:
        """The log of the node, if what is handed in there now would be safe there. One who is let in only to try
        whether the shard is well has to go there."""
        intake = self.intake
        return intake if intake is not None and intake.ready and self._breaker.closed else None

    def ticket(self, batch: int, wants: int) -> Awaitable[None]:
        touched = self._open.pop(batch)
        if wants == IN_QUORUM and not (touched and all(promise.quorum for promise in touched)):
            return Confirmed(self._wait_for(touched) if touched else None, self._confirm)
        if wants != IN_LOG or self.intake is None:
            return self._wait_for(touched)
        return self.intake.wait(touched)


class Surely(Sure):
    """The gate for a call that a standby has to confirm, too, also what it finds published already."""

    def __init__(self, gate: MouthGate, log: PostgresLog) -> None:
        super().__init__(gate, log)
        self._mouth = gate

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.batch.sure = False
        self._mouth.leave(IN_QUORUM if kind is None else IN_SHARD)


class Confirmed:
    """To be awaited: until what was published has its place, and a standby has what was there before."""

    def __init__(self, first: Awaitable[None] | None, then: Callable[[], Awaitable[None]]) -> None:
        self._first = first
        self._then = then

    def __await__(self) -> Generator[Any, None, None]:
        if self._first is not None:
            yield from self._first.__await__()
        yield from self._then().__await__()


class Early:
    """The gate for a call that is content with the log of the node. Where that is not to be had it gets more."""

    def __init__(self, gate: MouthGate, log: PostgresLog) -> None:
        self._gate = gate
        self._log = log
        self._intake = gate.early()

    def __enter__(self) -> None:
        self._gate.__enter__()
        self._log.early = True
        if self._intake is not None:
            self._aside, self._log.batch = self._log.batch, self._intake.batch

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.early = False
        if self._intake is None:
            self._gate.leave(IN_SHARD)
            return
        self._log.batch = self._aside
        self._intake.gathered()
        self._gate.leave(IN_LOG)


def _never(batch: int) -> Awaitable[None]:
    raise AssertionError("whoever publishes waits for what he published")
