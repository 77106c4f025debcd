"""Group commit of everything that a node changes on one PostgreSQL server: one statement, one transaction.

What was handed in while the last commit ran goes with the next. A commit that fails, or of which nobody knows what
became of it, ends every holding that took part: what they remember is not to be believed any more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import msgspec

from mqueue.cluster.holding import Holding, Job
from mqueue.cluster.meters import Meters
from mqueue.cluster.problems import reason
from mqueue.log.postgres import catalog, journal
from mqueue.log.postgres.appends import Appended, Sheet
from mqueue.log.postgres.journal import Entry
from mqueue.log.postgres.link import Link
from mqueue.model.events import TopicDropped, TopicSet


class Committer:
    """Lives in the event loop of an estate; the statement runs in a thread, on a link of its own.

    `owner` says who we are just now. `stamp` gives the time for what is appended: None where the server's own clock
    counts. `lost` is told of holdings that ended.
    """

    def __init__(
        self,
        link: Link,
        owner: Callable[[], UUID],
        stamp: Callable[[], int | None],
        lost: Callable[[list[Holding]], None],
        meters: Meters,
    ) -> None:
        self._link = link
        self._owner = owner
        self._stamp = stamp
        self._lost = lost
        self._meters = meters
        self._dirty: dict[int, Holding] = {}
        self._busy = False
        self._asked = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mqueue-commit")

    def ask(self, holding: Holding) -> None:
        """There is something to commit. All that is handed in during one turn of the loop goes together."""
        self._dirty[holding.vshard] = holding
        if not self._asked and not self._busy:
            self._asked = True
            asyncio.get_running_loop().call_soon(self._begin)

    def close(self) -> None:
        self._thread.shutdown(wait=True)
        self._link.close()

    def _begin(self) -> None:
        self._asked = False
        dirty, self._dirty = self._dirty, {}
        jobs = [job for holding in dirty.values() if holding.lost is None and (job := holding.cut()) is not None]
        if not jobs:
            return
        self._busy = True
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._thread, self._commit, jobs)
        future.add_done_callback(lambda done: self._end(jobs, done))

    def _commit(self, jobs: list[Job]) -> list[Appended]:
        """In the thread."""
        entries = [entry for job in jobs if (entry := job.entry()) is not None]
        sheets = [sheet for job in jobs for sheet in job.sheets()]
        late = [one for job in jobs for one in job.batch.late]
        placed = self._measured(entries, sheets, late)
        for job in jobs:
            self._tell_catalog(job)
        return placed

    def _measured(
        self, entries: list[Entry], sheets: list[Sheet], late: list[tuple[int, int, int, int, int]]
    ) -> list[Appended]:
        meters, begun = self._meters, time.monotonic()
        meters.commits += 1
        try:
            placed = journal.commit(self._link, self._owner(), entries, sheets, self._stamp(), late=late)
        except BaseException:
            meters.commit_failures += 1
            raise
        finally:
            meters.commit_seconds += time.monotonic() - begun
        meters.commit_rows += len(entries) + sum(sheet.count for sheet in sheets)
        return placed

    def _tell_catalog(self, job: Job) -> None:
        """Settings and deleted topics, for all nodes to see. Whoever takes over makes up for what is missed here."""
        epoch = job.holding.epoch
        for event in job.batch.events:
            if isinstance(event, TopicSet):
                catalog.set_topic(self._link, self._owner(), epoch, event.topic, msgspec.msgpack.encode(event.settings))
            elif isinstance(event, TopicDropped):
                catalog.drop_topic(self._link, self._owner(), epoch, event.topic, self._stamp())

    def _end(self, jobs: list[Job], done: asyncio.Future[list[Appended]]) -> None:
        self._busy = False
        problem = done.exception()
        if problem is None:
            places = iter(done.result())
            for job in jobs:
                placed = [next(places) for _ in job.batch.promises]
                if job.holding.lost is None:
                    job.holding.landed(job, placed)
        else:
            why = reason(problem)
            holdings = [job.holding for job in jobs]
            for holding in holdings:
                holding.lose(why)
            self._lost(holdings)
        if self._dirty:
            self._begin()
