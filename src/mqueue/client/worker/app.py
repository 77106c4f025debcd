"""The worker as users see it: handlers by decoration, and the walk from the first message to the last.

connect → a consumer per handler: fetch, work, settle → told to stop → drain → release what is left → close

How it connects is handed in, as a context that opens a queue; see `assembly` for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, TypeVar

from mqueue.broker.consume import check_concurrency
from mqueue.broker.given import Topics
from mqueue.client.worker.consumer import Consumer, Liveness
from mqueue.client.worker.handlers import Handler, handler_of
from mqueue.client.worker.jobs import LOGGER
from mqueue.client.worker.pauses import Pause, first, sleep
from mqueue.client.worker.queue import Queue
from mqueue.client.worker.signals import on_signals
from mqueue.model.clock import Clock, SystemClock
from mqueue.model.errors import BadSetting, Error, Refused
from mqueue.model.names import check_name
from mqueue.model.times import Duration, duration_ms

F = TypeVar("F", bound=Callable[..., Any])

CONCURRENCY = 8
RELEASE_SECONDS = 5
"""How long handlers that were cancelled may take to let go, and their messages to be released."""


class Halt:
    """The two steps to an end: `draining`, then `at_once`."""

    def __init__(self, draining: asyncio.Event | None) -> None:
        self.loop = asyncio.get_running_loop()
        self.draining = draining or asyncio.Event()
        self.at_once = asyncio.Event()

    def step(self) -> None:
        (self.at_once if self.draining.is_set() else self.draining).set()


class App:
    """Handlers, and the queue they get their messages from. Nothing happens before `run` or `serve`."""

    def __init__(
        self,
        opening: Callable[[], AbstractAsyncContextManager[Queue]],
        *,
        concurrency: int | None = None,
        drain: Duration = "30s",
        clock: Clock | None = None,
        assigned: bool = False,
        member: str | None = None,
        telemetry: Any = False,
    ) -> None:
        if member is not None:
            check_name(member, "member")
        self._spans = None
        if telemetry is not False:
            from mqueue.client.telemetry import spans_of

            self._spans = spans_of(telemetry)
        self._assigned = assigned
        self._member = member
        if concurrency is not None:
            check_concurrency(concurrency)
        self._opening = opening
        self._concurrency = concurrency
        self._drain_ms = duration_ms(drain, "drain")
        self._clock = clock or SystemClock()
        self._handlers: list[Handler] = []
        self._crew: list[Consumer] = []
        self._halt: Halt | None = None

    def handler(
        self,
        topic: Topics,
        *,
        group: str = "default",
        namespace: str | None = None,
        concurrency: int | None = None,
        retries: int | None = None,
        backoff: Duration | None = None,
        backoff_max: Duration = "60s",
        reject_on: type[Exception] | tuple[type[Exception], ...] = (),
        timeout: Duration | None = "5m",
        visibility: Duration = "30s",
        assigned: bool | None = None,
    ) -> Callable[[F], F]:
        """Have a function called for each message of a topic. It returns: ack; it raises: nack. It stays as it is.

        `assigned`: as a member of an assigned group, from partitions of its own; None: as the worker says.
        """

        def add(function: F) -> F:
            made = handler_of(
                function,
                topic,
                group=group,
                namespace=namespace,
                concurrency=concurrency,
                retries=retries,
                backoff=backoff,
                backoff_max=backoff_max,
                reject_on=reject_on,
                timeout=timeout,
                visibility=visibility,
                assigned=self._assigned if assigned is None else assigned,
            )
            self._add(made)
            return function

        return add

    def consumers(self) -> list[Liveness]:
        """How each handler is doing; of the last time, if the worker does not run now."""
        return [consumer.liveness() for consumer in self._crew]

    def run(self, *, concurrency: int | None = None) -> None:
        """Work until SIGTERM or SIGINT, then drain; the second one ends it at once. `concurrency`: of each handler,
        whatever it was declared with."""
        asyncio.run(self._run(concurrency))

    def stop(self) -> None:
        """Drain; called again: end at once. From any thread, also from a handler."""
        halt = self._halt
        if halt is not None:
            halt.loop.call_soon_threadsafe(halt.step)

    async def serve(self, stop: asyncio.Event | None = None, *, concurrency: int | None = None) -> None:
        """The same inside a running loop: work until `stop` is set, then drain. Cancelled, it ends at once."""
        self._check(concurrency)
        self._halt = halt = Halt(stop)
        try:
            async with AsyncExitStack() as stack:
                queue = await self._connected(stack, halt)
                if queue is not None:
                    self._crew = [self._consumer(handler, queue, concurrency) for handler in self._handlers]
                    await self._work(self._crew, halt)
        finally:
            self._halt = None

    # Inside

    def _add(self, made: Handler) -> None:
        for known in self._handlers:
            if known.overlaps(made):
                shared = sorted(set(known.topics) & set(made.topics))[0]
                raise Refused(
                    f"handler {made.name}: topic {shared!r}, group {made.group!r} has handler {known.name} already;"
                    " give it another group",
                    code="bad_handler",
                )
        self._handlers.append(made)

    def _check(self, concurrency: int | None) -> None:
        if concurrency is not None:
            check_concurrency(concurrency)
        if not self._handlers:
            raise BadSetting("this worker has no handler; decorate a function with @app.handler(topic)")
        if self._halt is not None:
            raise Refused("this worker is at work already")

    def _consumer(self, handler: Handler, queue: Queue, concurrency: int | None) -> Consumer:
        chosen = concurrency or handler.concurrency or self._concurrency or CONCURRENCY
        return Consumer(handler, queue, self._clock, chosen, self._member, self._spans)

    async def _run(self, concurrency: int | None) -> None:
        def on_signal(name: str) -> None:
            LOGGER.info("%s", name)
            self.stop()

        with on_signals(on_signal):
            await self.serve(concurrency=concurrency)

    async def _connected(self, stack: AsyncExitStack, halt: Halt) -> Queue | None:
        """The queue; None if the worker was stopped before there was one."""
        connecting = asyncio.create_task(self._connect(stack), name="mqueue-worker-connecting")
        try:
            await first(asyncio.wait([connecting]), halt.draining.wait())
        finally:
            await _end([connecting])
        return None if connecting.cancelled() else connecting.result()

    async def _connect(self, stack: AsyncExitStack) -> Queue:
        pause = Pause(self._clock)
        while True:
            try:
                return await stack.enter_async_context(self._opening())
            except Error as error:
                if not error.retryable:
                    raise
                if not pause.failures:
                    LOGGER.warning("the worker cannot connect: %s; trying again", error)
                await pause.after(error)

    async def _work(self, crew: Sequence[Consumer], halt: Halt) -> None:
        LOGGER.info("the worker has begun: %s", ", ".join(handler.name for handler in self._handlers))
        watching = [asyncio.create_task(consumer.watch()) for consumer in crew]
        fetching = [asyncio.create_task(consumer.fetch()) for consumer in crew]
        try:
            all_ended = asyncio.wait(fetching, return_when=asyncio.FIRST_EXCEPTION)
            await first(all_ended, halt.draining.wait())
        except asyncio.CancelledError:
            halt.at_once.set()
            raise
        finally:
            await _end(fetching)
            await self._drain(crew, halt)
            await _end(watching)
            for consumer in crew:
                await consumer.leave()
                consumer.close()
        for task in fetching:
            if not task.cancelled():
                task.result()
        LOGGER.info("the worker has ended")

    async def _drain(self, crew: Sequence[Consumer], halt: Halt) -> None:
        """Wait for what is at hand; then cancel it, and wait until it is released."""
        jobs = [job for consumer in crew for job in consumer.at_hand()]
        tasks = [job.task for job in jobs if job.task is not None]
        if not tasks:
            return
        LOGGER.info("the worker takes no more messages and has %s at hand", len(tasks))
        await first(asyncio.wait(tasks), sleep(self._clock, self._drain_ms), halt.at_once.wait())
        for job in jobs:
            job.stopped = True
            job.interrupt()
        _, left = await asyncio.wait(tasks, timeout=RELEASE_SECONDS)
        if left:
            LOGGER.error(
                "%s handler(s) do not let go of their messages, which come back when their leases run out", len(left)
            )
            for task in left:
                task.cancel()


async def _end(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
