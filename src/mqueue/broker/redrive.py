"""The walk of a redrive: from one dead message to the next, a step at a time, so that nobody waits long for the lock.

It goes through what was dead when it began: what dies again meanwhile is not brought back twice. Whoever stops half way
loses nothing: what came back is dead no more, and the next redrive goes on with the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from math import ceil
from typing import Any

from msgspec import Struct

from mqueue.broker.deliver import TopicDesk
from mqueue.broker.engine import Engine
from mqueue.broker.message import DeadMessage
from mqueue.broker.replay import looked_at
from mqueue.heart.group import Group
from mqueue.heart.topic import Topic
from mqueue.model.errors import QueueFull, Refused
from mqueue.model.limits import REDRIVE_RATE_MAX, REDRIVE_STEP_MESSAGES, WAIT_MS_MAX
from mqueue.policy.filter import compile_filter
from mqueue.store.bury import dlq_of
from mqueue.store.order import order_key
from mqueue.store.redrive import redrive
from mqueue.store.store import Store
from mqueue.wire.frame import Frame

_STEPS_PER_SECOND = 10
"""A redrive with a rate goes in steps of a tenth of a second."""

Filter = str | Callable[[DeadMessage], bool] | None


class Redrive(Struct, frozen=True):
    """What a redrive did, or would do."""

    matched: int
    redriven: int
    dry_run: bool


class Deletion(Struct, frozen=True):
    """What a deletion of the dead did, or would do."""

    matched: int
    deleted: int
    dry_run: bool


Act = Callable[[Store, Topic, Frame, int, int], bool]
"""What is done to a dead message, given the store, its queue, its place and the time: whether it was done."""


class Graveyard:
    """The dead-letter queue of a topic, as far as it is that topic's: several may share one."""

    def __init__(self, engine: Engine, namespace: str, origin: str, kind: Callable[..., DeadMessage]) -> None:
        self.engine = engine
        self._namespace = namespace
        self._origin = origin
        self._kind = kind

    def desk(self) -> TopicDesk | None:
        """Where the dead lie; None if nothing has died so far. Call it with the lock held, as all below."""
        origin = self.engine.known_topic(self._namespace, self._origin)
        name = dlq_of(origin)
        topic = self.engine.store.find_topic(self._namespace, name) if name else None
        return None if topic is None else TopicDesk(self.engine, topic)

    def rows(self, frame: Frame, first: int, stop: int, desk: TopicDesk) -> Iterator[tuple[int, DeadMessage]]:
        """The rows of a frame that nobody has dealt with, and the messages in them."""
        topic = desk.topic
        group = topic.groups.get("default") or Group(topic.id, "default", topic.partitions, topic.firsts, 0)
        for row in range(first, stop):
            if self._is_open(desk, group, frame, row):
                yield row, looked_at(desk, group, frame, row, self._kind)

    def messages(self) -> Iterator[DeadMessage]:
        """All of them, in the order of their death."""
        desk = self.desk()
        for partition in desk.topic.partitions if desk else ():
            assert desk is not None
            log, topic = desk.engine.store.log, desk.topic.id
            for frame in log.frames(topic, partition.number, partition.first, partition.next):
                for _, message in self.rows(frame, 0, frame.count, desk):
                    yield message

    def _is_open(self, desk: TopicDesk, group: Group, frame: Frame, row: int) -> bool:
        """Whether the group `default` has not settled a message and nobody has cancelled it."""
        headers = frame.rows.headers[row] if frame.rows.headers else None
        if headers and headers.get("x-origin-topic", self._origin) != self._origin:
            return False
        priority, at, offset = order_key(desk.topic, frame, row)
        if offset in desk.topic.partitions[frame.partition].void:
            return False
        reader = group.readers[frame.partition]
        return (
            reader.passed(priority, at, offset, offset + 1) == offset
            or reader.holds(offset) is not None
            or desk.engine.store.heart.lease_of(group, frame.partition, offset) is not None
        )


class Redriving:
    """A redrive that is under way. `keep`: of so many of the messages that match, the first ones, it keeps hold. `act`:
    what is done to each, where that is something else than to bring it back."""

    def __init__(
        self,
        yard: Graveyard,
        filter: Filter,
        limit: int | None,
        dry_run: bool,
        rate: float | None = None,
        keep: int = 0,
        act: Act = redrive,
    ) -> None:
        if limit is not None and (type(limit) is not int or limit < 1):
            raise Refused(f"limit {limit!r:.80}; it takes 1 or more", code="bad_limit")
        self._yard = yard
        self._matches = matcher(filter)
        self._limit = limit
        self._dry_run = dry_run
        self._rate = None if dry_run else check_rate(rate)
        self._matched = self._redriven = 0
        self._keep = keep
        self._act = act
        self.kept: list[DeadMessage] = []
        self._began = 0
        self._desk: TopicDesk | None = None
        self._left: deque[tuple[int, int, int]] | None = None
        """(partition, offset, end) of what was not looked at so far; None: it has not begun."""

    @property
    def done(self) -> Redrive:
        """What it did so far."""
        return Redrive(*self.counted, self._dry_run)

    @property
    def counted(self) -> tuple[int, int]:
        """How many messages matched so far, and to how many of them it was done."""
        return self._matched, self._redriven

    @property
    def topics(self) -> list[Topic]:
        """Whose close has to end its pauses."""
        return [self._desk.topic] if self._desk else []

    def step(self, limit: int = REDRIVE_STEP_MESSAGES) -> bool:
        """Go on, for `limit` messages at most; whether there may be more to do. Durable when the lock is left."""
        engine = self._yard.engine
        with engine.lock:
            now = engine.tick()
            if self._left is None:
                self._left = self._begin(now)
            desk = self._desk
            if desk is None or desk.topic.dropped:
                self._left.clear()
                return False
            chosen = self._choose(desk, self._left, self._room(limit))
            self._matched += len(chosen)
            if chosen and not self._dry_run:
                self._bring_back(desk.topic, chosen, now)
            if self._matched == self._limit:
                self._left.clear()
            return bool(self._left)

    def pause_ms(self, now: int) -> int:
        """How long to wait, and then to ask again, so that it is no faster than it should be; 0: go on."""
        if self._rate is None:
            return 0
        wait_ms = self._began + self._redriven * 1000 / self._rate - now
        return ceil(min(max(wait_ms, 0), WAIT_MS_MAX))

    def _begin(self, now: int) -> deque[tuple[int, int, int]]:
        self._began = now
        self._desk = self._yard.desk()
        partitions = self._desk.topic.partitions if self._desk else []
        return deque((partition.number, partition.first, partition.next) for partition in partitions)

    def _room(self, limit: int) -> int:
        """How many messages this step may choose."""
        room = min(limit, REDRIVE_STEP_MESSAGES)
        if self._rate is not None:
            room = min(room, max(1, int(self._rate / _STEPS_PER_SECOND)))
        return room if self._limit is None else min(room, self._limit - self._matched)

    def _choose(self, desk: TopicDesk, left: deque[tuple[int, int, int]], room: int) -> list[tuple[Frame, int]]:
        """The next messages that match. It looks at so many only: others wait meanwhile."""
        chosen: list[tuple[Frame, int]] = []
        looks = REDRIVE_STEP_MESSAGES
        while left and looks > 0 and len(chosen) < room:
            partition, start, stop = left.popleft()
            frame = next(desk.engine.store.log.frames(desk.topic.id, partition, start, stop), None)
            if frame is None:
                continue
            start = max(start, frame.base)
            end = min(stop, frame.stop, start + looks)
            for row, message in self._yard.rows(frame, start - frame.base, end - frame.base, desk):
                if self._matches(message):
                    chosen.append((frame, row))
                    if len(self.kept) < self._keep:
                        self.kept.append(message)
                    if len(chosen) == room:
                        end = frame.base + row + 1
                        break
            looks -= end - start
            if end < stop:
                left.appendleft((partition, end, stop))
        return chosen

    def _bring_back(self, dlq: Topic, chosen: list[tuple[Frame, int]], now: int) -> None:
        """If there is no room for more it ends here; if there was none for the very first, that is the answer."""
        engine = self._yard.engine
        try:
            for frame, row in chosen:
                self._redriven += self._act(engine.store, dlq, frame, row, now)
        except QueueFull:
            if not self._redriven:
                raise
            assert self._left is not None
            self._left.clear()
        engine.wake_all()


def matcher(filter: Any) -> Callable[[DeadMessage], bool]:
    if filter is None:
        return lambda message: True
    if callable(filter):
        chosen: Callable[[DeadMessage], bool] = filter
        return chosen
    if isinstance(filter, str):
        return compile_filter(filter)
    raise Refused(f"filter {filter!r:.80}; it takes text or a function", code="bad_filter")


def check_rate(rate: Any) -> float | None:
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= REDRIVE_RATE_MAX:
        raise Refused(
            f"rate {rate!r:.80}; it takes more than 0 and at most {REDRIVE_RATE_MAX} messages per second",
            code="bad_rate",
        )
    return float(rate)
