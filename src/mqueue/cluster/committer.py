"""Group commit of everything that a node changes on one PostgreSQL server: one statement, one transaction.

What was handed in while the last commit ran goes with the next. A commit that fails, or of which nobody knows what
became of it, ends every holding that took part: what they remember is not to be believed any more.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import msgspec

from mqueue.cluster.holding import Holding, Job
from mqueue.cluster.meters import Meters
from mqueue.cluster.problems import REFUSALS, doubtful, reason
from mqueue.log.postgres import journal
from mqueue.log.postgres.appends import Appended, Sheet
from mqueue.log.postgres.journal import Change, Entry, Noted
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.problems import Ended
from mqueue.model.errors import Error
from mqueue.model.events import TopicDropped, TopicSet

LOGGER = logging.getLogger("mqueue.cluster")


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

    def _commit(self, jobs: list[Job]) -> list[list[Appended] | Exception]:
        """In the thread: what came of each. If all of them are refused because of one, each goes by its own statement:
        others are not to blame."""
        try:
            places = iter(self._write(jobs))
        except REFUSALS as problem:
            if len(jobs) == 1:
                return [problem]
            return [outcome for job in jobs for outcome in self._commit([job])]
        except Exception as problem:  # theirs alone: others may be durable already
            return [problem] * len(jobs)
        return [[next(places) for _ in job.batch.promises] for job in jobs]

    def _write(self, jobs: list[Job]) -> list[Appended]:
        entries = [entry for job in jobs if (entry := job.entry()) is not None]
        sheets = [sheet for job in jobs for sheet in job.sheets()]
        late = [(job.holding.vshard, job.holding.epoch, *one) for job in jobs for one in job.batch.late]
        changes = [change for job in jobs for change in _changes(job)]
        return self._measured(entries, sheets, late, changes, any(job.batch.quorum for job in jobs))

    def _measured(
        self, entries: list[Entry], sheets: list[Sheet], late: list[Noted], changes: list[Change], quorum: bool
    ) -> list[Appended]:
        meters, begun = self._meters, time.monotonic()
        meters.commits += 1
        try:
            placed = journal.commit(
                self._link, self._owner(), entries, sheets, self._stamp(), late=late, changes=changes, quorum=quorum
            )
        except BaseException:
            meters.commit_failures += 1
            raise
        finally:
            meters.commit_seconds += time.monotonic() - begun
        meters.commit_rows += len(entries) + sum(sheet.count for sheet in sheets)
        return placed

    def _end(self, jobs: list[Job], done: asyncio.Future[list[list[Appended] | Exception]]) -> None:
        self._busy = False
        for job, outcome in zip(jobs, done.result(), strict=True):
            if isinstance(outcome, list):
                self._land(job, outcome)
            else:
                told = reason(outcome)
                self._give_up(job.holding, doubtful(told) if isinstance(outcome, Ended) else told)
        if self._dirty:
            self._begin()

    def _land(self, job: Job, placed: list[Appended]) -> None:
        """Whatever goes wrong with one of them, the others are answered."""
        if job.holding.lost is not None:
            return
        try:
            job.holding.landed(job, placed)
        except Exception as problem:
            LOGGER.exception("virtual shard %d is loaded again", job.holding.vshard)
            self._give_up(job.holding, doubtful(reason(problem)))

    def _give_up(self, holding: Holding, why: Error) -> None:
        holding.lose(why)
        self._lost([holding])


def _changes(job: Job) -> Iterator[Change]:
    """Settings and deleted topics, for all nodes to see."""
    epoch = job.holding.epoch
    for event in job.batch.events:
        if isinstance(event, TopicSet):
            yield Change(event.topic, epoch, msgspec.msgpack.encode(event.settings))
        elif isinstance(event, TopicDropped):
            yield Change(event.topic, epoch, None)
