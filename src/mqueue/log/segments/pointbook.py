"""The points of all topics, for the next checkpoint: each with the position up to which it tells everything.

A point is taken when the last batches are not yet written, so its position is not known before those have landed.
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

    def positions(self) -> dict[int, int]:
        """How far each topic is told."""
        return {topic: point.position for topic, point in self._points.items() if point.position is not None}

    def load(self) -> tuple[TopicPoint, ...]:
        return tuple(
            points.decode(point.data) if isinstance(point.data, bytes) else point.data
            for point in self._points.values()
        )

    def put(self, point: TopicPoint, batch: int, landed: tuple[int, int]) -> None:
        """A point that was taken after `batch`; `landed`: the last batch that is written, and where it ends."""
        number, end = landed
        kept = Point(point, batch, end if batch <= number else None)
        self._points[point.id] = kept
        if kept.position is None:
            self._waiting.append(kept)

    def land(self, batch: int, end: int) -> None:
        """A batch was written."""
        for point in self._waiting:
            if point.batch <= batch:
                point.position = end
        self._waiting = [point for point in self._waiting if point.position is None]

    def drop(self, topic: int) -> None:
        self._points.pop(topic, None)

    def collect(self, dirty: set[int], end: int) -> dict[int, tuple[int, Point]] | None:
        """What goes into a checkpoint. To a topic that is not dirty nothing has happened up to `end`."""
        if any(point.position is None for point in self._points.values()):
            return None
        return {topic: (point.position or 0 if topic in dirty else end, point) for topic, point in self._points.items()}


def packed(point: Point) -> bytes:
    if not isinstance(point.data, bytes):
        point.data = points.encode(point.data)
    return point.data
