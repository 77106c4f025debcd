"""Where a stored message stands in the order of its partition. Changes nothing, and knows no groups."""

from __future__ import annotations

from mqueue.heart.topic import Topic
from mqueue.wire.frame import Frame


def order_key(topic: Topic, frame: Frame, row: int) -> tuple[int, int, int]:
    """(priority, time, offset) of a message. One that is not visible yet has a time that is to come."""
    offset = frame.base + row
    partition, due, at = topic.partitions[frame.partition], due_of(topic, frame, row), frame.at_of(row)
    return frame.number("priority", row), at if due == at else partition.time_of(due, offset), offset


def due_of(topic: Topic, frame: Frame, row: int) -> int:
    """When a message is due, as it was told last, or was appended if that was later."""
    due = topic.partitions[frame.partition].due.get(frame.base + row, frame.number("deliver_at", row))
    return max(frame.at_of(row), abs(due))
