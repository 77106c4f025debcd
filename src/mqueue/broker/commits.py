"""Group commit: what many callers handed in becomes durable by one write and one sync.

Called from threads, the first who needs it leads: he writes and syncs for everybody who came meanwhile; the others wait
for him. In an event loop nobody may block, so a thread leads, and callers await it.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import AbstractContextManager, suppress
from queue import SimpleQueue
from types import FrameType, TracebackType
from typing import Any, Protocol, TypeAlias

from mqueue.log.segments.log import NOTHING, SYNCED, WRITTEN, SegmentLog
from mqueue.model.errors import Closed, DiskFull, Poisoned, Refused
from mqueue.model.limits import MIB

PENDING_BYTES_MAX = 64 * MIB
"""If more was handed in than this and is not written, whoever comes next writes it first."""
_CROWD = 8
"""A leader waits for more to come only if so many did the last time: a few with large batches would lose by it."""
LAST = 1 << 62
LEVELS = {"memory": NOTHING, "os": WRITTEN, "fsync": SYNCED}
"""What `durability` asks of a log on disk."""


class Commits:
    """`lock` guards the log's verbs; it is held for a moment only, never while the disk works."""

    def __init__(self, log: SegmentLog, lock: AbstractContextManager[object]) -> None:
        self._log = log
        self._lock = lock
        self._writing = threading.Lock()
        self._mutex = threading.Lock()
        self._leading = False
        self._followers: list[tuple[int, threading.Lock]] = []
        self._crowd = 0
        """How many followed the last leader."""

    @property
    def synced(self) -> int:
        return self._log.writer.synced

    @property
    def written(self) -> int:
        return self._log.writer.written

    def reach(self, batch: int, wants: int) -> None:
        """Return when a batch is as safe as it has to be."""
        if wants == WRITTEN:
            self.write(batch)
        else:
            self.sync(batch)

    def write(self, batch: int) -> None:
        """Everything up to a batch is written, so that only a power cut can take it away."""
        writer = self._log.writer
        if writer.written < batch:
            with self._writing:
                if writer.written < batch:
                    self._write()

    def write_now(self, batch: int) -> bool:
        """The same, unless that could take long: somebody writes already, or a new segment has to be begun."""
        if self._log.writer.written >= batch:
            return True
        if not self._writing.acquire(blocking=False):
            return False
        try:
            if not self._log.writer.has_room(self._log.pending_bytes):
                return False
            self._write()
            return True
        finally:
            self._writing.release()

    def prove(self) -> None:
        """Write once more how far the log is durable: a commit of its own, with nothing in it."""
        with self._writing:
            self._write(empty=True)

    def sync(self, batch: int) -> None:
        """Everything up to a batch is durable."""
        writer = self._log.writer
        while writer.synced < batch:
            writer.check()
            try:
                turn = self._follow(batch)
                if turn is None:
                    self._lead()
            except BaseException as error:
                self._end(error)
                self._hand_over()
                raise
            if turn is None:
                self._hand_over()
            else:
                turn.acquire()  # until the leader is done

    def _write(self, *, empty: bool = False) -> None:
        """Take what was handed in, and write it."""
        try:
            with self._lock:
                taken = self._log.take(empty=empty)
            self._log.writer.write(taken)
        except BaseException as error:
            self._end(error)
            raise

    def _end(self, error: BaseException) -> None:
        """An interrupt may come anywhere: what was taken may be in nobody's hands."""
        if not isinstance(error, Exception):
            self._log.writer.die("a commit was interrupted")

    def _follow(self, batch: int) -> threading.Lock | None:
        """Something to wait at while another leads; None: lead."""
        with self._mutex:
            if not self._leading:
                self._leading = True
                return None
            turn = threading.Lock()
            turn.acquire()
            self._followers.append((batch, turn))
            return turn

    def _lead(self) -> None:
        writer = self._log.writer
        if self._crowd >= _CROWD:
            self._let_gather()
        with self._writing:
            self._write()
            number, position, active = writer.mark()
        if active is not None and number > writer.synced:
            writer.sync_to(number, position, active)

    def _let_gather(self) -> None:
        """Many were woken just now, and are about to come back: with them a commit is twice as large. 64 threads that
        publish: 59 messages per sync instead of 27."""
        seen = -1
        while len(self._followers) > seen:
            seen = len(self._followers)
            time.sleep(0)

    def _hand_over(self) -> None:
        """Wake those whose batch is durable, and one more to lead for the rest. After a failure: all of them."""
        writer = self._log.writer
        with self._mutex:
            self._leading = False
            self._crowd = len(self._followers)
            synced = LAST if writer.dead else writer.synced  # read once: it may rise meanwhile
            done = [turn for batch, turn in self._followers if batch <= synced]
            rest = [one for one in self._followers if one[0] > synced]
            if rest:
                done.append(rest.pop(0)[1])
            self._followers = rest
        for turn in done:
            turn.release()


class Gate:
    """Stands where the lock of an engine is: whoever leaves waits until what he handed in is safe."""

    levels = LEVELS

    def __init__(self, log: SegmentLog) -> None:
        self._log = log
        self._lock: Any = threading.RLock()  # not to go in twice, but because it knows who is in
        self._caller: FrameType | None = None
        """Who is in."""
        self.commits = Commits(log, self._lock)

    def at(self, level: int) -> Gate | Lowered:
        """The same, for a call that is content with less."""
        return self if level == SYNCED else Lowered(self, level)

    def __enter__(self) -> None:
        self.enter(sys._getframe(1))

    def enter(self, caller: FrameType) -> None:
        log = self._log
        writer = log.writer
        if self._lock._is_owned():
            self._check_leftover()
        if writer.stuck or log.pending_bytes > PENDING_BYTES_MAX:
            self._make_way()
        try:
            self._lock.acquire()
            self._caller = caller
            if writer.dead:
                raise Poisoned(writer.dead, applied=False)
            if writer.landed or log.unsafe:
                log.catch_up()
            log.wants = NOTHING
        except BaseException as error:  # an interrupt, too, must not leave it locked
            if self._lock._is_owned() and not isinstance(error, Exception):
                writer.die("a call was interrupted")
            self._release()
            raise

    def _check_leftover(self) -> None:
        """This thread is inside already: it is a signal handler, or was interrupted just when it was about to leave."""
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if frame is self._caller:
                raise Refused(
                    "a call inside a call: a signal handler cannot use the broker; let it set a flag", code="reentered"
                )
            frame = frame.f_back
        self._release()

    def confirm(self) -> None:
        """Whoever is in waits until all that was handed in so far is durable, also by others."""
        self._log.wants = SYNCED

    def acquire(self, blocking: bool = True) -> bool:
        """Go in without waiting at the end: somebody else will commit what is handed in."""
        if self._lock._is_owned() or not self._lock.acquire(blocking):
            return False
        self._log.catch_up()
        self._log.wants = NOTHING
        return True

    def release(self) -> None:
        self._lock.release()

    def _release(self) -> None:
        while self._lock._is_owned():
            self._caller = None
            self._lock.release()

    def _make_way(self) -> None:
        """Write what waits. If there is no room for it nothing more is taken in."""
        try:
            self.commits.write(self._log.batch)
        except DiskFull as full:
            raise DiskFull(full.message) from full

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave(SYNCED, kind)

    def leave(self, level: int, kind: type[BaseException] | None) -> None:
        try:
            wants, batch = min(self._log.wants, level), self._log.batch
            if kind is not None and not issubclass(kind, Exception):
                self._log.writer.die("a call was interrupted in the middle; what it did is not whole")
                wants = NOTHING
        finally:
            self._release()
        if wants:
            self.wait(batch, wants)

    def wait(self, batch: int, wants: int) -> None:
        self.commits.reach(batch, wants)

    def close(self) -> None:
        """Nobody waits any more."""


class Lowered:
    def __init__(self, gate: Gate, level: int) -> None:
        self._gate = gate
        self._level = level

    def __enter__(self) -> None:
        self._gate.enter(sys._getframe(1))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._gate.leave(self._level, kind)


class Deferred(Gate):
    """The gate of an event loop: leaving it never blocks. What is to be waited for is awaited with `committed`."""

    def __init__(self, log: SegmentLog) -> None:
        super().__init__(log)
        self._mutex = threading.Lock()
        self._asked: list[Ticket] = []
        """Who waits until it is synced: by the thread."""
        self._light: list[Ticket] = []
        """Who waits until it is written: by the loop itself, at the end of its turn."""
        self._kicks: SimpleQueue[bool] = SimpleQueue()
        """True: there is something to commit; False: it was the last."""
        self._kicked: set[asyncio.AbstractEventLoop] = set()
        """Loops that will kick at the end of their turn."""
        self._thread: threading.Thread | None = None
        self._closed = False

    def wait(self, batch: int, wants: int) -> None:
        WAITS.open.append((self, batch, wants))

    def ticket(self, batch: int, wants: int) -> Awaitable[None]:
        """Something to await. All that the tasks of a loop hand in, in one turn of it, goes with one commit."""
        if self.commits.synced >= batch or (wants == WRITTEN and self.commits.written >= batch):
            return DONE
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._mutex:
            if self._closed:
                raise Closed("the broker is closed", applied=None)
            (self._asked if wants == SYNCED else self._light).append((batch, loop, future))
            if loop not in self._kicked:
                self._kicked.add(loop)
                loop.call_soon(self._kick, loop)
        return future

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            asked, self._asked, light, self._light = self._asked, [], self._light, []
        if self._thread is not None:
            self._kicks.put(False)
            self._thread.join()
        for tickets, commit in ((asked, self.commits.sync), (light, self.commits.write)):
            _answer(tickets, self._fails(commit, tickets))

    def _kick(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._mutex:
            self._kicked.discard(loop)
            light, self._light = self._light, []
            if self._asked and not self._closed:
                self._start()
        if light:
            self._write_light(light)

    def _write_light(self, light: list[Ticket]) -> None:
        """Into the page cache: quicker than asking a thread to do it, unless it could take long."""
        done = False

        def write(batch: int) -> None:
            nonlocal done
            done = self.commits.write_now(batch)

        failure = self._fails(write, light)
        if done or failure is not None:
            _answer(light, failure)
            return
        with self._mutex:
            if not self._closed:
                self._asked += light
                self._start()
                return
        _answer(light, self._fails(self.commits.write, light))

    def _start(self) -> None:
        """Have the thread commit."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mqueue-commits", daemon=True)
            self._thread.start()
        self._kicks.put(True)

    def _run(self) -> None:
        while self._kicks.get():
            with self._mutex:
                asked, self._asked = self._asked, []
            _answer(asked, self._fails(self.commits.sync, asked))

    def _fails(self, commit: Callable[[int], None], asked: list[Ticket]) -> Exception | None:
        """Commit for those who wait; what went wrong is for them."""
        try:
            commit(max((batch for batch, _, _ in asked), default=0))
        except Exception as failure:
            return failure
        return None


class Ticketing(Protocol):
    def ticket(self, batch: int, wants: int) -> Awaitable[None]:
        """To be awaited until a batch is as safe as that."""


Ticket: TypeAlias = tuple[int, asyncio.AbstractEventLoop, "asyncio.Future[None]"]
"""Who waits for which batch."""


def _answer(asked: Iterable[Ticket], error: Exception | None) -> None:
    """Tell everybody, with one wake-up for each loop."""
    loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for _, loop, future in asked:
        loops.setdefault(loop, []).append(future)
    for loop, futures in loops.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, futures, error)


def _resolve(futures: list[asyncio.Future[None]], error: BaseException | None) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None) if error is None else future.set_exception(error)


class _Waits(threading.local):
    def __init__(self) -> None:
        self.open: list[tuple[Ticketing, int, int]] = []
        """What the calls of this thread have still to wait for."""


WAITS = _Waits()


class _Done:
    """Nothing to wait for."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


DONE = _Done()


def committed() -> Awaitable[None]:
    """To be awaited until what the calls made just now handed in is durable. In between nothing may be awaited."""
    waits = WAITS.open
    if not waits:
        return DONE
    if len(waits) > 1:
        return _all_committed()
    gate, batch, wants = waits.pop()
    return gate.ticket(batch, wants)


async def _all_committed() -> None:
    """All of them, also if one fails."""
    waits, WAITS.open = WAITS.open, []
    failure: Exception | None = None
    for gate, batch, wants in waits:
        try:
            await gate.ticket(batch, wants)
        except Exception as error:
            failure = error
    if failure is not None:
        raise failure


def disregard() -> None:
    """Nobody waits for what the calls made just now handed in: it goes with some later commit."""
    WAITS.open.clear()


async def settled() -> None:
    """The same after a call that failed: that is what its caller is told. What it handed in all the same is durable."""
    if WAITS.open:
        with suppress(Exception):
            await _all_committed()
