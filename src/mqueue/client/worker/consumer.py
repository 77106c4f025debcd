"""One handler at work: fetch messages, call the handler for each, settle by the outcome.

It holds as many messages as it may work on at once and no more, so nothing waits at hand that another could do. It does
not know how it is told to stop: whoever runs it cancels `fetch`, waits, and cancels what is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mqueue.broker.message import AnyMessage, AsyncMessage
from mqueue.client.worker.attendance import Attendance
from mqueue.client.worker.handlers import Handler
from mqueue.client.worker.jobs import LOGGER, Job, Jobs, shown
from mqueue.client.worker.pauses import Pause, jitter
from mqueue.client.worker.queue import Queue
from mqueue.client.worker.threads import ThreadMessage, Threads
from mqueue.client.worker.verdict import ACK, RELEASE, Reject, Retry, Verdict, after_failure
from mqueue.model.clock import Clock
from mqueue.model.errors import Closed, Conflict, Error, LeaseLost
from mqueue.model.times import to_datetime

if TYPE_CHECKING:
    from mqueue.client.telemetry import ClientSpans

WAIT_SECONDS = 20
"""How long one call waits for messages. Long, because a publish ends it, and so does the end of the worker."""


_CAUGHT = (Exception, asyncio.CancelledError, SystemExit, KeyboardInterrupt)
"""A handler cannot end the worker, whatever it raises."""


class Liveness(Struct, frozen=True):
    """How one handler is doing.

    `busy_since`: since when the oldest message is at hand. `handled`: how often the handler returned. `failed`: how
    often it raised, outlived its time, or was not called because the payload was no such thing. `last_seen`: when the
    queue last answered.
    """

    handler: str
    topic: str
    group: str
    concurrency: int
    busy: int
    busy_since: datetime | None
    handled: int
    failed: int
    last_seen: datetime | None


class Consumer:
    def __init__(
        self,
        handler: Handler,
        queue: Queue,
        clock: Clock,
        concurrency: int,
        member: str | None = None,
        spans: ClientSpans | None = None,
    ) -> None:
        self._handler = handler
        self._spans = spans
        self._queue = queue if handler.namespace is None else queue.namespace(handler.namespace)
        self._clock = clock
        self._concurrency = concurrency
        self._free = concurrency
        self._freed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._threads = Threads(handler.name)
        self._jobs = Jobs(self._queue, clock, handler.visibility_ms, handler.timeout_ms)
        self._attendance: Attendance | None = None
        if handler.assigned:
            self._attendance = Attendance(self._queue, clock, handler.topics[0], handler.group, member)
        self._handled = 0
        self._failed = 0
        self._last_seen: int | None = None

    def liveness(self) -> Liveness:
        handler = self._handler
        since = min((job.since for job in list(self._jobs.at_hand)), default=None)
        return Liveness(
            handler.name,
            ",".join(handler.topics),
            handler.group,
            self._concurrency,
            self._concurrency - self._free,
            None if since is None else to_datetime(since),
            self._handled,
            self._failed,
            None if self._last_seen is None else to_datetime(self._last_seen),
        )

    def at_hand(self) -> list[Job]:
        return list(self._jobs.at_hand)

    async def watch(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._jobs.watch())
            if self._attendance is not None:
                group.create_task(self._attendance.watch())

    async def leave(self) -> None:
        """Of an assigned group, once nothing is at hand any more."""
        if self._attendance is not None:
            await self._attendance.leave()

    def close(self) -> None:
        self._threads.close()

    # Fetch

    async def fetch(self) -> None:
        """Take messages and begin with them, until it is cancelled or the queue is closed."""
        pause = Pause(self._clock)
        with suppress(Closed):
            while True:
                await self._room()
                for message in await self._receive(pause):
                    self._begin(message)
                await asyncio.sleep(0)  # with a full queue nothing here would wait, and nobody else get a turn

    async def _room(self) -> None:
        while not self._free:
            self._freed.clear()
            await self._freed.wait()

    async def _receive(self, pause: Pause) -> list[AsyncMessage]:
        handler = self._handler
        topic = handler.topics[0] if len(handler.topics) == 1 else list(handler.topics)
        visibility = handler.visibility_ms / 1000
        try:
            member = None if self._attendance is None else await self._attendance.held()
            found = await self._queue.receive(
                topic, self._free, group=handler.group, wait=WAIT_SECONDS, visibility=visibility, member=member
            )
        except Conflict as error:
            if self._attendance is None:
                raise
            self._attendance.lost(error)
            return []
        except Error as error:
            if not error.retryable:
                raise
            if not pause.failures:
                LOGGER.warning("handler %s gets no messages: %s; trying again", handler.name, error)
            await pause.after(error)
            return []
        if pause.failures:
            LOGGER.info("handler %s gets messages again", handler.name)
        pause.failures = 0
        self._last_seen = self._clock.now()
        return found

    def _begin(self, message: AsyncMessage) -> None:
        job = self._jobs.add(message)
        self._free -= 1
        job.task = asyncio.create_task(self._work(job), name=f"mqueue-worker-{message.id}")

    def _end(self) -> None:
        self._free += 1
        self._freed.set()

    # Work

    async def _work(self, job: Job) -> None:
        calls: list[Future[Any]] = []
        try:
            if self._spans is None:
                await self._worked(job, calls)
            else:
                with self._spans.processing(self._handler.name, self._handler.group, job.message) as span:
                    verdict = await self._worked(job, calls)
                    self._spans.judged(span, verdict.verb, verdict.error)
        except Exception:
            LOGGER.exception("%s could not be settled", shown(job.message))
        finally:
            self._jobs.remove(job)
            if calls and not calls[0].done():  # the thread is still in the handler, so its place is not free yet
                calls[0].add_done_callback(lambda _: self._later(self._end))
            else:
                self._end()

    async def _worked(self, job: Job, calls: list[Future[Any]]) -> Verdict:
        verdict = await self._verdict(job, calls)
        job.settling = True
        await self._settle(job.message, verdict)
        return verdict

    async def _verdict(self, job: Job, calls: list[Future[Any]]) -> Verdict:
        """What becomes of a message: its handler is called, and all that can come of that is met here."""
        awaited = self._handler.parameters.awaited
        view: AnyMessage = job.message if awaited else ThreadMessage(job.message, self._loop)
        try:
            positional, named = self._handler.parameters.arguments(view)
        except Exception as error:
            self._failed += 1
            LOGGER.exception("%s is rejected: its payload is not what %s takes", shown(job.message), self._handler.name)
            return Verdict("reject", error=error)
        call = partial(self._handler.function, *positional, **named)
        try:
            await (call() if awaited else self._in_thread(call, calls))
        except _CAUGHT as error:
            return self._after(job, error)
        _uncancel()
        self._handled += 1
        return ACK

    async def _in_thread(self, call: Callable[[], Any], calls: list[Future[Any]]) -> None:
        future = self._threads.call(call)
        calls.append(future)
        try:
            answer = await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if not future.done() or future.cancelled():
                raise
            answer = future.result()  # it ended in the same moment
        if isawaitable(answer):
            await answer

    def _after(self, job: Job, error: BaseException) -> Verdict:
        """The handler raised something, or was cancelled: by us, because its time was up or the worker ends."""
        if _uncancel() and not (job.overdue or job.stopped):
            raise error
        name, message = self._handler.name, job.message
        if job.stopped:
            LOGGER.warning("handler %s was not done in time with %s, which is released", name, shown(message))
            return RELEASE
        self._failed += 1
        if job.overdue:
            late = TimeoutError(f"handler {name} took longer than {self._handler.timeout_ms} ms")
            late.__cause__ = error  # its traceback shows where the handler was
            error = late
        verdict = after_failure(error, message.attempt, self._handler.rule, jitter())
        self._tell(job, error, verdict)
        return verdict

    def _tell(self, job: Job, error: BaseException, verdict: Verdict) -> None:
        name, what = self._handler.name, shown(job.message)
        if isinstance(error, Retry) and verdict.verb == "nack":
            LOGGER.info("handler %s wants %s again: %s", name, what, error)
        elif isinstance(error, Retry | Reject):
            LOGGER.warning("handler %s gave up %s: %s", name, what, error)
        elif job.overdue and not self._handler.parameters.awaited:
            LOGGER.error("%s on %s: %s; its thread cannot be stopped and goes on", error, what, verdict.verb)
        else:
            LOGGER.error("handler %s failed on %s: %s", name, what, verdict.verb, exc_info=error)

    # Settle

    async def _settle(self, message: AsyncMessage, verdict: Verdict) -> None:
        """By the verdict, unless the handler did it. Tried again while the queue is away and the lease may be ours."""
        pause = Pause(self._clock)
        until = self._clock.now() + self._handler.visibility_ms
        while not message._settled:
            try:
                return await _apply(message, verdict)
            except LeaseLost as error:
                return LOGGER.warning("%s was no longer ours: %s", shown(message), error)
            except Error as error:
                if not error.retryable or self._clock.now() >= until:
                    return LOGGER.warning(
                        "%s is not settled (%s) and comes back when its lease runs out: %s",
                        shown(message),
                        verdict.verb,
                        error,
                    )
                await pause.after(error)

    def _later(self, call: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop was closed before the thread was done
            self._loop.call_soon_threadsafe(call)


def _uncancel() -> bool:
    """Take back the cancellations of this task, which have been heeded; whether there were any."""
    task = asyncio.current_task()
    assert task is not None
    cancelled = bool(task.cancelling())
    while task.cancelling():
        task.uncancel()
    return cancelled


async def _apply(message: AsyncMessage, verdict: Verdict) -> None:
    match verdict.verb:
        case "ack":
            await message.ack()
        case "nack":
            await message.nack(None if verdict.delay_ms is None else verdict.delay_ms / 1000, verdict.error)
        case "reject":
            await message.reject(verdict.error)
        case _:
            await message.release()
