"""A handler as a member of an assigned group: it joins, is heard of, joins again if it was taken for dead, and leaves.

What it has at hand of a partition that is to move it finishes: the partition moves when that is settled. Nothing lies
at hand that was not begun.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from mqueue.broker.members import Membership
from mqueue.client.worker.jobs import LOGGER
from mqueue.client.worker.pauses import Pause
from mqueue.client.worker.queue import Queue
from mqueue.model.clock import Clock
from mqueue.model.errors import Closed, Conflict, Error


class Attendance:
    """`member`: an id of its own, which does not leave at the end and so keeps its partitions over a restart."""

    def __init__(self, queue: Queue, clock: Clock, topic: str, group: str, member: str | None) -> None:
        self._queue = queue
        self._clock = clock
        self._topic = topic
        self._group = group
        self._id = member
        self._held: Membership | None = None
        self._joined = asyncio.Event()

    async def held(self) -> Membership:
        """Its place in the group; it is taken now if there is none."""
        if self._held is None:
            self._held = await self._queue.join(self._topic, group=self._group, member=self._id)
            self._joined.set()
        return self._held

    def lost(self, error: Conflict) -> None:
        """A call was refused. Who was taken for dead joins again; who was replaced is not wanted any more."""
        if error.code != "stale_member":
            raise error
        LOGGER.warning("topic %s, group %s is joined again: %s", self._topic, self._group, error)
        self._held = None
        self._joined.clear()

    async def watch(self) -> None:
        """Be heard of, until it is cancelled."""
        pause = Pause(self._clock)
        with suppress(Closed):
            while True:
                await self._joined.wait()
                held = self._held
                assert held is not None
                try:
                    seen = await self._queue.heartbeat(held, wait=held.heartbeat_seconds)
                except Conflict as error:
                    if self._held is held and error.code == "stale_member":
                        self.lost(error)
                    elif error.code != "stale_member":
                        return  # the next receive says so
                except Error as error:
                    if not pause.failures:
                        LOGGER.warning("topic %s, group %s: no heartbeat: %s", self._topic, self._group, error)
                    await pause.after(error)
                else:
                    pause.failures = 0
                    if self._held is held:
                        self._held = seen

    async def leave(self) -> None:
        held, self._held = self._held, None
        if held is not None and self._id is None:
            with suppress(Error):  # else it is dead by itself
                await self._queue.leave(held)
