"""Where the partitions of a topic begin and end, for those who read the log by offsets.

What is told is durable: a reader who notes how far it got must never be told of messages that a power cut takes back.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from mqueue.broker.engine import Engine
from mqueue.model.times import Instant, instant, to_datetime


class PartitionOffsets(Struct, frozen=True):
    """`first`: the lowest offset that is there; `next`: where the next message will go.

    `at`: the first offset that was published at or after the time that was asked for; `next` if none was, None if no
    time was given. `floor`: from here on everything is there; below it retention has dropped all but a few that
    somebody needs, or that are the last of their key. If there are none, `first` is the floor. `made_at`: when the
    topic was made; another one of that name, after it was deleted, has another time.
    """

    partition: int
    first: int
    next: int
    at: int | None = None
    floor: int = 0
    made_at: datetime | None = None


def offsets(engine: Engine, namespace: str, name: str, at: Instant | None) -> list[PartitionOffsets]:
    """All partitions at one moment."""
    time = None if at is None else instant(at, "at")
    with engine.lock:
        engine.tick()
        topic = engine.known_topic(namespace, name)
        engine.confirm()
        log = engine.store.log
        made_at = to_datetime(topic.made_at)
        found = []
        for known in topic.partitions:
            first, end = known.first, known.next
            place = None if time is None else min(max(log.offset_at(topic.id, known.number, time), first), end)
            found.append(PartitionOffsets(known.number, first, end, place, known.floor, made_at))
        return found
