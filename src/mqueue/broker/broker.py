"""`mqueue.Broker`: the embedded broker, as users call it. Each call parses what was typed and goes one way down."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa

from mqueue.broker import (
    bounds,
    deliver,
    explain,
    foundation,
    frames,
    manage,
    members,
    numbers,
    occurrences,
    past,
    publish,
    replay,
    settle,
    tables,
    transact,
)
from mqueue.broker.attending import check_assigned, member_source
from mqueue.broker.commits import Gate
from mqueue.broker.consume import Source, Subscription, consume
from mqueue.broker.dlq import Dlq
from mqueue.broker.engine import Engine, Place
from mqueue.broker.envelope import EmbeddedMessage
from mqueue.broker.given import Topics, id_of, list_of, names_of
from mqueue.broker.intake_arrow import publish_table
from mqueue.broker.membered import Membered
from mqueue.broker.members import Membership
from mqueue.broker.message import Message
from mqueue.broker.pipelined import Pipelined
from mqueue.broker.schedules import Schedules
from mqueue.broker.supplied import Supplied
from mqueue.broker.waiting import never, wait_in_thread
from mqueue.heart.crew import Seat
from mqueue.heart.topic import Topic
from mqueue.log.segments.storage import Storage
from mqueue.model.clock import Clock
from mqueue.model.errors import Poisoned
from mqueue.model.limits import Limits
from mqueue.model.message import Draft, Receipt
from mqueue.model.names import check_consumer, check_name
from mqueue.model.settings import describe
from mqueue.model.times import Duration, Instant
from mqueue.wire.frame import Frame

T = TypeVar("T")
R = TypeVar("R")

_DESKS_SLACK = 1024


class Broker(Membered, Pipelined, Supplied):
    """A broker inside this process: in memory, or given a path on disk. Safe to use from many threads."""

    # What is different in an event loop; `loop` puts its own in these places, and `_wait`.
    _message_type: type[Message] = EmbeddedMessage
    _dlq_type: type[Dlq] = Dlq
    _subscription_type: type[Subscription] = Subscription
    _consume = staticmethod(consume)
    _commit = staticmethod(transact.commit)
    _walk = staticmethod(frames.walk)
    _gate_type: type[Gate] = Gate

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        name: str = "",
        clock: Clock | None = None,
        quotas: Mapping[str, int] | None = None,
        limits: Limits | None = None,
        storage: Storage | None = None,
        **settings: Any,
    ) -> None:
        check_consumer(name)
        self._engine = foundation.opened(path, clock, quotas, limits, storage, settings, self._gate_type)
        self._namespace = "default"
        self._name = name
        self._desks: dict[str, deliver.TopicDesk] = {}
        self._turn = 0
        self._root = True

    def namespace(self, name: str) -> Broker:
        """The same broker, another tenant."""
        return self._over(self._engine, check_name(name, "namespace"), self._name)

    @classmethod
    def _over(cls, engine: Engine, namespace: str, name: str) -> Self:
        """The calls of a namespace on an engine that somebody else opens and closes."""
        view = object.__new__(cls)
        view._engine = engine
        view._namespace = namespace
        view._name = name
        view._desks = {}
        view._turn = 0
        view._root = False
        return view

    def close(self) -> None:
        """Hand out nothing more, give back what is held. Closing what `namespace` gave does not close the broker."""
        if self._root:
            self._engine.close()

    def __enter__(self) -> Broker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Poisoned:
            if kind is None:  # else the block's own error is the news
                raise

    # Publish

    def publish(
        self,
        topic: str,
        payload: Any,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        priority: int | str | None = None,
        delay: Duration | None = None,
        deliver_at: Instant | None = None,
        ttl: Duration | None = None,
        idempotency_key: str | None = None,
        fairness_key: str | None = None,
        durability: str | None = None,
    ) -> Receipt:
        """Publish one message. Bytes go as they are, text as UTF-8, anything else as JSON."""
        if durability is not None:
            draft = Draft(payload, key, headers, priority, delay, deliver_at, ttl, idempotency_key, fairness_key)
            return publish.publish_as(self._engine, self._namespace, topic, draft, durability)
        if (
            payload.__class__ is bytes
            and key is None
            and headers is None
            and priority is None
            and delay is None
            and deliver_at is None
            and ttl is None
            and idempotency_key is None
            and fairness_key is None
        ):
            return publish.publish_plain(self._engine, self._namespace, topic, payload)
        draft = Draft(payload, key, headers, priority, delay, deliver_at, ttl, idempotency_key, fairness_key)
        return publish.publish_one(self._engine, self._namespace, topic, draft)

    def publish_many(
        self, topic: str | None, messages: Iterable[Any], *, durability: str | None = None
    ) -> list[Receipt]:
        """Publish many messages in one commit, all or none. Drafts may name topics of their own."""
        return publish.publish_many(self._engine, self._namespace, topic, messages, durability)

    def publish_arrow(
        self, topic: str, table: pa.Table | pa.RecordBatch, *, durability: str | None = None
    ) -> Sequence[Receipt]:
        """Publish a table in one commit: column payload; key, headers, priority, deliver_at, expires_at if present."""
        return publish_table(self._engine, self._namespace, topic, table, durability)

    # Receive

    def receive(
        self,
        topic: Topics,
        limit: int = 1,
        *,
        group: str = "default",
        wait: Duration | None = None,
        visibility: Duration | None = None,
        mode: str = "at_least_once",
        member: Membership | None = None,
    ) -> list[Message]:
        """Up to `limit` messages, in order, under one lease; [] if none is there or comes within `wait`.

        `member`: what `join` answered; of an assigned group only members receive, each from its own partitions.
        """
        if limit.__class__ is not int or not 1 <= limit <= 10_000 or mode != "at_least_once":
            deliver.check_receive(limit, mode)
        visibility_ms = None if visibility is None else deliver.visibility_ms(visibility)
        engine = self._engine
        seat: Seat | None = None
        if member is not None:
            group, seat = members.seat_of(topic, group, member)
        if topic.__class__ is str and wait is None:
            with engine.lock:
                now = engine.tick()
                desk = self._desks.get(topic)
                if desk is None or desk.topic.dropped:
                    check_name(group, "group")
                    desk = self._desk(topic, now)
                lease = engine.store.lease(desk.topic, group, limit, visibility_ms, mode, self._name, now, seat)
                if engine.store.written:
                    engine.wake_written()
                return [] if lease is None else desk.messages(lease, self._message_type)

        check_name(group, "group")

        def look(now: int) -> list[Message]:
            return self._look(topic, group, limit, visibility_ms, mode, now, seat)

        return self._wait(self._topics_of(topic), wait, look, list)

    def receive_arrow(
        self,
        topic: str,
        limit: int = 10_000,
        *,
        group: str = "default",
        wait: Duration | None = None,
        visibility: Duration | None = None,
        member: Membership | None = None,
    ) -> tables.ArrowLease:
        """Up to `limit` messages as a table under one lease, settled as a whole."""
        deliver.check_receive(limit, "at_least_once")
        visibility_ms = None if visibility is None else deliver.visibility_ms(visibility)
        group, seat = members.seat_of(topic, check_name(group, "group"), member)

        def look(now: int) -> list[tables.ArrowLease]:
            desk = self._desk(topic, now)
            store, mode = self._engine.store, "at_least_once"
            lease = store.lease(desk.topic, group, limit, visibility_ms, mode, self._name, now, seat)
            return [] if lease is None else [tables.leased(desk, lease, now)]

        if wait is None:
            with self._engine.lock:
                return tables.ArrowLease.first_of(look(self._engine.tick()))
        return self._wait(self._topics_of(topic), wait, look, tables.ArrowLease.first_of)

    def consume(
        self,
        topic: Topics,
        *,
        group: str = "default",
        prefetch: int = 100,
        visibility: Duration | None = None,
        assigned: bool = False,
        member: str | None = None,
    ) -> Iterator[Message]:
        """Messages without end; settle each (`with m:`). Leases are kept alive, what is left is given back.

        `assigned`: as a member of an assigned group, from partitions of its own. `member`: an id that keeps them over
        a restart.
        """
        deliver.check_receive(prefetch, "at_least_once")
        check_assigned(topic, assigned, member)
        if assigned:
            return self._consume(member_source(self, str(topic), group, visibility, member), prefetch)
        return self._consume(self._source(topic, group, visibility), prefetch)

    def subscribe(
        self,
        topic: Topics,
        handler: Callable[[Message], Any],
        *,
        group: str = "default",
        concurrency: int = 1,
        visibility: Duration | None = None,
    ) -> Subscription:
        """Call `handler` for each message, in the background: returns: ack, raises: nack. `close()` drains."""
        source = self._source(topic, group, visibility)
        return self._subscription_type(source, handler, concurrency)

    # Settle

    def ack(self, messages: Sequence[Message] | Message, *, publish: Sequence[Draft] = ()) -> settle.Settlement:
        """Done, and what follows from it, in one commit."""
        return settle.settle_many("ack", list_of(messages), publish=publish)

    def nack(
        self, messages: Sequence[Message] | Message, delay: Duration | None = None, error: object = None
    ) -> settle.Settlement:
        """Failed: they come back after a backoff, or after `delay`; dead after the last attempt."""
        return settle.settle_many("nack", list_of(messages), wait=delay, error=error)

    def reject(self, messages: Sequence[Message] | Message, error: object = None) -> settle.Settlement:
        """Hopeless: dead at once."""
        return settle.settle_many("reject", list_of(messages), error=error)

    def release(self, messages: Sequence[Message] | Message) -> settle.Settlement:
        """Not now: ready again at once, the attempt is not counted."""
        return settle.settle_many("release", list_of(messages))

    def extend(self, messages: Sequence[Message] | Message, visibility: Duration) -> settle.Settlement:
        """Hold them for so long, from now on."""
        return settle.settle_many("extend", list_of(messages), wait=visibility)

    # Look

    def peek(self, topic: str, limit: int = 10, *, group: str = "default") -> list[Message]:
        """What comes next for a group, not leased."""
        deliver.check_receive(limit, "at_least_once")
        with self._engine.lock:
            now = self._engine.tick()
            return replay.peek(self._known_desk(topic), check_name(group, "group"), limit, self._message_type, now)

    def scan(
        self,
        topic: str,
        start: replay.Position | None = None,
        stop: replay.Position | None = None,
        *,
        partition: int | None = None,
        include_deleted: bool = False,
    ) -> Iterator[Message]:
        """The log as it lies, touching no group. An int is an offset, anything else a time.

        `include_deleted`: also what retention has dropped, as far as a lake has it.
        """
        desk, pieces = past.scan(self._engine, self._namespace, topic, start, stop, partition, include_deleted)
        return replay.scan(desk, pieces, self._message_type)

    def scan_arrow(
        self,
        topic: str,
        start: replay.Position | None = None,
        stop: replay.Position | None = None,
        *,
        partition: int | None = None,
        include_deleted: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The same as record batches."""
        return tables.scan_batches(
            past.scan(self._engine, self._namespace, topic, start, stop, partition, include_deleted)[1]
        )

    def scan_frames(self, topic: str, partition: int, start: int, stop: int) -> Iterator[Frame]:
        """A partition from offset `start` to before `stop` as whole frames, the columns as they lie in the log."""
        return self._walk(frames.covered(self._engine, self._namespace, topic, partition, start, stop))

    def offsets(self, topic: str, at: Instant | None = None) -> list[bounds.PartitionOffsets]:
        """Where each partition begins and ends, and which offset was the first at or after a time."""
        return bounds.offsets(self._engine, self._namespace, topic, at)

    def events(self, topic: str, partition: int, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """What happened to the messages from offset `start` to before `stop`: a row for each event of each message."""
        return occurrences.events(self._engine, self._namespace, topic, partition, start, stop)

    def trace(self, id: int | Receipt | Message) -> explain.Trace:
        """The life of a message."""
        return explain.trace(self._engine, self._namespace, id_of(id))

    def explain(self, id: int | Receipt | Message, *, group: str = "default") -> explain.Explanation:
        """Why a message is not being delivered to a group right now."""
        return explain.explain(self._engine, self._namespace, id_of(id), group)

    def stats(self, topic: str) -> numbers.TopicStats:
        with self._engine.lock:
            now = self._engine.tick()
            return numbers.topic_stats(self._engine, self._engine.known_topic(self._namespace, topic), now)

    def metrics(self) -> dict[str, int]:
        """The whole broker, all namespaces, in plain numbers."""
        with self._engine.lock:
            return numbers.metrics(self._engine, self._engine.tick())

    def damage(self) -> list[str]:
        """What of the data directory was found to be damaged, in sentences; empty if all is well."""
        with self._engine.lock:
            return list(self._engine.store.log.reports)

    # Schedule

    def scheduled(self, topic: str, limit: int = 100, *, after: Message | str | None = None) -> list[Message]:
        """What is scheduled, soonest first; `after` the last one of the page before."""
        deliver.check_receive(limit, "at_least_once")
        place = replay.place_of(after)
        with self._engine.lock:
            self._engine.tick()
            return replay.scheduled(self._known_desk(topic), limit, place, self._message_type)

    def cancel(self, id: int | Receipt | Message) -> None:
        """End a scheduled message; Conflict if it is not scheduled any more."""
        manage.cancel(self._engine, self._namespace, id_of(id))

    def reschedule(
        self, id: int | Receipt | Message, *, deliver_at: Instant | None = None, delay: Duration | None = None
    ) -> None:
        """Give a scheduled message another time; Conflict if it is not scheduled any more."""
        manage.reschedule(self._engine, self._namespace, id_of(id), deliver_at, delay)

    def schedules(self, topic: str | None = None) -> Schedules:
        """What a topic is sent again and again, by the calendar; without one, that of all topics."""
        return Schedules(self._engine, self._namespace, topic)

    # Manage

    def topics(self) -> list[str]:
        return manage.topics(self._engine, self._namespace)

    def settings(self, topic: str) -> dict[str, Any]:
        with self._engine.lock:
            return describe(self._engine.known_topic(self._namespace, topic).settings)

    def configure(self, topic: str, **settings: Any) -> dict[str, Any]:
        """Change the settings that are named; the topic is made if it is not there. Answers all of them."""
        return manage.configure(self._engine, self._namespace, topic, settings)

    def purge(self, topic: str, *, ready_for: str | None = None) -> int:
        """Cancel everything there is, scheduled or not, for every group; how many messages that were. `ready_for`: only
        what that group has before it, ready or waiting; what it has leased stays, and what is scheduled."""
        return manage.purge(self._engine, self._namespace, topic, ready_for)

    def delete_topic(self, topic: str) -> None:
        manage.delete_topic(self._engine, self._namespace, topic)

    def groups(self, topic: str) -> list[str]:
        with self._engine.lock:
            return sorted(self._engine.known_topic(self._namespace, topic).groups)

    def create_group(
        self, topic: str, group: str, *, start: replay.Position = "earliest", assigned: bool = False
    ) -> None:
        """Make a group; Conflict if it is there. `assigned`: only members receive, each from its own partitions."""
        manage.create_group(self._engine, self._namespace, topic, group, start, assigned)

    def delete_group(self, topic: str, group: str) -> None:
        manage.delete_group(self._engine, self._namespace, topic, group)

    def seek(self, topic: str, *, group: str = "default", to: replay.Position) -> None:
        """Move a group: "earliest", "latest", an offset or a time. What it holds is lost to it, attempts start anew."""
        manage.seek(self._engine, self._namespace, topic, group, to)

    def dlq(self, topic: str) -> Dlq:
        """The dead-letter queue of a topic."""
        return self._dlq_type(self._engine, self._namespace, topic)

    # Inside

    def _desk(self, topic: str, now: int) -> deliver.TopicDesk:
        """Where a topic's messages are handed out; the topic is made on first use."""
        found = self._engine.topic(self._namespace, topic, now)
        desk = self._desks.get(topic)
        if desk is None or desk.topic is not found:
            if len(self._desks) > 2 * len(self._engine.store.state.names) + _DESKS_SLACK:
                self._desks = {name: known for name, known in self._desks.items() if not known.topic.dropped}
            desk = self._desks[topic] = deliver.TopicDesk(self._engine, found)
        return desk

    def _known_desk(self, topic: str) -> deliver.TopicDesk:
        return deliver.TopicDesk(self._engine, self._engine.known_topic(self._namespace, topic))

    def _source(self, topic: Topics, group: str, visibility: Duration | None) -> Source[Message]:
        visibility_ms = None if visibility is None else deliver.visibility_ms(visibility)

        def look(limit: int, now: int) -> list[Message]:
            return self._look(topic, group, limit, visibility_ms, "at_least_once", now)

        return Source(self._engine, self._topics_of(topic), look)

    def _topics_of(self, topic: Topics) -> Callable[[int], list[Topic]]:
        names = names_of(topic)
        return lambda now: [self._engine.topic(self._namespace, name, now) for name in names]

    def _wait(
        self,
        places: Callable[[int], Sequence[Place]],
        wait: Duration | None,
        look: Callable[[int], list[T]],
        pick: Callable[[list[T]], R],
    ) -> R:
        """What a waiting call answers, once there is something or its time is up."""
        return pick(wait_in_thread(self._engine, places, look, deliver.wait_ms(wait), never))

    def _look(
        self,
        topic: Topics,
        group: str,
        limit: int,
        visibility_ms: int | None,
        mode: str,
        now: int,
        seat: Seat | None = None,
    ) -> list[Message]:
        """Messages of one topic or of several, each topic getting its turn to be first."""
        names, found = names_of(topic), list[Message]()
        self._turn += 1
        for step in range(len(names)):
            desk = self._desk(names[(self._turn + step) % len(names)], now)
            room = limit - len(found)
            lease = self._engine.store.lease(desk.topic, group, room, visibility_ms, mode, self._name, now, seat)
            self._engine.wake_written()
            if lease is not None:
                found += desk.messages(lease, self._message_type)
                if len(found) == limit:
                    break
        return found
