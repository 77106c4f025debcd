"""What is left of a log whose node, or whose life, is over: on this disk, in Redis, or some here and some there.

Gives commits in order and without a gap. What a disk has lost a copy may still have; what neither has is skipped only
if it was ours to keep: the disk of another node may have it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from uuid import UUID

from mqueue.cluster.redis.line import Away
from mqueue.cluster.wal.copies import Copies
from mqueue.cluster.wal.nodelog import Place
from mqueue.cluster.wal.records import Stretch, stretch_of
from mqueue.log.segments.cache import Cache
from mqueue.log.segments.recovery import Recovery
from mqueue.log.segments.shelf import Shelf

LOGGER = logging.getLogger("mqueue.cluster")


class Remains:
    """Of a log that only Redis knows of."""

    gone = False
    """Whether nobody will ever ask for it again."""

    def __init__(self, uuid: UUID, copies: Copies) -> None:
        self.uuid = uuid
        self._copies = copies
        self._warned = -1

    def stretches(self, position: int) -> Iterator[Stretch]:
        """The commits from a position on."""
        while (found := self._copies.get(self.uuid, position)) is not None:
            yield found
            position = found.stop

    def finish(self, position: int) -> bool:
        """Everything from the front up to a position is in the shard, and nothing follows. Whether that was all."""
        self._copies.drop_before(self.uuid, position)
        if not self._copies.holds(self.uuid):
            return True
        if self._warned != position:
            self._warned = position
            LOGGER.warning(
                "of the log %s of a node that is gone, Redis has something, but not what begins at position %d:"
                " it waits for the node",
                self.uuid.hex,
                position,
            )
        return False

    def close(self) -> None:
        """Nothing is open."""


class OwnRemains(Remains):
    """Of a log that an earlier life of this node left on its disk."""

    def __init__(self, uuid: UUID, copies: Copies, place: Place) -> None:
        super().__init__(uuid, copies)
        self._place = place
        self._disk = place.disk(uuid)
        self._disk.lock()
        try:
            opened = Recovery(self._disk, lambda length: uuid.bytes, False).open()
        except BaseException:
            self._disk.unlock()
            raise
        for report in opened.reports:
            LOGGER.error("the log %s: %s", uuid.hex, report)
        self._holes = bool(opened.holes)
        self._shelf = Shelf(self._disk, opened.segments, Cache(0))
        self._end = opened.link.position

    def stretches(self, position: int) -> Iterator[Stretch]:
        for data, offset, commit in self._shelf.commits(position):
            if commit.position > position:
                yield from self._across(position, commit.position)
            yield stretch_of(data, offset, commit)
            position = commit.end
        if position < self._end:
            yield from self._across(position, self._end)
            position = self._end
        with suppress(Away):  # it was written, and a copy made, but never answered: it may be lost
            yield from super().stretches(position)

    def _across(self, position: int, stop: int) -> Iterator[Stretch]:
        """What was damaged on the disk: from Redis as far as it is there, the rest as nothing."""
        for found in super().stretches(position):
            if found.stop > stop:
                break
            yield found
            position = found.stop
        if position < stop:
            LOGGER.error("the log %s: positions %d to %d are lost", self.uuid.hex, position, stop)
            yield Stretch(position, stop, [])

    def finish(self, position: int) -> bool:
        self.close()
        with suppress(Away):
            self._copies.drop_before(self.uuid, position)
        if not self._holes:  # else somebody may want to look at it
            self._place.remove(self.uuid)
            self.gone = True
        return True

    def close(self) -> None:
        self._shelf.close()
        self._disk.unlock()
