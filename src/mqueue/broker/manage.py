"""Topics, groups and schedules: the calls that change them. Each takes the lock once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mqueue.broker.deliver import TopicDesk
from mqueue.broker.engine import Engine
from mqueue.broker.explain import find
from mqueue.broker.intake import due_at
from mqueue.broker.replay import Position, starts_of
from mqueue.heart.members import hand_on, make_assigned
from mqueue.heart.topic import Topic
from mqueue.model import events as ev
from mqueue.model.errors import BadTime, Conflict
from mqueue.model.names import check_name
from mqueue.model.settings import parse
from mqueue.model.times import Duration, Instant, rfc3339
from mqueue.store.order import due_of, order_key
from mqueue.store.purge import purge_all, purge_ready
from mqueue.store.store import known_group
from mqueue.wire.frame import Frame


def topics(engine: Engine, namespace: str) -> list[str]:
    with engine.lock:
        return sorted(name for space, name in engine.store.state.names if space == namespace)


def configure(engine: Engine, namespace: str, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    from mqueue.model.settings import describe

    with engine.lock:
        now = engine.tick()
        known = engine.store.find_topic(namespace, check_name(name, "topic"))
        wanted = parse(settings, engine.store.defaults if known is None else known.settings)
        if known is None:
            known = engine.store.make_topic(namespace, name, wanted, now)
        engine.store.configure(known, wanted, now)
        engine.wake(known)
        engine.wake_written()
        return describe(known.settings)


def purge(engine: Engine, namespace: str, name: str, ready_for: str | None) -> int:
    with engine.lock:
        now = engine.tick()
        topic = engine.known_topic(namespace, name)
        if ready_for is not None:
            return purge_ready(engine.store, topic, ready_for, now)
        return purge_all(engine.store, topic, now)


def delete_topic(engine: Engine, namespace: str, name: str) -> None:
    with engine.lock:
        now = engine.tick()
        topic = engine.known_topic(namespace, name)
        engine.store.drop_topic(topic, now)
        engine.wake(topic)


def create_group(engine: Engine, namespace: str, name: str, group: str, start: Position, assigned: bool) -> None:
    with engine.lock:
        now = engine.tick()
        topic = engine.draft_topic(namespace, name, now)
        if check_name(group, "group") in topic.groups:
            raise Conflict(f"group {group!r} of topic {name!r} is there already", code="group_exists")
        starts = starts_of(TopicDesk(engine, topic), start)
        made = engine.store.make_group(engine.topic(namespace, name, now), group, starts, now)
        if assigned:
            make_assigned(engine.store.heart, made, now)
            engine.store.commit(now)


def delete_group(engine: Engine, namespace: str, name: str, group: str) -> None:
    with engine.lock:
        now = engine.tick()
        topic = engine.known_topic(namespace, name)
        known_group(topic, group)
        engine.store.happen(ev.GroupDropped(now, topic.id, group), now)
        engine.wake_members(topic)


def seek(engine: Engine, namespace: str, name: str, group: str, to: Position) -> None:
    with engine.lock:
        now = engine.tick()
        topic = engine.known_topic(namespace, name)
        known = known_group(topic, group)
        engine.store.happen(ev.Sought(now, topic.id, group, starts_of(TopicDesk(engine, topic), to)), now)
        if known.crew is not None:  # nothing is leased any more: what was to move can
            hand_on(engine.store.heart, topic, known, now)
            engine.store.commit(now)
        engine.wake(topic)
        engine.wake_written()


def cancel(engine: Engine, namespace: str, id: int) -> None:
    with engine.lock:
        now = engine.tick()
        topic, frame, row = find(engine, namespace, id)
        priority, due, offset = _scheduled(engine, topic, frame, row, now)
        engine.store.heart.cancel(topic, frame.partition, offset, priority, max(due, now + 1), now)
        engine.store.commit(now)


def reschedule(engine: Engine, namespace: str, id: int, deliver_at: Instant | None, delay: Duration | None) -> None:
    if (deliver_at is None) == (delay is None):
        raise BadTime("reschedule takes deliver_at or delay, one of them")
    with engine.lock:
        now = engine.tick()
        topic, frame, row = find(engine, namespace, id)
        priority, was, offset = _scheduled(engine, topic, frame, row, now)
        due = max(due_at(delay, deliver_at, topic.settings, now), now + 1)
        expires = frame.number("expires_at", row)
        if expires and due >= expires:
            raise BadTime(f"deliver_at {rfc3339(due)} is not before the message expires, at {rfc3339(expires)}")
        engine.store.happen(ev.Rescheduled(now, topic.id, frame.partition, offset, priority, was, due), now)
        engine.wake(topic)


def _scheduled(engine: Engine, topic: Topic, frame: Frame, row: int, now: int) -> tuple[int, int, int]:
    """Priority, due time and offset of a message that has to be scheduled still."""
    priority, at, offset = order_key(topic, frame, row)
    if offset in topic.partitions[frame.partition].void:
        raise Conflict(f"message {frame.id_of(row)} has ended already", code="not_scheduled")
    if at <= now:
        raise Conflict(
            f"message {frame.id_of(row)} is visible since {rfc3339(at)}, not scheduled", code="not_scheduled"
        )
    return priority, due_of(topic, frame, row), offset
