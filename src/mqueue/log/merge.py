"""Frames and events of a topic in one order that gives the same state when folded, whoever kept them apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from mqueue.model.events import Event, TopicMade, TopicSet

F = TypeVar("F")


def merged(
    events: Iterable[Event], frames: Iterable[tuple[int, int, F]], partitions: int
) -> Iterator[Event | tuple[int, int, F]]:
    """Merged by time: what shares a millisecond commutes. But a partition has to be there before its first frame.

    `frames`: (time, partition, frame), in the order they were written; `partitions`: how many there are at first.
    """
    waiting = iter(frames)
    frame = next(waiting, None)
    for event in events:
        while frame is not None and frame[0] <= event.at and frame[1] < partitions:
            yield frame
            frame = next(waiting, None)
        yield event
        if isinstance(event, TopicMade | TopicSet):
            partitions = event.settings.partitions
    while frame is not None:
        yield frame
        frame = next(waiting, None)
