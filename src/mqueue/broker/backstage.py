"""What a server asks of its broker beyond the calls that users make: how it is, its quotas, its disk, its numbers.

Takes the lock for a moment at a time. Knows no HTTP and no metrics' names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from mqueue.broker.broker import Broker
from mqueue.broker.engine import Archive, Engine
from mqueue.broker.numbers import TopicStats, topic_stats
from mqueue.log.segments.disk import Disk
from mqueue.log.segments.log import SegmentLog
from mqueue.log.segments.writer import Gauge
from mqueue.model.errors import Unavailable

TURNS = ("nack", "reject", "release", "expire")
"""Verbs, and leases that ran out, that are counted by topic beside what the groups count themselves."""


class TopicNumbers(Struct, frozen=True):
    namespace: str
    stats: TopicStats
    turned: Mapping[str, int]
    """Messages settled by each of `TURNS` since the start."""


class DiskNumbers(Struct, frozen=True):
    bytes: int
    free_bytes: int
    segments: int
    damage: int
    position: int
    """How many bytes were ever written to the log."""


def disk_of(broker: Broker) -> Disk | None:
    """The directory of a broker on disk, locked by it."""
    log = _segments(broker)
    return None if log is None else log.disk


def trouble(broker: Broker) -> str:
    """Why messages cannot be taken now; empty while they can."""
    engine = broker._engine
    log = _segments(broker)
    if log is not None and log.writer.dead:
        return log.writer.dead
    try:
        with engine.lock:
            return engine.store.log.full
    except Unavailable as error:
        return error.message


def is_poisoned(broker: Broker) -> bool:
    """Whether the disk failed, so that only a new start can help."""
    log = _segments(broker)
    return log is not None and bool(log.writer.dead)


def set_quotas(broker: Broker, per_minute: Mapping[str, int], default: int | None) -> None:
    """All limits anew, from the next publish on."""
    engine = broker._engine
    with engine.lock:
        engine.quotas.replace(per_minute, default)


def quota_refusals(broker: Broker) -> int:
    return broker._engine.quotas.refused


def leases(broker: Broker) -> int:
    return len(broker._engine.store.state.leases)


def look_back(broker: Broker, archive: Archive) -> None:
    """Where messages are that retention has dropped."""
    broker._engine.archive = archive


def bound_answers(broker: Broker) -> None:
    """Let tables that are received be no larger than one answer."""
    broker._engine.answers_bounded = True


def measure(broker: Broker, gauge: Gauge) -> None:
    """Tell a gauge of commits and syncs from now on."""
    log = _segments(broker)
    if log is not None:
        log.writer.gauge = gauge


def disk_numbers(broker: Broker) -> DiskNumbers | None:
    log = _segments(broker)
    if log is None:
        return None
    with broker._engine.lock:
        segments = list(log.shelf.segments)
        damage = len(log.reports)
    size = sum(segment.end - segment.start for segment in segments)
    return DiskNumbers(size, log.disk.free(), len(segments), damage, log.writer.link.position)


def topic_numbers(broker: Broker, at_once: int) -> Iterator[Sequence[TopicNumbers]]:
    """All topics of all namespaces, `at_once` of them for each time the lock is taken; in the order they were made."""
    engine = broker._engine
    with engine.lock:
        numbers = list(engine.store.state.topics)
    for first in range(0, len(numbers), at_once):
        yield _of_topics(engine, numbers[first : first + at_once])


def _of_topics(engine: Engine, numbers: Sequence[int]) -> list[TopicNumbers]:
    with engine.lock:
        now = engine.clock.now()  # to look is no reason to let time pass: that would have to be written down
        topics = [topic for number in numbers if (topic := engine.store.state.topics.get(number)) is not None]
        turned = engine.store.turned
        return [
            TopicNumbers(
                topic.namespace,
                topic_stats(engine, topic, now),
                {verb: turned.get((topic.id, verb), 0) for verb in TURNS},
            )
            for topic in topics
            if not topic.hidden
        ]


def _segments(broker: Broker) -> SegmentLog | None:
    log = broker._engine.store.log
    return log if isinstance(log, SegmentLog) else None
