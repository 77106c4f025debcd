"""The store: heart and log together. Decides with the one, writes down with the other.

Every verb takes the time, and ends with what happened in the log. It knows no users, no JSON, no waiting and no locks:
whoever calls it calls it from one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby

from msgspec.structs import replace

from mqueue.heart.crew import Seat
from mqueue.heart.group import Group, Lease
from mqueue.heart.heart import Fallen, Heart, Outcome
from mqueue.heart.members import rebalance, seats
from mqueue.heart.state import State
from mqueue.heart.topic import Topic
from mqueue.heart.turns import Turns
from mqueue.log.base import Log
from mqueue.log.told import claims_of
from mqueue.model import events as ev
from mqueue.model.errors import BadSetting, DiskFull, NotFound, QueueFull, Unavailable
from mqueue.model.ident import IdSource
from mqueue.model.limits import Limits
from mqueue.model.message import Receipt
from mqueue.model.names import check_name, dlq_name, is_dlq
from mqueue.model.priority import NORMAL
from mqueue.model.settings import Settings
from mqueue.policy.routing import partition_of
from mqueue.store import bury
from mqueue.store.changes import check_change
from mqueue.store.keys import draw, learn
from mqueue.store.place import Known, check_priorities, check_priority, place, receipts, recognise
from mqueue.store.tokens import Tokens
from mqueue.store.visits import Visits
from mqueue.wire.frame import Frame
from mqueue.wire.rows import Extras, Rows

HEARD_MS = 3_600_000
"""How often it is written down that a group asks for messages and gets none."""


class Store:
    __slots__ = (
        "_bury_at",
        "_jitter",
        "defaults",
        "heart",
        "history_bytes",
        "ids",
        "limits",
        "log",
        "state",
        "tokens",
        "topic_id",
        "turned",
        "unburied",
        "visits",
        "written",
    )

    def __init__(
        self,
        log: Log,
        *,
        ids: IdSource,
        tokens: Tokens,
        jitter: Callable[[], float],
        defaults: Settings,
        limits: Limits,
        history_bytes: int | None = None,
        heart: Heart | None = None,
    ) -> None:
        self.heart = heart or Heart()
        self.state: State = self.heart.state
        self.log = log
        self.ids = ids
        self.tokens = tokens
        self.defaults = defaults
        self.limits = limits
        self.history_bytes = history_bytes
        """So much of what its groups have settled a topic keeps at most, whatever its own rule says."""
        self.topic_id = 0
        self.visits: dict[int, Visits] = {}
        """What retention remembers of topics between its visits."""
        self.written: list[Topic] = []
        """Topics that got something besides what was published: whoever waits for them has to be told."""
        self.unburied: list[Fallen] = []
        """The dead whose copy could not be made yet: they could not be read, or had nowhere to go."""
        self.turned: dict[tuple[int, str], int] = {}
        """How many messages of a topic were settled by a verb other than ack since the start; for metrics."""
        self._bury_at = 0
        self._jitter = jitter

    # Time and the log

    def advance(self, now: int) -> None:
        """Let time pass."""
        if now >= self.heart.next_at:
            known = len(self.heart.news)
            self.heart.advance(now)
            self._count_late(known)
            self.commit(now)
        if self.unburied and now >= self._bury_at:
            self._bury_again(now)

    def _count_late(self, known: int) -> None:
        """Messages whose lease has just run out, beside what consumers gave back themselves."""
        for event in self.heart.news[known:]:
            if isinstance(event, ev.Settled) and event.reason == "visibility_timeout":
                place = event.topic, "expire"
                self.turned[place] = self.turned.get(place, 0) + sum(span[3].bit_count() for span in event.spans)

    def commit(self, now: int) -> None:
        """Write down what happened; the dead go to their queue in the same commit."""
        heart = self.heart
        if heart.fallen:
            self._bury(now)
        if len(heart.news) >= self.log.lag:
            self.flush()

    def flush(self) -> None:
        """Hand the news to the log."""
        if self.heart.news:
            news, self.heart.news = self.heart.news, []
            self.log.record(news)

    def _bury(self, now: int) -> None:
        """Copy the dead to their dead-letter queues; none of those has one itself."""
        fallen, self.heart.fallen = self.heart.fallen, []
        for topic, dead in groupby(fallen, key=lambda one: one.topic):
            name = bury.dlq_of(topic)
            if name is not None and not topic.dropped:
                self.unburied += self._copy(topic, name, list(dead), now)

    def _copy(self, topic: Topic, name: str, dead: list[Fallen], now: int) -> list[Fallen]:
        """The dead of one topic; those of whom no copy could be made now. Whoever publishes, or is told that something
        arrived, must not fail because somebody else died of it."""
        left: list[Fallen] = []
        rows = bury.copies(self.log, dead, left)
        try:
            if rows.payload:
                target = self.find_topic(topic.namespace, name) or self.add_topic(
                    topic.namespace, name, bury.dlq_settings(self.defaults), now
                )
                self.append_rows(target, rows, now)
                self.written.append(target)
        except Unavailable:  # nobody could be asked where they go, or there are no ids
            return dead
        return left

    def _bury_again(self, now: int) -> None:
        """Those that could not be copied when they died. Whoever cannot be for long is given up, and told of."""
        self._bury_at = now + bury.AGAIN_MS
        for dead in self.unburied:
            if now - dead.failure.last_at > bury.PATIENCE_MS:
                self.log.reports.append(bury.given_up(dead))
            else:
                self.heart.fallen.append(dead)
        self.unburied.clear()
        self.commit(now)
        self.flush()

    def happen(self, event: ev.Event, now: int) -> None:
        """Something was decided elsewhere."""
        self.heart.happen(event)
        self.commit(now)

    # Topics and groups

    def find_topic(self, namespace: str, name: str) -> Topic | None:
        return self.state.names.get((namespace, name))

    def topic(self, namespace: str, name: str, now: int) -> Topic:
        """A topic, made on first use."""
        topic = self.find_topic(namespace, name)
        return topic if topic is not None else self.make_topic(namespace, name, self.defaults, now)

    def make_topic(self, namespace: str, name: str, settings: Settings, now: int, *, admitted: bool = False) -> Topic:
        """`admitted`: somebody has seen that there is room for it."""
        if not admitted:
            self.check_topics(namespace, 1)
        check_settings(name, settings)
        return self.add_topic(namespace, name, bury.dlq_settings(settings) if is_dlq(name) else settings, now)

    def settings_of(self, name: str) -> Settings:
        """What a topic of that name is made with on first use."""
        return bury.dlq_settings(self.defaults) if is_dlq(name) else self.defaults

    def add_topic(self, namespace: str, name: str, settings: Settings, now: int) -> Topic:
        """A topic whose name and settings were checked."""
        self.topic_id += 1
        self.happen(ev.TopicMade(now, self.topic_id, namespace, name, settings), now)
        return self.state.topics[self.topic_id]

    def check_topics(self, namespace: str, more: int) -> None:
        """Raise if a namespace cannot have so many more topics."""
        if self.state.spaces.get(namespace, 0) + more > self.limits.topics_max:
            raise QueueFull(
                f"namespace {namespace!r} cannot have {more} more topics: {self.limits.topics_max} are allowed",
                code="topics_full",
            )

    def configure(self, topic: Topic, settings: Settings, now: int) -> None:
        check_change(topic, settings, self.promised(topic))
        check_settings(topic.name, settings)
        if settings != topic.settings:
            more = settings.partitions > len(topic.partitions)
            self.heart.happen(ev.TopicSet(now, topic.id, settings))
            for group in topic.groups.values() if more else ():
                if group.crew is not None:
                    rebalance(self.heart, topic, group, f"{settings.partitions} partitions", now)
            self.commit(now)

    def drop_topic(self, topic: Topic, now: int) -> None:
        self.happen(ev.TopicDropped(now, topic.id), now)
        self.flush()
        self.log.drop(topic.id)
        self.visits.pop(topic.id, None)
        for verb in ("nack", "reject", "release", "expire"):
            self.turned.pop((topic.id, verb), None)

    def group(self, topic: Topic, name: str, now: int) -> Group:
        """A group, made on first use from where the topic's settings say."""
        group = topic.groups.get(name)
        if group is None:
            starts = topic.firsts if topic.settings.start == "earliest" else topic.ends
            group = self.make_group(topic, name, starts, now)
        return group

    def make_group(self, topic: Topic, name: str, starts: tuple[int, ...], now: int) -> Group:
        if len(topic.groups) >= self.limits.groups_max:
            raise QueueFull(
                f"topic {topic.name!r} has {self.limits.groups_max} groups, as many as allowed", code="groups_full"
            )
        self.happen(ev.GroupMade(now, topic.id, name, starts), now)
        return topic.groups[name]

    # Publish

    def publish_one(self, topic: Topic, payload: bytes, extras: Extras | None, now: int) -> Receipt:
        """One message that was let in. It joins others that come alone in an open frame."""
        key = extras.get("key") if extras else None
        if len(topic.partitions) == 1:
            number = 0
        else:
            number = self.next_partition(topic) if key is None else partition_of(key, len(topic.partitions))
        id = self.ids.take(1, now)
        offset = self.log.extend(topic.id, number, payload, extras, id, now)
        if not extras:
            topic.partitions[number].append(offset, offset + 1, NORMAL, now)
        else:
            get = extras.get
            stretch = (offset, offset + 1, get("priority", NORMAL), get("deliver_at", 0), get("expires_at", 0))
            self.state.append(topic, number, [stretch], now)
        return Receipt(id, topic.name, number, offset, False, self.log.durability)

    def check_disk(self) -> None:
        """Raise if there is no room for more messages; what is there can still be settled."""
        if self.log.full:
            raise DiskFull(self.log.full)

    def check_one(self, topic: Topic, extras: Extras | None, now: int) -> None:
        """Let one message in, or raise."""
        if extras and "priority" in extras:
            check_priority(topic, extras["priority"])
        if topic.settings.max_depth is not None:
            self.ids.check(1, now)
            self.make_room(topic, 1, now)

    def publish(self, topic: Topic, rows: Rows, now: int) -> list[Receipt]:
        """All or none of a call; receipts in the order of its rows."""
        if rows.idempotency_key is None:
            return self._write(topic, rows, now)
        known = self.recognise(topic, rows, now)
        fresh = self._write(topic, rows if len(known.fresh) == len(rows) else rows.take(known.fresh), now)
        receipts = dict(zip(known.fresh, fresh, strict=True))
        durability = self.log.durability
        for row, claim in known.claims.items():
            receipts[row] = Receipt(claim.id, topic.name, claim.partition, claim.offset, True, durability)
        for row, first in known.repeats.items():
            receipts[row] = replace(receipts[first], duplicate=True)
        for row in (*known.claims, *known.repeats) if topic.settings.trace else ():
            self.heart.happen(ev.Duplicated(now, topic.id, receipts[row].partition, receipts[row].offset))
        self.commit(now)
        return [receipts[row] for row in range(len(rows))]

    def check(self, topic: Topic, rows: Rows, now: int) -> None:
        """Raise what publishing these rows would raise, changing nothing."""
        self.ids.check(len(rows), now)
        known = len(rows)
        if rows.idempotency_key is not None:
            known = len(self.recognise(topic, rows, now).fresh)
        self.check_room(topic, known)
        check_priorities(topic, rows)

    def recognise(self, topic: Topic, rows: Rows, now: int) -> Known:
        """What is known of the idempotency keys of a call."""
        known = recognise(rows, lambda key: self.heart.find_claim(topic, key, now))
        keys = sum(key is not None for key in rows.idempotency_key or ()) - len(known.claims) - len(known.repeats)
        topic.dedup.make_room(keys, topic.settings, now, lambda claim: self.heart.done(topic, claim, now))
        return known

    def receipt(self, placed: ev.Placed) -> Receipt:
        """The receipt of a message that was published with a settle call before."""
        return Receipt(*placed, self.log.durability)

    def append(self, topic: Topic, frames: list[Frame], now: int) -> None:
        """Frames that need no filtering: given ids, written, made known to the heart."""
        ids = [self.ids.take(frame.count, now) for frame in frames]  # may refuse: before anything is written
        for frame, id in zip(frames, ids, strict=True):
            self.log.append(frame, id, now)
            self.state.append(topic, frame.partition, frame.stretches(0), now)

    def make_room(self, topic: Topic, count: int, now: int) -> None:
        """Refuse, or drop the oldest, if a topic would get deeper than its setting allows."""
        self.check_room(topic, count)
        if topic.settings.max_depth is not None:
            self.shed(topic, count, now)

    def shed(self, topic: Topic, count: int, now: int) -> None:
        """Drop the oldest until there is room for so many more, if the topic says so."""
        depth_max = topic.settings.max_depth
        if depth_max is None or topic.settings.overflow == "refuse" or topic.filled + count <= depth_max:
            return
        self.heart.drop_oldest(topic, depth_max - count, now)
        self.commit(now)

    def promised(self, topic: Topic) -> int:
        """How many messages of a topic are handed in that its depth does not count yet."""
        return 0

    def judge(self, topic: Topic) -> None:
        """Raise if a topic has a rule that cannot be checked here."""

    def check_room(self, topic: Topic, count: int) -> None:
        depth_max = topic.settings.max_depth
        if depth_max is None:
            return
        promised = self.promised(topic)
        if count > topic.room(promised):
            holds = f"topic {topic.name!r} holds {topic.depth + promised} messages"
            raise QueueFull(f"{holds}; {count} more exceed max_depth {depth_max}", retryable=count <= depth_max)

    def _write(self, topic: Topic, rows: Rows, now: int) -> list[Receipt]:
        if not rows.payload:
            return []
        check_priorities(topic, rows)
        self.ids.check(len(rows), now)
        self.make_room(topic, len(rows), now)
        return self.append_rows(topic, rows, now)

    def append_rows(self, topic: Topic, rows: Rows, now: int) -> list[Receipt]:
        """Rows that were let in."""
        if len(rows) == 1:
            return [self._append_one(topic, rows, now)]
        placed = place(topic, rows, self.next_partition(topic), now)
        self.append(topic, [piece.frame for piece in placed], now)
        for piece in placed:
            self._claim(topic, piece.frame, range(piece.frame.count))
        return receipts(topic, placed, len(rows), self.log.durability)

    def _append_one(self, topic: Topic, rows: Rows, now: int) -> Receipt:
        receipt = self.publish_one(topic, rows.payload[0], rows.extras(0), now)
        if rows.idempotency_key is not None:
            frame = self.log.frame(topic.id, receipt.partition, receipt.offset)
            assert frame is not None
            row = receipt.offset - frame.base
            self._claim(topic, frame, range(row, row + 1))
        return receipt

    def _claim(self, topic: Topic, frame: Frame, rows: range) -> None:
        for key, claim in claims_of(frame, rows):
            topic.dedup.add(key, claim, topic.settings)

    def next_partition(self, topic: Topic) -> int:
        """Batches without keys go round."""
        topic.robin += 1
        return topic.robin % len(topic.partitions)

    # Deliver and settle

    def lease(
        self,
        topic: Topic,
        group_name: str,
        limit: int,
        visibility_ms: int | None,
        mode: str,
        consumer: str,
        now: int,
        seat: Seat | None = None,
    ) -> Lease | None:
        """The next messages for a group, which is made on first use, under a new token; for a member, if it has any."""
        group = topic.groups.get(group_name) if seat is None else known_group(topic, group_name)
        if group is None:
            group = self.group(topic, check_name(group_name, "group"), now)
        only = seats(topic, group, seat, now) if group.crew is not None or seat is not None else None
        settings = topic.settings
        room = settings.in_flight_max - group.in_flight
        if limit > room:
            limit = room
        deadline = now + (settings.visibility_ms if visibility_ms is None else visibility_ms)
        if group.turns is None:
            lease = self.heart.lease(group, limit, deadline, consumer, self.tokens.take(), now, only)
        else:
            lease = self._lease_in_turn(group, group.turns, limit, deadline, consumer, now, only)
        if lease is None:
            self._hear(group, now)
            return None
        if mode == "at_most_once":
            self.finish(lease, now)
        if len(self.heart.news) >= self.log.lag:
            self.flush()
        return lease

    def _lease_in_turn(
        self,
        group: Group,
        turns: Turns,
        limit: int,
        deadline: int,
        consumer: str,
        now: int,
        only: tuple[int, ...] | None,
    ) -> Lease | None:
        """The same where messages take turns: what could be next is drawn and its keys are told before."""
        token = self.tokens.take()
        lease, asked = None, False
        while lease is None and limit > 0:
            drew = draw(self.state, self.log, group, limit, now, only)
            if asked and not drew and not turns.hidden:
                break
            lease = self.heart.lease(group, limit, deadline, consumer, token, now, only)
            asked = True
        if self.heart.fallen:
            self.commit(now)
        return lease

    def finish(self, lease: Lease, now: int) -> None:
        """At most once: what is being handed out is settled already."""
        runs = tuple(run.part(run.mask) for run in lease.runs)
        self.heart.settle(lease.token, "ack", None, now)
        lease.runs = runs  # what was handed out, though nothing of it is held
        group = lease.group
        if group.turns is not None and group.turns.freed:  # others of its keys may go at once
            self.written.append(self.state.topics[group.topic])

    def _hear(self, group: Group, now: int) -> None:
        """A group asked in vain. Once in an hour that is written down: a restart must not cost it its hold."""
        group.heard_at = now
        if now - group.told_at >= HEARD_MS:
            self.happen(ev.Heard(now, group.topic, group.name), now)

    def settle(
        self,
        token: bytes,
        verb: str,
        spans: Iterable[ev.Span] | None,
        now: int,
        *,
        delay_ms: int | None = None,
        error: str = "",
    ) -> Outcome:
        jitter = self._jitter() if verb == "nack" else 0.0
        lease = self.state.leases.get(token)
        if verb != "ack" and lease is not None and lease.group.turns is not None and not lease.group.turns.learned:
            learn(self.state, self.log, lease.group, lease.group.turns, now)  # how it fails depends on its key
        outcome = self.heart.settle(token, verb, spans, now, delay_ms=delay_ms, jitter=jitter, error=error)
        if verb != "ack" and lease is not None:
            place = lease.group.topic, verb
            self.turned[place] = self.turned.get(place, 0) + outcome.settled
        self.commit(now)
        return outcome

    def extend(self, token: bytes, spans: Iterable[ev.Span] | None, deadline: int, now: int) -> Outcome:
        outcome = self.heart.extend(token, spans, deadline, now)
        self.commit(now)
        return outcome


def known_group(topic: Topic, name: str) -> Group:
    """A group that has to be there."""
    group = topic.groups.get(name)
    if group is None:
        there = ", ".join(sorted(topic.groups)[:20]) or "none"
        raise NotFound(f"group {check_name(name, 'group')!r} is not there on topic {topic.name!r}; there are: {there}")
    return group


def check_settings(name: str, settings: Settings) -> None:
    """A message must not die and find no place to go."""
    if settings.dlq and settings.dlq_topic is None and not is_dlq(name):
        dlq_name(name)
    if settings.dlq and settings.dlq_topic == name:
        raise BadSetting(f"topic {name!r} cannot be its own dead-letter queue")
