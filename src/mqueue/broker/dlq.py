"""The dead-letter queue of a topic, as users see it: look at the dead, bring them back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from mqueue.broker.deliver import TopicDesk, check_receive
from mqueue.broker.engine import Engine
from mqueue.broker.envelope import EmbeddedDeadMessage
from mqueue.broker.message import DeadMessage
from mqueue.broker.replay import looked_at
from mqueue.heart.group import Group
from mqueue.heart.topic import Topic
from mqueue.model.errors import QueueFull, Refused
from mqueue.policy.filter import compile_filter
from mqueue.store.bury import dlq_of
from mqueue.store.redrive import redrive
from mqueue.wire.frame import Frame


class Redrive(Struct, frozen=True):
    """What a redrive did, or would do."""

    matched: int
    redriven: int
    dry_run: bool


class Dlq:
    def __init__(
        self, engine: Engine, namespace: str, topic: str, message_type: type[DeadMessage] = EmbeddedDeadMessage
    ) -> None:
        self._engine = engine
        self._message_type = message_type
        self._namespace = namespace
        self._topic = topic

    def messages(
        self, limit: int = 100, *, filter: str | Callable[[DeadMessage], bool] | None = None
    ) -> list[DeadMessage]:
        """The dead that nobody has dealt with: not acked by group `default` of the dead-letter queue, not redriven."""
        check_receive(limit, "at_least_once")
        matches = _matcher(filter)
        found: list[DeadMessage] = []
        with self._engine.lock:
            self._engine.tick()
            for _, _, message in self._open():
                if matches(message):
                    found.append(message)
                    if len(found) == limit:
                        break
        return found

    def redrive(
        self,
        *,
        filter: str | Callable[[DeadMessage], bool] | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> Redrive:
        """Make what is dead now ready again, each in the group that it died in. What dies again stays dead."""
        if limit is not None and (type(limit) is not int or limit < 1):
            raise Refused(f"limit {limit!r:.80}; it takes 1 or more", code="bad_limit")
        matches = _matcher(filter)
        matched = redriven = 0
        with self._engine.lock:
            now = self._engine.tick()
            chosen = []
            for frame, row, message in self._open():
                if matches(message):
                    chosen.append((frame, row))
                    if len(chosen) == limit:
                        break
            matched = len(chosen)
            dlq = self._desk()
            if dlq is not None and not dry_run:
                redriven = self._redrive(dlq.topic, chosen, now)
        return Redrive(matched, redriven, dry_run)

    def _redrive(self, dlq: Topic, chosen: list[tuple[Frame, int]], now: int) -> int:
        """How many came back. If there is no room for more, that is the answer, unless there was none for the first."""
        count = 0
        try:
            for frame, row in chosen:
                count += redrive(self._engine.store, dlq, frame, row, now)
        except QueueFull:
            if not count:
                raise
        self._engine.wake_all()
        return count

    def __len__(self) -> int:
        with self._engine.lock:
            self._engine.tick()
            return sum(1 for _ in self._open())

    def _desk(self) -> TopicDesk | None:
        origin = self._engine.known_topic(self._namespace, self._topic)
        name = dlq_of(origin)
        topic = self._engine.store.state.names.get((self._namespace, name)) if name else None
        return None if topic is None else TopicDesk(self._engine, topic)

    def _open(self) -> Iterator[tuple[Frame, int, DeadMessage]]:
        desk = self._desk()
        if desk is None:
            return
        topic = desk.topic
        group = topic.groups.get("default") or Group(topic.id, "default", topic.partitions, topic.firsts, 0)
        for partition in topic.partitions:
            for frame in desk.engine.store.log.frames(topic.id, partition.number, partition.first, partition.next):
                for row in range(frame.count):
                    if self._is_open(desk, group, frame, row):
                        yield frame, row, looked_at(desk, group, frame, row, self._message_type)

    def _is_open(self, desk: TopicDesk, group: Group, frame: Frame, row: int) -> bool:
        """Whether the group `default` has not settled a message and nobody has cancelled it."""
        headers = frame.rows.headers[row] if frame.rows.headers else None
        if headers and headers.get("x-origin-topic", self._topic) != self._topic:
            return False  # several topics may share a dead-letter queue
        priority, at, offset = desk.engine.store.order_key(desk.topic, frame, row)
        if offset in desk.topic.partitions[frame.partition].void:
            return False
        reader = group.readers[frame.partition]
        return (
            reader.passed(priority, at, offset, offset + 1) == offset
            or reader.holds(offset) is not None
            or desk.engine.store.heart.lease_of(group, frame.partition, offset) is not None
        )


def _matcher(filter: str | Callable[[DeadMessage], bool] | None) -> Callable[[DeadMessage], bool]:
    if filter is None:
        return lambda message: True
    if callable(filter):
        return filter
    if isinstance(filter, str):
        return compile_filter(filter)
    raise Refused(f"filter {filter!r:.80}; it takes text or a function", code="bad_filter")
