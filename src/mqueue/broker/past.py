"""What retention has dropped, read back: an archive and the log as one sequence, by partition and offset.

The log gives what it has, the archive what lies between. A frame of the log is fetched before the archive is asked for
what lies before it: so nothing goes unseen that retention drops meanwhile, and nothing comes twice. What was never
archived is missing. Does not know what kind of archive it is; reading it takes no lock.
"""

from __future__ import annotations

from collections.abc import Iterator

from mqueue.broker import replay
from mqueue.broker.deliver import TopicDesk
from mqueue.broker.engine import Archive, Engine
from mqueue.model.errors import Refused
from mqueue.model.times import instant
from mqueue.wire.frame import Frame

Covered = list[tuple[int, int, int]]
"""(partition, first offset, end)"""


def scan(
    engine: Engine,
    namespace: str,
    topic: str,
    start: replay.Position | None,
    stop: replay.Position | None,
    partition: int | None,
    include_deleted: bool,
) -> tuple[TopicDesk, Iterator[tuple[Frame, int, int]]]:
    """What a scan covers, as (frame, first row, end row); of the log alone, or of the archive too."""
    archive = archive_of(engine) if include_deleted else None
    with engine.lock:
        engine.tick()
        desk = TopicDesk(engine, engine.known_topic(namespace, topic))
        replay.check_window(start, stop)
        covered = replay.stretches(desk, start, stop, partition)
    if archive is None:
        return desk, replay.scan_frames(desk, covered)
    return desk, scan_frames(desk, archive, widened(desk, archive, covered, start, stop))


def archive_of(engine: Engine) -> Archive:
    if engine.archive is None:
        raise Refused(
            "include_deleted asks for what retention has dropped, and no lake keeps it here: a server is told of one by"
            " lake.url (MQUEUE_LAKE_URL)",
            code="no_archive",
        )
    return engine.archive


def widened(
    desk: TopicDesk, archive: Archive, covered: Covered, start: replay.Position | None, stop: replay.Position | None
) -> Covered:
    """What a scan covers of the log, and what of the archive belongs to that. Without a `stop` it ends as it did."""
    found = covered
    numbers = [number for number, _, _ in covered]
    if start is None or isinstance(start, int) or start == "earliest":
        lowest = start if isinstance(start, int) else 0
        found = [(number, lowest, end) for number, _, end in found]
    elif start != "latest":
        places = archive.offsets_at(desk.namespace, desk.name, instant(start, "start"), numbers)
        found = [(number, min(first, places.get(number, first)), end) for number, first, end in found]
    if stop is not None and not isinstance(stop, int) and stop not in ("earliest", "latest"):
        places = archive.offsets_at(desk.namespace, desk.name, instant(stop, "stop"), numbers)
        found = [(number, first, min(end, places.get(number, end))) for number, first, end in found]
    return found


def scan_frames(desk: TopicDesk, archive: Archive, covered: Covered) -> Iterator[tuple[Frame, int, int]]:
    """(frame, first row, end row) in order, partition by partition. The lock is held only to fetch a frame."""
    engine = desk.engine
    for number, place, stop in covered:
        dropped = _Dropped(desk, archive, number)
        while place < stop:
            with engine.lock:
                frame = next(engine.store.log.frames(desk.topic.id, number, place, stop), None)
                floor = desk.topic.partitions[number].floor
                if frame is not None and frame.open:  # it is read without the lock
                    engine.store.log.seal(frame)
            first = stop if frame is None else max(place, frame.base)
            yield from dropped.between(place, first, floor)
            if frame is None:
                break
            place = min(stop, frame.stop)
            yield frame, first - frame.base, place - frame.base


class _Dropped:
    """What an archive has of one partition, taken piece by piece with rising offsets."""

    def __init__(self, desk: TopicDesk, archive: Archive, partition: int) -> None:
        self._desk = desk
        self._archive = archive
        self._partition = partition
        self._frames: Iterator[Frame] = iter(())
        self._held: Frame | None = None
        """The one that was read last, if some of it is left."""
        self._floor = -1
        """Where the log began when the archive was opened: what was dropped by then can be found there."""

    def between(self, start: int, stop: int, floor: int) -> Iterator[tuple[Frame, int, int]]:
        """What lies from `start` to before `stop`, now that the log begins at `floor`."""
        if start >= stop:
            return
        if self._floor < min(stop, floor):
            self._frames = self._archive.frames(self._desk.namespace, self._desk.name, self._partition, start)
            self._held, self._floor = None, floor
        while True:
            frame = self._held = self._held or next(self._frames, None)
            if frame is None or frame.base >= stop:
                return
            first, end = max(start, frame.base), min(stop, frame.stop)
            if first < end:
                yield frame, first - frame.base, end - frame.base
            if end < frame.stop:
                return
            self._held = None
