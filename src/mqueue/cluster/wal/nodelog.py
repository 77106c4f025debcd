"""The log of one life of a node at one server: written, synced, and given up from the front.

It is the log of the embedded broker without what makes that a queue: segments of commits, and a file that says from
where on they count. A life never writes into what an earlier one left: it has a directory and a uuid of its own. So no
two writers ever mean different things by one position, whatever was copied, cut or restored in between.

    <directory>/LOCK            nobody else uses the directory
    <directory>/<uuid>/         a log: what is in it is flushed by its uuid
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from uuid import UUID, uuid4

from msgspec.structs import replace

from mqueue.cluster.wal.records import Stretch, stretch_of
from mqueue.log.segments import checkpoint
from mqueue.log.segments.cache import Cache
from mqueue.log.segments.checkpoint import Saved
from mqueue.log.segments.committer import Batch, Packed
from mqueue.log.segments.disk import CLOSED, Disk, RealDisk
from mqueue.log.segments.recovery import Recovery
from mqueue.log.segments.reserve import Reserve
from mqueue.log.segments.segment import Segment
from mqueue.log.segments.shelf import Shelf
from mqueue.log.segments.writer import Writer
from mqueue.model.errors import Error

SEGMENT_BYTES = 16 << 20
_RESERVE_BYTES = 1 << 20
_GONE = ".gone"


class NodeLog:
    """One thread writes, another may trim. After any failure it is dead: what was written then counts for nothing."""

    def __init__(self, disk: Disk, uuid: UUID, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Begin a log in an empty directory that is locked."""
        opened = Recovery(disk, lambda length: uuid.bytes, False).open()
        self.uuid = uuid
        self._disk = disk
        self._reserve = Reserve(disk, _RESERVE_BYTES)
        self._writer = Writer(disk, uuid.bytes, opened.epoch, opened.link, None, segment_bytes, self._reserve)
        self._segments: list[Segment] = []
        self._guard = threading.Lock()
        """Held while they change."""
        self._number = 0
        self._told: deque[int] = deque([0], 2)
        """The positions of the last two checkpoints: what lies before the older one may go."""
        self.look()

    @property
    def dead(self) -> str:
        """Why nothing is written any more; empty while it is."""
        return self._writer.dead

    @property
    def full(self) -> str:
        """Why nothing should be written just now; empty while it may."""
        return self._reserve.full

    def write(self, groups: Sequence[Sequence[bytes]], at: int) -> list[tuple[int, int]]:
        """A commit of each group of records; where each begins and ends. Not durable before `sync`."""
        batches = []
        for records in groups:
            self._number += 1
            batches.append(Batch(self._number, [Packed(record) for record in records], at))
        try:
            self._writer.write(batches)
        except Error as problem:  # what had no room would be written later, and nobody waits for it any more
            self.end(problem.message)
            raise
        self._writer.landed.clear()
        with self._guard:
            while self._writer.begun:
                self._segments.append(self._writer.begun.popleft())
        return [(batch.position, batch.end) for batch in batches]

    def stretches(self, start: int, stop: int) -> Iterator[Stretch]:
        """What was written between two positions, read from the disk. What has gone from there comes as nothing."""
        with self._guard:
            segments = [replace(segment, file=CLOSED) for segment in self._segments]
        shelf = Shelf(self._disk, segments, Cache(0))
        try:
            for data, offset, commit in shelf.commits(start):
                if commit.end > stop:
                    break
                if commit.position > start:
                    yield Stretch(start, commit.position, [])
                yield stretch_of(data, offset, commit)
                start = commit.end
        finally:
            shelf.close()
        if start < stop:
            yield Stretch(start, stop, [])

    def sync(self) -> None:
        """What was written survives a power cut."""
        number, position, active = self._writer.mark()
        if active is not None:
            self._writer.sync_to(number, position, active)

    def end(self, why: str) -> None:
        """Nothing is written any more, and what is not durable by now does not count."""
        self._writer.die(why)

    def may_trim(self, position: int) -> bool:
        """Whether something can go once everything before a position is elsewhere."""
        with self._guard:
            return any(segment.sealed and segment.end <= position for segment in self._segments)

    def trim(self, position: int) -> None:
        """Everything before a position is in the shard: that was read back. What goes was noted so twice."""
        if position > self._told[-1]:
            checkpoint.save(self._disk, Saved(self.uuid.bytes, position, 0, 0, {}))
            self._told.append(position)
        with self._guard:
            dead = [segment for segment in self._segments if segment.sealed and segment.end <= self._told[0]]
            self._segments = [segment for segment in self._segments if segment not in dead]
        for segment in dead:
            self._disk.close(segment.file)
            self._disk.unlink(segment.name)

    def look(self) -> None:
        """See whether there is room. Called now and then."""
        if not self.dead:
            with suppress(OSError):
                self._reserve.keep()

    def close(self) -> None:
        """What is in it stays."""
        for segment in self._segments:
            self._disk.close(segment.file)
        self._segments.clear()
        self._disk.unlock()


class Place:
    """The directory of the logs of a node at one server, for one process."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self._disk = RealDisk(self.path)
        self._disk.lock()
        for name in self._names():
            if name.endswith(_GONE):
                self._clear(name)

    def begin(self, segment_bytes: int = SEGMENT_BYTES) -> NodeLog:
        """A log for a new life."""
        uuid = uuid4()
        disk = self.disk(uuid)
        disk.lock()
        try:
            return NodeLog(disk, uuid, segment_bytes)
        except BaseException:
            disk.unlock()
            raise

    def left(self) -> list[UUID]:
        """The logs there are."""
        return [UUID(hex=name) for name in self._names() if _is_uuid(name)]

    def disk(self, uuid: UUID) -> RealDisk:
        return RealDisk(os.path.join(self.path, uuid.hex))

    def remove(self, uuid: UUID) -> None:
        """A log goes for good. It loses its name first: half of one would look as if it were damaged."""
        if uuid in self.left():
            gone = uuid.hex + _GONE
            self._disk.rename(uuid.hex, gone)
            self._disk.sync_dir()
            self._clear(gone)

    def close(self) -> None:
        self._disk.unlock()

    def _names(self) -> list[str]:
        with os.scandir(self.path) as found:
            return sorted(entry.name for entry in found if entry.is_dir(follow_symlinks=False))

    def _clear(self, name: str) -> None:
        path = os.path.join(self.path, name)
        for file in os.listdir(path):
            os.unlink(os.path.join(path, file))
        os.rmdir(path)


def _is_uuid(name: str) -> bool:
    return len(name) == 32 and not set(name) - set("0123456789abcdef")
