"""What became of a message: its place, its trace, and why it is not being delivered right now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from mqueue.broker.engine import Engine
from mqueue.broker.telling import detail, told
from mqueue.heart.group import Group
from mqueue.heart.runs import Run
from mqueue.heart.topic import Topic
from mqueue.heart.turns import Turns
from mqueue.model import events as ev
from mqueue.model.errors import NotFound
from mqueue.model.lifecycle import Kind
from mqueue.model.times import rfc3339, to_datetime
from mqueue.store.bury import dlq_of
from mqueue.store.keys import keys_in, learn
from mqueue.store.order import due_of, order_key
from mqueue.wire.frame import Frame


class TraceEvent(Struct, frozen=True):
    time: datetime
    kind: str
    detail: str


class Trace(Struct, frozen=True):
    """The life of a message; printed, its timeline."""

    id: int
    topic: str
    events: tuple[TraceEvent, ...]

    @property
    def attempts(self) -> int:
        """How often it was delivered, to all groups together."""
        return sum(event.kind in (Kind.DELIVERED, Kind.REDELIVERED) for event in self.events)

    @property
    def latency(self) -> timedelta | None:
        """From publish to the first acknowledgement."""
        done = [event.time for event in self.events if event.kind == Kind.ACKNOWLEDGED]
        return done[0] - self.events[0].time if done else None

    def __str__(self) -> str:
        lines = [f"message {self.id} in {self.topic}"]
        for event in self.events:
            time = event.time.isoformat(sep=" ", timespec="milliseconds")[:23]
            lines.append(f"  {time}  {event.kind:<13} {event.detail}")
        return "\n".join(line.rstrip() for line in lines)


class Explanation(Struct, frozen=True):
    """Why a message is not being delivered now. `code` is stable; printed, it is a sentence."""

    code: str
    sentence: str
    until: datetime | None = None
    by: str | None = None
    ahead: int = 0

    def __str__(self) -> str:
        return self.sentence


def find(engine: Engine, namespace: str, id: int) -> tuple[Topic, Frame, int]:
    """The topic, frame and row of a message. Call it with the lock held."""
    found = engine.store.log.find(id)
    if found is not None:
        frame, row = found
        topic = engine.store.state.topics.get(frame.topic)
        if topic is not None and topic.namespace == namespace and not topic.hidden:
            return topic, frame, row
    raise NotFound(f"message {id} is not there: it never was, or retention has dropped it")


def trace(engine: Engine, namespace: str, id: int) -> Trace:
    with engine.lock:
        engine.tick()
        topic, frame, row = find(engine, namespace, id)
        journal = _journal(engine, topic, frame, row)
        standbys = engine.store.log.standbys(frame.at_of(row))
    events = [*_born(frame, row, standbys), *_lived(journal, frame.partition, frame.base + row)]
    return Trace(id, topic.name, tuple(TraceEvent(to_datetime(at), kind.value, detail) for at, kind, detail in events))


def explain(engine: Engine, namespace: str, id: int, group_name: str) -> Explanation:
    with engine.lock:
        now = engine.tick()
        topic, frame, row = find(engine, namespace, id)
        group = topic.groups.get(group_name)
        found = _message_state(engine, topic, frame, row, now) or _delivery_state(
            engine, topic, group, frame, row, group_name, now
        )
        if found.code != "settled":
            return found
        journal, dlq = _journal(engine, topic, frame, row), dlq_of(topic)
    return _death(journal, frame.partition, frame.base + row, group_name, dlq) or found


def _journal(engine: Engine, topic: Topic, frame: Frame, row: int) -> Iterable[ev.Event]:
    """What happened to a message, and more; it may be walked with the lock let go."""
    engine.store.flush()
    if not topic.settings.trace:
        return ()
    return engine.store.log.events(topic.id, frame.partition, frame.base + row, frame.base + row + 1)


def _message_state(engine: Engine, topic: Topic, frame: Frame, row: int, now: int) -> Explanation | None:
    """What holds for every group."""
    _, at, offset = order_key(topic, frame, row)
    partition = topic.partitions[frame.partition]
    if offset in partition.void:
        if offset in partition.expired:
            return Explanation("expired", f"it expired at {rfc3339(frame.number('expires_at', row))}")
        return Explanation("cancelled", "it was cancelled")
    due = due_of(topic, frame, row)
    if due > now:
        return Explanation("scheduled", f"it is scheduled for {rfc3339(due)}", until=to_datetime(due))
    if at > now:
        rate = topic.settings.due_rate
        allowed = "no more" if rate is None else f"{rate:g} a second"
        why = f"it was due at {rfc3339(due)}; {allowed} may become visible (due_rate), and others were due before it"
        return Explanation("throttled", why)
    return None


def _delivery_state(
    engine: Engine, topic: Topic, group: Group | None, frame: Frame, row: int, name: str, now: int
) -> Explanation:
    priority, at, offset = order_key(topic, frame, row)
    if group is None:
        return Explanation(
            "no_consumer", f"no consumer of group {name!r} has ever asked for messages of {topic.name!r}"
        )
    reader = group.readers[frame.partition]
    held = engine.store.heart.lease_of(group, frame.partition, offset)
    if held is not None:
        lease, run = held
        who = lease.consumer or "a consumer"
        return Explanation("leased", f"{who} holds it until {rfc3339(run.until)}", until=to_datetime(run.until), by=who)
    parked = reader.holds(offset)
    if parked is not None and parked.until:
        why = f"attempt {parked.attempt} failed; it waits for its retry until {rfc3339(parked.until)}"
        return Explanation("waiting", why, until=to_datetime(parked.until))
    if parked is None and offset < reader.start:
        return Explanation("before_start", f"group {name!r} starts at offset {reader.start}, behind it")
    if parked is None and reader.passed(priority, at, offset, offset + 1) > offset:
        return Explanation("settled", f"group {name!r} has settled it")
    if group.in_flight >= topic.settings.in_flight_max:
        limit = topic.settings.in_flight_max
        return Explanation(
            "in_flight_max", f"group {name!r} holds {group.in_flight} messages, as many as in_flight_max {limit} allows"
        )
    turn = None if group.turns is None else _turn_state(engine, topic, group, group.turns, frame, row, now)
    if turn is not None:
        return turn
    ahead, urgent = _ahead(group, (priority, at, frame.partition, offset))
    if ahead:
        more = f", {urgent} of higher priority" if urgent else ""
        return Explanation("behind", f"{ahead} messages go before it{more}", ahead=ahead)
    since = rfc3339(group.heard_at)
    return Explanation("ready", f"it is next; group {name!r} last asked for messages at {since}")


def _death(journal: Iterable[ev.Event], partition: int, offset: int, name: str, dlq: str | None) -> Explanation | None:
    """Whether it was given up: of what a group is done with, the state does not tell how it ended. The newest event
    goes first: what is asked about has mostly just happened."""
    for event in reversed(list(journal)):
        if not isinstance(event, ev.Settled | ev.Diverted | ev.Redriven) or event.group != name:
            continue
        for part in told(event, partition, offset, offset + 1):
            if part.kind is not Kind.DEAD:
                return None
            why = detail(event, part.attempt).removeprefix(f"{name}, ")
            where = f"; the dead go to {dlq!r}" if dlq else ""
            return Explanation("dead", f"group {name!r} has given it up: {why}{where}")
    return None


def _turn_state(
    engine: Engine, topic: Topic, group: Group, turns: Turns, frame: Frame, row: int, now: int
) -> Explanation | None:
    """Whether its keys keep a ready message from being delivered."""
    learn(engine.store.state, engine.store.log, group, turns, now)
    key, share = keys_in(frame, row)
    if turns.rules.ordered and key:
        if key in group.diverted:
            return Explanation("diverted", "an earlier message of its key is dead: it goes to the dead-letter queue")
        holder = _holder(engine, group, key)
        if holder is not None:
            run, who = holder
            there = engine.store.log.frame(topic.id, run.partition, run.start)
            by = "?" if there is None else str(there.id_of(run.start - there.base))
            return Explanation("key_held", f"its key is held by message {by}, {who}", to_datetime(run.until), by)
    if turns.flows is not None and turns.flows.room(share, now) < 1:
        keys = frame.rows.fairness_key
        name = None if keys is None else keys[row]
        shown = "messages without a fairness key" if name is None else f"fairness key {name!r}"
        return Explanation("throttled", f"{shown} may not have more in flight, or go faster", by=name)
    return None


def _holder(engine: Engine, group: Group, key: int) -> tuple[Run, str] | None:
    """The message that an ordering key waits for, and what became of it. Walks leases and what is given back."""
    for token in group.tokens:
        lease = engine.store.state.leases[token]
        for run in lease.runs:
            if run.mask and run.keys is not None and run.keys[0] == key:
                return run.part(run.mask), f"which {lease.consumer or 'a consumer'} holds until {rfc3339(run.until)}"
    for reader in group.readers:
        for run in reader.parked.values():
            if run.until and run.keys is not None and run.keys[0] == key:
                return run, f"which waits for its retry until {rfc3339(run.until)}"
    return None


def _ahead(group: Group, key: tuple[int, int, int, int]) -> tuple[int, int]:
    """How many ready messages of a group sort before an order key, and how many of them are of higher priority."""
    count = urgent = 0
    for reader in group.readers:
        for priority, at, start, _, mask in reader.upcoming():
            if (priority, at) > key[:2]:
                break
            if priority < key[0]:
                urgent += mask.bit_count()
            if reader.partition.number != key[2]:
                count += mask.bit_count() if (priority, at, start) < (*key[:2], key[3]) else 0
            elif (priority, at) < key[:2]:
                count += mask.bit_count()
            else:
                count += (mask & (1 << max(0, key[3] - start)) - 1).bit_count()
    return count, urgent


def _born(frame: Frame, row: int, standbys: Sequence[str]) -> Iterator[tuple[int, Kind, str]]:
    at = frame.at_of(row)
    yield at, Kind.PUBLISHED, f"partition {frame.partition}, offset {frame.base + row}"
    due = frame.number("deliver_at", row)
    if due > at:
        yield at, Kind.SCHEDULED, f"for {rfc3339(due)}"
    if standbys:
        yield at, Kind.REPLICATED, f"confirmed by one or more of {', '.join(standbys)}"


def _lived(events: Iterable[ev.Event], partition: int, offset: int) -> Iterator[tuple[int, Kind, str]]:
    for event in events:
        for part in told(event, partition, offset, offset + 1):
            yield event.at, part.kind, detail(event, part.attempt)
