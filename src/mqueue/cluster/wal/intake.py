"""Group commit into the log of a node: all that came while the last one was made durable goes with the next.

One write, one sync and, at the same time, one step to Redis; who published is answered when both are done. What Redis
lacks of what is on its way before that, it gets anew. Where Redis fails he is answered when the shard has it. Where the
disk fails everything goes straight to the shard, now and from then on. Lives in the loop of the estate.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from uuid import UUID

from msgspec.structs import force_setattr

from mqueue.cluster.redis.line import Away
from mqueue.cluster.tickets import Ticket, answered
from mqueue.cluster.wal.copies import Copies
from mqueue.cluster.wal.flush import BYTES_MAX, FRAMES_MAX, affordable
from mqueue.cluster.wal.flusher import Flusher, Kept
from mqueue.cluster.wal.nodelog import NodeLog
from mqueue.cluster.wal.records import pack, pack_copy
from mqueue.log.postgres.appends import Sheet
from mqueue.log.postgres.batch import Batch, Promise
from mqueue.model.errors import Unavailable
from mqueue.model.message import WAL

LOGGER = logging.getLogger("mqueue.cluster")

PATIENCE_SECONDS = 10.0
"""So long somebody waits for the shard whose messages are in the log, but not in Redis."""


class Intake:
    """`owner` is our session; `sheet` makes of a promise what goes to the shard; `instead` takes those who cannot be
    served here, with what they published."""

    def __init__(
        self,
        log: NodeLog,
        copies: Copies,
        flusher: Flusher,
        owner: Callable[[], UUID],
        sheet: Callable[[Promise], Sheet],
        instead: Callable[[list[Promise], list[Ticket]], None],
    ) -> None:
        self.batch = Batch(1)
        """What is being gathered."""
        self._log = log
        self._copies = copies
        self._flusher = flusher
        self._owner = owner
        self._sheet = sheet
        self._instead = instead
        self._cuts: list[Batch] = []
        self._tickets: list[Ticket] = []
        self._late: list[Ticket] = []
        """Who waits for the shard."""
        self._task: asyncio.Task[None] | None = None
        self._looking: Future[None] | None = None
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="mqueue-wal")
        self._line = ThreadPoolExecutor(1, thread_name_prefix="mqueue-wal-copy")

    @property
    def ready(self) -> bool:
        """Whether there is a point in handing in something here."""
        if self._log.full and (self._looking is None or self._looking.done()):
            self._looking = self._disk.submit(self._log.look)
        return not self._log.dead and not self._log.full and not self._copies.away

    def gathered(self) -> None:
        """A call is over. What is large enough is a commit of its own: the shard gets each with one statement."""
        batch = self.batch
        frames = [promise.frame for promise in batch.promises]
        if len(frames) >= FRAMES_MAX or sum(frame.size for frame in frames) >= BYTES_MAX:
            self._cut()

    def wait(self, promises: list[Promise]) -> Awaitable[None]:
        """Something to await until these are safe."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tickets.append((promises, future))
        if self._task is None:
            self._task = asyncio.create_task(self._work(), name="mqueue-wal")
        return future

    def settled(self, positions: list[int]) -> None:
        """Commits are in the shard: their copies may go, and who waits for that is told."""
        self._line.submit(self._drop, positions)
        self._late = answered(self._late)

    async def close(self) -> None:
        """Until nothing is under way."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def end(self) -> None:
        for thread in (self._disk, self._line):
            thread.shutdown(wait=True)

    def _cut(self) -> None:
        if self.batch.promises:
            self._cuts.append(self.batch)
            self.batch = Batch(self.batch.number + 1)

    async def _work(self) -> None:
        try:
            await asyncio.sleep(0)  # all that is handed in during one turn of the loop goes together
            while self.batch.promises or self._cuts:
                self._cut()
                batches, self._cuts = self._cuts, []
                tickets, self._tickets = self._tickets, []
                await self._commit(batches, tickets)
        finally:
            self._task = None

    async def _commit(self, batches: list[Batch], tickets: list[Ticket]) -> None:
        loop = asyncio.get_running_loop()
        try:
            kept, copies = await loop.run_in_executor(self._disk, self._write, batches)
        except Exception as problem:
            self._failed(problem, batches, tickets)
            return
        syncing = loop.run_in_executor(self._disk, self._log.sync)
        synced, copied = await asyncio.gather(syncing, self._copied(copies), return_exceptions=True)
        if isinstance(synced, BaseException):
            self._failed(synced, batches, tickets)
            return
        if copied is True:
            _answer(batches, tickets)
        else:
            self._late += tickets
            loop.call_later(PATIENCE_SECONDS, self._give_up, [future for _, future in tickets])
        self._flusher.add(kept)

    async def _copied(self, commits: list[tuple[int, bytes]]) -> bool:
        """Whether Redis has them, and all that has to go into the shard before them."""
        loop = asyncio.get_running_loop()
        try:
            copied = await loop.run_in_executor(self._line, self._copy, commits, self._flusher.last)
            return copied or await loop.run_in_executor(self._line, self._copy_anew, self._flusher.all, commits)
        except Away as away:
            LOGGER.warning("what was published with durability 'wal' is answered when the shard has it: %s", away)
            return False

    def _failed(self, problem: BaseException, batches: list[Batch], tickets: list[Ticket]) -> None:
        """The disk, or we, have failed: nothing of these counts in the log, and nothing is written there any more.

        Should some of it be found there all the same, or in Redis, the shard knows that it has it.
        """
        LOGGER.error("the log of the node is given up, everything goes straight to the shard: %s", problem)
        self._log.end(str(problem))
        self._instead([promise for batch in batches for promise in batch.promises], tickets)

    # In threads

    def _write(self, batches: Sequence[Batch]) -> tuple[list[Kept], list[tuple[int, bytes]]]:
        groups: list[list[bytes]] = []
        sheets: list[list[Sheet]] = []
        for batch in batches:
            for promise in batch.promises:
                promise.seal()
                promise.frame.stamp(-promise.frame.count, promise.id, batch.at)
            sheets.append([self._sheet(promise) for promise in batch.promises])
            groups.append([pack(sheet) for sheet in sheets[-1]])
        places = self._log.write(groups, batches[-1].at)
        kept = [
            Kept(start, stop, own, batch.promises, batch.at)
            for (start, stop), own, batch in zip(places, sheets, batches, strict=True)
        ]
        return kept, [(start, pack_copy(start, group)) for (start, _), group in zip(places, groups, strict=True)]

    def _copy(self, commits: Sequence[tuple[int, bytes]], after: int | None) -> bool:
        """Whether Redis has them. False: it lacks the one that they come after."""
        return self._copies.put(self._log.uuid, self._owner(), commits, after)

    def _copy_anew(self, kept: Sequence[Kept], commits: list[tuple[int, bytes]]) -> bool:
        """The same, with what it lacks of those that are kept."""
        held = self._copies.positions(self._log.uuid)
        there = max((number for number, one in enumerate(kept) if one.start in held), default=-1)
        after = kept[there].start if there >= 0 else None
        lost = deque(kept[there + 1 :])
        if lost:
            LOGGER.warning("Redis lacks %d commits of the log %s: they go there again", len(lost), self._log.uuid.hex)
        while lost:
            part = [lost.popleft() for _ in affordable(lost)]
            if not self._copy([(one.start, pack_copy(one.start, list(map(pack, one.sheets)))) for one in part], after):
                return False
            after = part[-1].start
        return self._copy(commits, after)

    def _drop(self, positions: list[int]) -> None:
        try:
            self._copies.drop(self._log.uuid, positions)
        except Away:  # who finds them later is told by the shard that it has them
            return

    # Answers

    def _give_up(self, futures: list[asyncio.Future[None]]) -> None:
        for future in futures:
            if not future.done():
                why = "what was published is in the log of this node; neither Redis nor the shard have taken it so far"
                future.set_exception(Unavailable(why, code="not_written", applied=None, retry_after=1))


def _answer(batches: list[Batch], tickets: list[Ticket]) -> None:
    """It is in the log and in Redis. Receipts say so, and stay so when the shard has it."""
    for batch in batches:
        for promise in batch.promises:
            for _, receipt in promise.receipts:
                force_setattr(receipt, "durability", WAL)
                force_setattr(receipt, "offset", -1)
            promise.receipts = []
    for _, future in tickets:
        if not future.done():
            future.set_result(None)
