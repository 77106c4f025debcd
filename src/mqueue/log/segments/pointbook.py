"""The points of all topics, for the next checkpoint: each with the position up to which it tells everything.

A point is taken when the last batches are not yet written, so its position is not known before those have landed.
While points are taken others go on: a checkpoint tells nothing of what was begun after its mark, and it still tells of
a topic whose end is not durable yet.
"""

from __future__ import annotations

from msgspec import Struct

from mqueue.heart.checkpoint import TopicPoint
from mqueue.log.segments import points


class Point(Struct):
    data: TopicPoint | bytes
    """Turned into bytes when it is written, not when it is taken: others wait meanwhile."""
    batch: int
    """It tells everything up to and with this batch."""
    position: int | None
    """Where that batch ends."""


class PointBook:
    def __init__(self, saved: dict[int, tuple[int, bytes]]) -> None:
        self._points = {topic: Point(data, 0, position) for topic, (position, data) in saved.items()}
        self._waiting: list[Point] = []
        self._mark: Point | None = None
        self._dropped: dict[int, int] = {}
        """Topics that are dropped, and the batch that says so: until it is durable a crash can bring them back."""

    def positions(self) -> dict[int, int]:
        """How far each topic is told."""
        return {topic: point.position for topic, point in self._points.items() if point.position is not None}

    def load(self) -> tuple[TopicPoint, ...]:
        return tuple(
            points.decode(point.data) if isinstance(point.data, bytes) else point.data
            for point in self._points.values()
        )

    def mark(self, batch: int, landed: tuple[int, int]) -> None:
        """A checkpoint is begun: all topics that are dirty now get new points before it is collected."""
        self._mark = self._kept(b"", batch, landed)

    def put(self, point: TopicPoint, batch: int, landed: tuple[int, int]) -> None:
        """A point that was taken after `batch`; `landed`: the last batch that is written, and where it ends."""
        self._points[point.id] = self._kept(point, batch, landed)

    def _kept(self, data: TopicPoint | bytes, batch: int, landed: tuple[int, int]) -> Point:
        number, end = landed
        kept = Point(data, batch, end if batch <= number else None)
        if kept.position is None:
            self._waiting.append(kept)
        return kept

    def land(self, batch: int, end: int) -> None:
        """A batch was written."""
        for point in self._waiting:
            if point.batch <= batch:
                point.position = end
        self._waiting = [point for point in self._waiting if point.position is None]

    def drop(self, topic: int, batch: int) -> None:
        """A topic is no more once `batch` is durable."""
        if topic in self._points:
            self._dropped[topic] = batch

    def collect(self, dirty: set[int], synced: int) -> tuple[int, dict[int, tuple[int, Point]]] | None:
        """Where folding starts, and what goes into a checkpoint; None if some of it is not written yet.

        To a topic that is not dirty nothing has happened since its point: it counts as taken at the mark.
        """
        for topic in [topic for topic, batch in self._dropped.items() if batch <= synced]:
            del self._dropped[topic], self._points[topic]
        mark = self._mark.position if self._mark is not None else None
        if mark is None or any(point.position is None for point in self._points.values()):
            return None
        changed = dirty | self._dropped.keys()
        found = {
            topic: (point.position if topic in changed else max(point.position, mark), point)
            for topic, point in self._points.items()
            if point.position is not None
        }
        return min([mark, *(taken for taken, _ in found.values())]), found


def packed(point: Point) -> bytes:
    if not isinstance(point.data, bytes):
        point.data = points.encode(point.data)
    return point.data
