"""Loading what is scheduled far ahead: shortly before the first message of a frame is due, and never later.

Whoever lets time pass in the heart loads what is due by then before that. So that there is little of it, whoever has
time loads some of what comes next.
"""

from __future__ import annotations

from mqueue.heart.partition import Partition, Stretch, cut
from mqueue.heart.schedule import NEVER
from mqueue.heart.state import State
from mqueue.heart.topic import Topic
from mqueue.log.base import Log
from mqueue.model.errors import Corrupt


class Ahead:
    __slots__ = ("_log", "_state", "_topics", "next_at")

    def __init__(self, state: State, log: Log) -> None:
        self._state = state
        self._log = log
        self._topics: dict[int, Topic] = {}
        """Those that have something far ahead."""
        self.next_at = NEVER
        """Nothing of it is due before this time."""
        for topic in state.topics.values():
            self.watch(topic)

    def watch(self, topic: Topic) -> None:
        """A topic got something."""
        next_at = _next_at(topic)
        if next_at < NEVER:
            self._topics[topic.id] = topic
            self.next_at = min(self.next_at, next_at)

    def load(self, until: int, most: int | None = None) -> int:
        """Load the frames that have something due by then, the earliest first, at most so many; how many were."""
        if until < self.next_at or most == 0:
            return 0
        found = [
            (*frame, topic, partition)
            for topic in self._topics.values()
            if not topic.dropped
            for partition in topic.partitions
            for frame in partition.far.near(until, most)
        ]
        found.sort(key=lambda one: one[0])
        for due, start, stop, priority, topic, partition in found[:most]:
            partition.load(start, self._stretches(topic, partition, (start, stop, priority, due, 0)))
            self._state.arm(topic, partition)
        for topic in [topic for topic in self._topics.values() if topic.dropped or _next_at(topic) == NEVER]:
            del self._topics[topic.id]
        self.next_at = min(map(_next_at, self._topics.values()), default=NEVER)
        return len(found[:most])

    def _stretches(self, topic: Topic, partition: Partition, told: Stretch) -> list[Stretch]:
        """What is in a frame. One that is damaged has its turn when the first of it is due, and is set aside then."""
        start, stop, *_ = told
        if not partition.alive(start, stop) & ~partition.void.mask(start, stop):
            return []
        try:
            return stretches_in(self._log, topic.id, partition.number, start, stop)
        except Corrupt:
            return [told]


def stretches_in(log: Log, topic: int, partition: int, start: int, stop: int) -> list[Stretch]:
    """The order keys of what is left of [start, stop), out of the frames themselves."""
    found: list[Stretch] = []
    for frame in log.frames(topic, partition, start, stop):
        for stamp in range(len(frame.first_rows)):
            keys = frame.stretches(stamp)
            found += keys if start <= frame.base and frame.stop <= stop else cut(keys, start, stop)
    return found


def _next_at(topic: Topic) -> int:
    return min((partition.far.next_at for partition in topic.partitions), default=NEVER)
