"""The embedded broker's engine room: one store, one lock, one clock, and those who wait for messages.

Every call takes the lock, reads the clock once, lets time pass, and works on the store. It knows no durations as text,
no drafts and no message objects: those belong to the calls around it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol

from msgspec import Struct

from mqueue.heart.crew import Seat
from mqueue.heart.group import Group, Lease
from mqueue.heart.topic import Topic
from mqueue.model.clock import Clock, Sleeper
from mqueue.model.errors import BadSetting, Closed, NotFound
from mqueue.model.names import check_name
from mqueue.policy.quota import Quotas
from mqueue.store.dues import Dues
from mqueue.store.fire import fire
from mqueue.store.membership import depart, dismiss
from mqueue.store.retain import retain
from mqueue.store.store import Store, check_settings
from mqueue.store.transact import look_after
from mqueue.wire.frame import Frame

DUTIES_MS = 1_000
TOPICS_PER_DUTY = 256


class Upkeep(Protocol):
    """What goes on in the background of a log on disk."""

    def start(self) -> None: ...

    def close(self) -> None: ...

    def abandon(self) -> None: ...


class Gate(Protocol):
    """Stands where the lock is, of a log that has to be committed: whoever leaves waits until what he did is safe."""

    @property
    def levels(self) -> Mapping[str, int]:
        """How safe a publish may ask to be."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def acquire(self, blocking: bool = True) -> bool:
        """Go in without waiting at the end: somebody else will commit what is handed in."""

    def release(self) -> None: ...

    def at(self, level: int) -> AbstractContextManager[None]:
        """The same, for a call that is content with less."""

    def confirm(self) -> None:
        """Whoever is in waits until all that was handed in so far is durable, also by others."""


class Waiter(Protocol):
    """Somebody who waits for messages. `wake` is called with the lock held, from any thread: it must not block."""

    def wake(self) -> None: ...


class Place(Protocol):
    """Where somebody waits: a topic, or the `Bench` of its members."""

    @property
    def id(self) -> int: ...


class Bench(Struct, frozen=True):
    """Where the members of a topic's groups wait: whatever is published there is not what they wait for.

    Topics have ids from 0 on, so below that there is one for each.
    """

    id: int


class Departed(Struct, frozen=True):
    """A member whose consumer, in this process, is gone. It leaves, or may come back within the session."""

    topic: Topic
    group: Group
    seat: Seat
    leaves: bool


class Archive(Protocol):
    """Where messages are that retention has dropped, or soon may. It may be asked by any thread, without the lock."""

    def frames(self, namespace: str, topic: str, partition: int, start: int) -> Iterator[Frame]:
        """The messages of a partition as archived now, from the frame on that reaches an offset. None has gaps."""

    def offsets_at(self, namespace: str, topic: str, at: int, partitions: Collection[int]) -> Mapping[int, int]:
        """By partition the first offset that is archived and was published at a time or later; of these at least."""


class Engine:
    def __init__(self, store: Store, clock: Clock, quotas: Quotas, gate: Gate | None = None) -> None:
        self.store = store
        self.clock: Clock = clock
        self.quotas = quotas
        self.gate = gate
        """Of a log on disk: what a call handed in is durable when it has left the lock."""
        self.lock: threading.Lock | Gate | Shut = gate or threading.Lock()
        self.upkeep: Upkeep | None = None
        self.archive: Archive | None = None
        self.dues = Dues()
        self.answers_bounded = False
        """Whether a table that is handed out is to fit one answer: that of a server travels."""
        self.waiters: dict[int, set[Waiter]] = {}
        self.abandoned: deque[Lease | Departed] = deque()
        """Leases and memberships that a consumer has left behind: to be given back."""
        self.timers = store.state.timers
        self._closing = threading.Lock()
        self._duties_at = 0
        self._turn: list[Topic] = []
        _ENGINES.add(self)

    def start(self) -> None:
        """The store goes to work. That nobody was heard of while it was closed is no fault of the groups."""
        now = self.clock.now()
        for topic in self.store.state.topics.values():
            for group in topic.groups.values():
                group.heard_at = max(group.heard_at, now)
                if group.crew is not None:
                    group.crew.revive(now)
        if self.upkeep is not None:
            self.upkeep.start()

    def reaching(self, durability: str | None) -> AbstractContextManager[object]:
        """The lock, for a publish that is to be just so safe before the answer."""
        if durability is None:
            return self.lock
        levels = {self.store.log.durability: 0} if self.gate is None else self.gate.levels
        if durability not in levels:
            raise BadSetting(
                f"durability {durability!r:.80} is not what this store reaches; it takes {', '.join(map(repr, levels))}"
            )
        return self.lock if self.gate is None or self.lock is not self.gate else self.gate.at(levels[durability])

    def confirm(self) -> None:
        """A call answers with what an earlier one did: it waits until that is durable. Call it with the lock held."""
        if self.gate is not None:
            self.gate.confirm()

    def tick(self) -> int:
        """The time now, everything that was due by now done. Call it with the lock held."""
        now = self.clock.now()
        heap = self.timers.heap
        if (heap and heap[0][0] <= now) or self.store.unburied:
            self.pass_time(now)
        if self.abandoned:
            self._take_back(now)
        if now >= self._duties_at:
            self._do_duties(now)
        return now

    def pass_time(self, now: int) -> None:
        """Do what was due by now. Call it with the lock held."""
        self.store.advance(now)
        if self.store.heart.due:
            fire(self.store, now)
        self.wake_written()

    def _take_back(self, now: int) -> None:
        while self.abandoned:
            left = self.abandoned.popleft()
            if isinstance(left, Departed):
                depart(self.store, left.topic, left.group, left.seat, left.leaves, now)
                self.wake_written()
            elif left.open:
                self.store.settle(left.token, "release", None, now)
                self.wake(self.store.state.topics[left.group.topic])

    def _do_duties(self, now: int) -> None:
        """What has to be done now and then, a few topics at a time."""
        self._duties_at = now + DUTIES_MS
        topics = self.store.state.topics
        if not self._turn:
            self._turn = list(topics.values())
        due = [topic for topic in self._turn[-TOPICS_PER_DUTY:] if topic.id in topics]
        retain(self.store, due, now)
        look_after(self.store, due, now)
        self.wake_written()
        del self._turn[-TOPICS_PER_DUTY:]
        for number in [number for number, waiting in self.waiters.items() if not waiting]:
            del self.waiters[number]

    def topic(self, namespace: str, name: str, now: int) -> Topic:
        """A topic, made on first use."""
        topic = self.store.find_topic(namespace, name)
        if topic is None:
            topic = self.store.topic(check_name(namespace, "namespace"), check_name(name, "topic"), now)
        return topic

    def known_topic(self, namespace: str, name: str) -> Topic:
        """A topic that has to be there."""
        topic = self.store.find_topic(namespace, name)
        if topic is None:
            raise NotFound(f"topic {check_name(name, 'topic')!r} is not there in namespace {namespace!r}")
        return topic

    def wake(self, topic: Place) -> None:
        """Messages of a topic may be ready: those who wait for it should look."""
        waiting = self.waiters.get(topic.id)
        if waiting is not None:
            for waiter in tuple(waiting):
                waiter.wake()
            if not waiting:
                del self.waiters[topic.id]

    def wake_written(self) -> None:
        """Something died: wake those who wait for its dead-letter queue. Partitions move: wake whom that concerns."""
        written = self.store.written
        while written:
            self.wake(written.pop())
        stirred = self.store.heart.stirred
        while stirred:
            topic = stirred.pop()
            self.wake(topic)
            self.wake_members(topic)

    def wake_members(self, topic: Topic) -> None:
        """Members that wait to be told which partitions they have should look."""
        self.wake(Bench(~topic.id))

    def draft_topic(self, namespace: str, name: str, now: int) -> Topic:
        """A topic to check a call against: as it is, or as it would be made."""
        topic = self.store.find_topic(namespace, name)
        if topic is None:
            check_name(name, "topic")
            check_settings(name, self.store.defaults)
            topic = Topic(0, check_name(namespace, "namespace"), name, self.store.defaults, now)
        return topic

    def wake_all(self) -> None:
        """Wake whoever waits for anything."""
        for waiting in self.waiters.values():
            for waiter in list(waiting):
                waiter.wake()

    def wait_for(self, topics: Iterable[Place], waiter: Waiter) -> None:
        for topic in topics:
            self.waiters.setdefault(topic.id, set()).add(waiter)

    def leave(self, topics: Iterable[Place], waiter: Waiter) -> None:
        """The one call that needs no lock, so that also a coroutine which is thrown away can make it. So it only ever
        takes out its own; others go through a copy, and `wake` clears away what is empty."""
        for topic in topics:
            waiting = self.waiters.get(topic.id)
            if waiting is not None:
                waiting.discard(waiter)

    def close(self, *, keep_leases: bool = False) -> None:
        """Hand out nothing more; give back what is held, wake whoever waits; a log on disk is synced and let go.

        `keep_leases`: what consumers elsewhere hold stays theirs, and they settle it when the log is open again.
        """
        with self._closing:  # whoever comes second leaves when the first is done
            lock = self.lock
            if isinstance(lock, Shut):
                return
            try:
                with lock:
                    self._let_go(self.tick(), keep_leases)
            finally:
                self.lock = self.clock = Shut("the broker is closed")
                if self.upkeep is not None:
                    self.upkeep.close()

    def _let_go(self, now: int, keep_leases: bool) -> None:
        for lease in list(self.store.state.leases.values()):
            if lease.keep_ms or not keep_leases:  # whoever works on it in this process is stopped
                self.store.settle(lease.token, "release", None, now)
        dismiss(self.store, now)
        self.lock = self.clock = Shut("the broker is closed")
        for waiting in self.waiters.values():
            for waiter in tuple(waiting):
                waiter.wake()
        self.waiters.clear()


class Shut:
    """Stands where the lock was: whoever comes now is told why not. So an open broker pays nothing for the check."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __enter__(self) -> None:
        raise Closed(self.reason)

    def __exit__(self, *_: object) -> None:
        raise AssertionError("nobody gets in")

    def now(self) -> int:
        """Stands where the clock was, too: for those who waited at the lock while it was changed."""
        raise Closed(self.reason)

    def timeout(self, ms: int) -> float | None:
        raise Closed(self.reason)

    def watch(self, sleeper: Sleeper) -> None:
        raise Closed(self.reason)

    def unwatch(self, sleeper: Sleeper) -> None:
        """Whoever waited may leave."""


_ENGINES: weakref.WeakSet[Engine] = weakref.WeakSet()


def _after_fork() -> None:
    """A forked child has a copy of the messages: if it handed them out, they would be handed out twice."""
    for engine in list(_ENGINES):
        engine.lock = Shut("the broker was opened in another process, before a fork; open one in this process")
        engine._closing = threading.Lock()
        if engine.upkeep is not None:
            engine.upkeep.abandon()


os.register_at_fork(after_in_child=_after_fork)
