"""The messages a consumer has at hand, and the watch over them: leases are renewed, handlers have a time limit.

Both are steps by the clock (`renew`, `time_out`) that say when they are due again. Does not call handlers, nor settle.
"""

from __future__ import annotations

import asyncio
import logging

from msgspec import Struct

from mqueue.broker.message import AsyncMessage
from mqueue.client.worker.pauses import PAUSE_MS_MAX, Recurring
from mqueue.client.worker.queue import Queue
from mqueue.model.clock import Clock
from mqueue.model.errors import Closed, Error, LeaseLost

LOGGER = logging.getLogger("mqueue.worker")

RENEWALS = 3
"""How often a lease is renewed within its visibility: two renewals may fail before it is lost."""
RENEWED_AT_ONCE = 64
"""Messages in one call. A queue elsewhere may need a round trip for each of them, and all must be done in time."""


class Job(Struct, eq=False):
    """A message, and how far it has got."""

    message: AsyncMessage
    since: int
    renew_at: int
    give_up_at: int | None
    task: asyncio.Task[None] | None = None
    overdue: bool = False
    stopped: bool = False
    settling: bool = False
    lost: bool = False

    def interrupt(self) -> None:
        """Cancel the handler. What is being settled is left to end."""
        if self.task is not None and not self.settling:
            self.task.cancel()


class Jobs:
    """All that is at hand of one handler."""

    def __init__(self, queue: Queue, clock: Clock, visibility_ms: int, timeout_ms: int | None) -> None:
        self._queue = queue
        self._clock = clock
        self._visibility_ms = visibility_ms
        self._timeout_ms = timeout_ms
        self._renewing = Recurring(clock, self.renew)
        self._timing = Recurring(clock, self.time_out)
        self.at_hand: dict[Job, None] = {}

    async def watch(self) -> None:
        """Renew and time out, without end."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._renewing.run(), name="mqueue-worker-renewing")
            group.create_task(self._timing.run(), name="mqueue-worker-timing")

    def add(self, message: AsyncMessage) -> Job:
        now = self._clock.now()
        give_up_at = None if self._timeout_ms is None else now + self._timeout_ms
        job = Job(message, now, now + self._visibility_ms // RENEWALS, give_up_at)
        self.at_hand[job] = None
        for recurring in (self._renewing, self._timing):
            if recurring.at is None:  # one that waits for another job wakes before this one wants it
                recurring.wake()
        return job

    def remove(self, job: Job) -> None:
        self.at_hand.pop(job, None)

    async def renew(self, now: int) -> int | None:
        due = [job for job in self.at_hand if job.renew_at <= now and _wanted(job)]
        await asyncio.gather(
            *(self._extend(due[at : at + RENEWED_AT_ONCE]) for at in range(0, len(due), RENEWED_AT_ONCE))
        )
        return min((job.renew_at for job in self.at_hand if _wanted(job)), default=None)

    async def time_out(self, now: int) -> int | None:
        running = [job for job in self.at_hand if job.give_up_at is not None and not (job.overdue or job.settling)]
        for job in running:
            if job.give_up_at is not None and job.give_up_at <= now:
                job.overdue = True
                job.interrupt()
        return min((job.give_up_at for job in running if job.give_up_at is not None and not job.overdue), default=None)

    async def _extend(self, due: list[Job]) -> None:
        """Renew some leases, in one call. If it fails it is soon tried again."""
        now = self._clock.now()
        period_ms = self._visibility_ms // RENEWALS
        lost: tuple[int, ...] = ()
        try:
            async with asyncio.timeout(period_ms / 1000):
                lost = (await self._queue.extend([job.message for job in due], self._visibility_ms / 1000)).lost
        except LeaseLost as error:
            lost = error.lost
        except Closed:
            lost = tuple(job.message.id for job in due)
        except Exception as error:  # whatever it is: without renewals all work would be lost
            expected = isinstance(error, TimeoutError) or (isinstance(error, Error) and error.retryable)
            LOGGER.log(logging.DEBUG if expected else logging.WARNING, "%s lease(s) not renewed: %r", len(due), error)
            period_ms = min(period_ms // 4, PAUSE_MS_MAX)
        for job in due:
            job.renew_at = now + period_ms
            if job.message.id in lost:
                self._note_lost(job)

    def _note_lost(self, job: Job) -> None:
        job.lost = True
        if job in self.at_hand and not job.settling:  # else it was settled meanwhile: that is how it should be
            LOGGER.warning("the lease of message %s of %s was lost at work", job.message.id, job.message.topic)


def _wanted(job: Job) -> bool:
    """Whether a lease is worth renewing. A handler that outlives its time and cannot be stopped loses its message."""
    return not job.lost and (job.settling or not job.overdue)


def shown(message: AsyncMessage) -> str:
    """A message in a line of the log."""
    return f"message {message.id} of {message.topic}, attempt {message.attempt}"
