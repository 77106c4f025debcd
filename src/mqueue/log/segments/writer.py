"""Writing the log: batches as commits into segments, and making them durable. The order in which things are made safe:

- a new segment: its header is synced, then the directory, and only then is anything written into it;
- before that the old segment is synced, so all segments but the last are durable as a whole;
- an answer goes out only after `sync`; if a sync fails, nothing is believed any more.

One thread writes at a time, one syncs at a time; both may happen at once. Knows no partitions and no events.
"""

from __future__ import annotations

import errno
import threading
from collections import deque
from contextlib import suppress
from typing import Protocol

from mqueue.log.segments import poison, segment
from mqueue.log.segments.commit import Link
from mqueue.log.segments.committer import Batch, encode
from mqueue.log.segments.disk import Disk
from mqueue.log.segments.reserve import NO_ROOM, Reserve
from mqueue.log.segments.segment import Segment
from mqueue.model.errors import DiskFull, Poisoned, Unavailable

_SMALL_BYTES = 16 * 1024
_NO_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_AHEAD_BYTES = 256 * 1024


class Gauge(Protocol):
    """Whoever wants to know how large commits are and how long the disk takes. Called by the thread that commits."""

    def begin(self) -> float:
        """Something is about to be done: the time, in whatever is handed back."""

    def wrote(self, since: float, length: int) -> None:
        """A commit of so many bytes was packed and written."""

    def synced(self, since: float) -> None: ...


class Writer:
    def __init__(
        self,
        disk: Disk,
        uuid: bytes,
        epoch: int,
        link: Link,
        active: Segment | None,
        segment_bytes: int,
        reserve: Reserve,
    ) -> None:
        self._disk = disk
        self._uuid = uuid
        self._epoch = epoch
        self._segment_bytes = segment_bytes
        self._reserve = reserve
        self.waiting: deque[Batch] = deque()
        """Batches that are not written; more than one only if there was no room."""
        self.landed: deque[Batch] = deque()
        """Batches that are written, for the log to take note of."""
        self.begun: deque[Segment] = deque()
        """Segments that were begun, for the log to take note of."""
        self.link = link
        """What the next commit goes on from."""
        self.active = active
        self._allocated = 0 if active is None else disk.size(active.file)
        """How long the file of the active segment is."""
        self.written = 0
        """The number of the last batch that was written."""
        self.synced = 0
        """The number of the last batch that is durable."""
        self.synced_position = link.position
        self._rising = threading.Lock()
        self.stuck = False
        """There was no room for a batch: it has to go first."""
        self.dead = ""
        """Why nothing can be written any more."""
        self.gauge: Gauge | None = None

    def write(self, batches: list[Batch]) -> None:
        """Write batches, behind any that had no room before."""
        self.check()
        try:
            self.waiting += batches
            while self.waiting:
                self._put(self.waiting[0])
                self.landed.append(self.waiting.popleft())
            self.stuck = False
        except Exception:
            raise
        except BaseException:
            self.die("it was interrupted while it wrote")
            raise

    def has_room(self, pending_bytes: int) -> bool:
        """Whether so much more fits the active segment."""
        if self.active is None:
            return False
        return self.link.position - self.active.start + 2 * pending_bytes < self._segment_bytes

    def mark(self) -> tuple[int, int, Segment | None]:
        """How far the log is written, and in which segment. Nobody may write meanwhile."""
        return self.written, self.link.position, self.active

    def sync_to(self, number: int, position: int, active: Segment) -> None:
        """Make durable what was written when `mark` was asked. Others may write meanwhile."""
        self.check()
        since = self.gauge.begin() if self.gauge is not None else 0
        try:
            self._disk.sync(active.file)
        except OSError as error:
            if not active.sealed:  # else whoever sealed it has synced it, and its file may be closed by now
                raise self._failed(error) from error
        self._rise(number, position)
        if self.gauge is not None:
            self.gauge.synced(since)

    def _rise(self, number: int, position: int) -> None:
        """Whoever syncs and whoever begins a segment may come here at once: what is durable stays so."""
        with self._rising:
            self.check()  # what is noted as believed no longer rises: nobody may be answered beyond it
            if number > self.synced:
                self.synced, self.synced_position = number, position

    def check(self) -> None:
        if self.dead:
            raise Poisoned(self.dead)

    def _put(self, batch: Batch) -> None:
        """Write one batch. If there is no room the reserve is given up for it."""
        try:
            self._commit(batch)
        except (ArithmeticError, TypeError, ValueError) as error:  # a batch that has no form in bytes: a fault of ours
            self.die(f"a commit could not be packed ({error!r})")
            raise Poisoned(self.dead) from error
        except OSError as error:
            self._judge(error)
            if error.errno in _NO_FILES:
                self.stuck = True
                raise Unavailable(f"no new segment could be begun: {error}", code="no_files", applied=None) from error
            if self._reserve.release():
                self._put(batch)
                return
            self.stuck = True
            raise DiskFull(f"no room for the log: {error}; it goes on when there is some", applied=None) from error

    def _commit(self, batch: Batch) -> None:
        active = self.active
        since = self.gauge.begin() if self.gauge is not None else 0
        if active is None or self.link.position - active.start >= self._segment_bytes:
            active = self._roll()
        data, link = encode(batch, self.link, active.start, self._epoch, self.synced_position)
        self._pwrite(active.file, data, active.place(self.link.position))
        self.link = link
        active.end = link.position
        self.written = batch.number
        if self.gauge is not None:
            self.gauge.wrote(since, len(data))

    def _pwrite(self, file: int, data: bytes, place: int) -> None:
        """Small commits at the end of a file take some zeros along: the next ones overwrite those, and need not wait
        until the file system has noted a new size. A sync takes 130 µs then instead of 190."""
        end = place + len(data)
        if end > self._allocated and len(data) <= _SMALL_BYTES:
            try:
                self._disk.pwrite(file, data.ljust(len(data) + _AHEAD_BYTES, b"\0"), place)
            except OSError as error:
                self._judge(error)  # no room for zeros: perhaps there is for the data
            else:
                self._allocated = end + _AHEAD_BYTES
                return
        self._disk.pwrite(file, data, place)
        self._allocated = max(self._allocated, end)

    def _roll(self) -> Segment:
        """Begin a new segment. The old one is durable as a whole from now on."""
        if self.active is not None:
            self._disk.truncate(self.active.file, self.active.place(self.link.position))
            self._sync(self.active.file)
            self._rise(self.written, self.link.position)
        start = self.link.position
        file = self._disk.open(segment.name_of(start), create=True)
        self._disk.pwrite(file, segment.pack(self._uuid, self.link), 0)
        self._sync(file)
        self._disk.sync_dir()
        if self.active is not None:
            self.active.sealed = True
        self.active = Segment(start, file, start, self.link, sealed=False)
        self._allocated = segment.HEADER_BYTES
        self.begun.append(self.active)
        return self.active

    def _sync(self, file: int) -> None:
        """If this fails once, the kernel may have dropped what it could not write, and would not tell a second time."""
        try:
            self._disk.sync(file)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> Poisoned:
        self.die(f"the disk failed to sync ({error}); nothing after position {self.synced_position} is believed")
        return Poisoned(self.dead)

    def _judge(self, error: OSError) -> None:
        """No room, or no file, is something one can wait for; anything else is the end."""
        if error.errno not in (*NO_ROOM, *_NO_FILES):
            self.die(f"the disk failed to write ({error})")
            raise Poisoned(self.dead) from error

    def die(self, why: str) -> None:
        """Nothing is written any more."""
        with self._rising:
            self.dead = self.dead or f"{why}; open the data directory again"
        with suppress(OSError):  # if even this cannot be written, the next start has to believe what it reads
            poison.save(self._disk, self.synced_position)
