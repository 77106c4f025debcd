"""Users' cursors: named places in a topic that retention does not pass, until they expire.

Whoever reads a log by scanning it (an archive, a batch job) sets one, so that what it has not read yet stays there. A
cursor hands out nothing and moves only when it is set. Inside it is a *pin*: a cursor is there the place of a group.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from mqueue.broker.engine import Engine
from mqueue.heart.topic import Topic
from mqueue.model import events as ev
from mqueue.model.errors import BadTime, NotFound, QueueFull, Refused
from mqueue.model.limits import TIME_MS_MAX
from mqueue.model.names import check_name
from mqueue.model.times import Duration, duration_ms, to_datetime


class Cursor(Struct, frozen=True):
    """Nothing of `topic` from `offsets` on, by partition, is dropped before `expires_at`. `set_at`: the last time."""

    name: str
    topic: str
    offsets: dict[int, int]
    expires_at: datetime
    made_at: datetime
    set_at: datetime


def set_cursor(
    engine: Engine, namespace: str, name: str, cursor: str, offsets: Mapping[int, int] | None, ttl: Duration
) -> Cursor:
    """Make a cursor, move it, or keep it alive as it is."""
    check_name(cursor, "cursor")
    ttl_ms = lasting_ms(ttl)
    with engine.lock:
        now = engine.tick()
        topic = engine.draft_topic(namespace, name, now)
        known = _alive(topic, now).get(cursor)
        places = _places(topic, known, offsets)
        _check_count(engine, topic, known, now)
        topic = engine.topic(namespace, name, now)
        made_at = now if known is None else known.made_at
        pin = ev.Pinned(now, topic.id, cursor, places, made_at, min(now + ttl_ms, TIME_MS_MAX))
        _clear(engine, topic, now)
        engine.store.happen(pin, now)
        return _cursor(topic, pin)


def cursors(engine: Engine, namespace: str, name: str) -> list[Cursor]:
    """Those that have not expired, by name."""
    with engine.lock:
        now = engine.tick()
        topic = engine.known_topic(namespace, name)
        return [_cursor(topic, pin) for _, pin in sorted(_alive(topic, now).items())]


def delete_cursor(engine: Engine, namespace: str, name: str, cursor: str) -> None:
    check_name(cursor, "cursor")
    with engine.lock:
        now = engine.tick()
        topic = engine.known_topic(namespace, name)
        if cursor not in _alive(topic, now):
            raise NotFound(f"cursor {cursor!r} is not there on topic {name!r}, or has expired")
        engine.store.happen(ev.Unpinned(now, topic.id, cursor), now)


def lasting_ms(ttl: Duration) -> int:
    """How long something is to last that is forgotten if nobody asks for it."""
    ms = duration_ms(ttl, "ttl")
    if not ms:
        raise BadTime(f"ttl {ttl!r:.80} is over at once; it takes more than 0")
    return ms


def _alive(topic: Topic, now: int) -> dict[str, ev.Pinned]:
    return {name: pin for name, pin in topic.pins.items() if pin.expires_at > now}


def _places(topic: Topic, known: ev.Pinned | None, offsets: Mapping[int, int] | None) -> tuple[int, ...]:
    """An offset for each partition: as given, else where the cursor stands, else the first that is retained."""
    places = list(topic.firsts)
    if known is not None:
        places[: len(known.offsets)] = known.offsets
    if offsets is not None and not isinstance(offsets, Mapping):
        raise Refused(f"offsets {offsets!r:.80}; it takes a mapping of partitions to offsets", code="bad_position")
    for partition, offset in (offsets or {}).items():
        if type(partition) is not int or not 0 <= partition < len(places):
            raise Refused(
                f"topic {topic.name!r} has partitions 0 to {len(places) - 1}, not {partition!r:.80}",
                code="bad_position",
            )
        places[partition] = _place(topic, partition, offset)
    return tuple(places)


def _place(topic: Topic, number: int, offset: int) -> int:
    partition = topic.partitions[number]
    if type(offset) is not int or not 0 <= offset <= partition.next:
        raise Refused(
            f"offset {offset!r:.80} of {topic.name}/{number}; it takes a number up to the end, {partition.next}",
            code="bad_position",
        )
    if offset < partition.first:
        raise NotFound(
            f"offset {offset} of {topic.name}/{number} is gone: the first that is retained is {partition.first}",
            code="offset_gone",
        )
    return offset


def _check_count(engine: Engine, topic: Topic, known: ev.Pinned | None, now: int) -> None:
    most = engine.store.limits.cursors_max
    if known is None and len(_alive(topic, now)) >= most:
        raise QueueFull(f"topic {topic.name!r} has {most} cursors, as many as allowed", code="cursors_full")


def _clear(engine: Engine, topic: Topic, now: int) -> None:
    """Those that have expired go."""
    for name in topic.pins.keys() - _alive(topic, now).keys():
        engine.store.happen(ev.Unpinned(now, topic.id, name), now)


def _cursor(topic: Topic, pin: ev.Pinned) -> Cursor:
    places = [*pin.offsets, *topic.firsts[len(pin.offsets) :]]
    times = (to_datetime(at) for at in (pin.expires_at, pin.made_at, pin.at))
    return Cursor(pin.name, topic.name, dict(enumerate(places)), *times)
