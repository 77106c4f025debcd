"""The walk of a publish: drafts → admission → store → receipts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import force_setattr, replace

from mqueue.broker.engine import Engine
from mqueue.broker.intake import check_count, check_size, one, rows_of
from mqueue.heart.topic import Topic
from mqueue.model.errors import Refused
from mqueue.model.limits import PUBLISH_TOPICS_MAX
from mqueue.model.message import QUORUM, Draft, Receipt
from mqueue.wire.rows import Rows


def publish_plain(engine: Engine, namespace: str, name: str, payload: bytes) -> Receipt:
    """One message of nothing but bytes: the shortest way through."""
    if len(payload) > engine.store.limits.payload_bytes_max:
        return publish_one(engine, namespace, name, Draft(payload))
    with engine.lock:
        now = engine.tick()
        store = engine.store
        topic = store.state.names.get((namespace, name))
        if topic is None or not topic.plain or not engine.quotas.unlimited or store.log.full:
            return _publish_one(engine, namespace, name, Draft(payload), now)
        receipt = store.publish_one(topic, payload, None, now)
        if engine.waiters:
            engine.wake(topic)
    return receipt


def publish_one(engine: Engine, namespace: str, name: str, draft: Draft) -> Receipt:
    with engine.lock:
        return _publish_one(engine, namespace, name, draft, engine.tick())


def publish_as(engine: Engine, namespace: str, name: str, draft: Draft, durability: str) -> Receipt:
    """One message that is to be just so safe before the answer."""
    with engine.reaching(durability):
        receipt = _publish_one(engine, namespace, name, draft, engine.tick())
    return reached([receipt], durability)[0]


def reached(receipts: list[Receipt], durability: str | None) -> list[Receipt]:
    """Receipts that say what was asked for. Those without an offset are promises: they are told what was reached. More
    than a store commits by itself is answered only if it was reached, for all of a call."""
    if durability == QUORUM:
        for receipt in receipts:
            force_setattr(receipt, "durability", QUORUM)
        return receipts
    if durability is None or receipts[0].durability == durability or receipts[0].offset < 0:
        return receipts
    return [replace(receipt, durability=durability) for receipt in receipts]


def _publish_one(engine: Engine, namespace: str, name: str, draft: Draft, now: int) -> Receipt:
    store = engine.store
    store.check_disk()
    topic = engine.draft_topic(namespace, name, now)
    if draft.idempotency_key is not None or not topic.id or not engine.quotas.unlimited:
        return publish_rows(engine, topic, rows_of([draft], topic.settings, store.limits, now), now)[0]
    payload, extras = one(draft, topic.settings, store.limits, now)
    store.check_one(topic, extras, now)
    receipt = store.publish_one(topic, payload, extras, now)
    if engine.waiters:
        engine.wake(topic)
    if store.written:
        engine.wake_written()
    return receipt


def publish_many(
    engine: Engine, namespace: str, name: str | None, items: Iterable[Any], durability: str | None = None
) -> list[Receipt]:
    """One call, one commit, all or none."""
    items = items if isinstance(items, list) else list(items)
    with engine.reaching(durability):
        now = engine.tick()
        engine.store.check_disk()
        if name is None or _other_topics(items, name):
            return reached(publish_drafts(engine, namespace, name, items, now), durability)
        topic = engine.draft_topic(namespace, name, now)
        rows = rows_of(items, topic.settings, engine.store.limits, now)
        return reached(publish_rows(engine, topic, rows, now), durability)


def _other_topics(items: list[Any], name: str) -> bool:
    """Whether some drafts name topics of their own."""
    return Draft in set(map(type, items)) and any(type(i) is Draft and i.topic not in (None, name) for i in items)


def publish_drafts(engine: Engine, namespace: str, name: str | None, items: Sequence[Any], now: int) -> list[Receipt]:
    """Messages for several topics in one commit: everything is checked before the first is written."""
    check_count(len(items), engine.store.limits)
    batches: dict[str, list[int]] = {}
    for row, item in enumerate(items):
        target = item.topic if isinstance(item, Draft) and item.topic else name
        if target is None:
            raise Refused(f"message {row} of the call names no topic; give Draft(…, topic=…)", code="no_topic")
        batches.setdefault(target, []).append(row)
    if len(batches) > PUBLISH_TOPICS_MAX:
        raise Refused(f"{len(batches)} topics in one call; {PUBLISH_TOPICS_MAX} are allowed", code="too_many_topics")
    work, new = [], 0
    for target, numbers in batches.items():
        topic = engine.draft_topic(namespace, target, now)
        rows = rows_of([items[row] for row in numbers], topic.settings, engine.store.limits, now)
        engine.store.check(topic, rows, now)
        work.append((target, rows, numbers))
        new += not topic.id
    check_size(sum(rows.size for _, rows, _ in work), engine.store.limits)
    engine.store.check_topics(namespace, new)
    engine.quotas.admit(namespace, len(items), now)
    answers: dict[int, Receipt] = {}
    find, make, defaults = engine.store.find_topic, engine.store.make_topic, engine.store.defaults
    for target, rows, numbers in work:
        topic = find(namespace, target) or make(namespace, target, defaults, now, admitted=True)
        answers.update(zip(numbers, engine.store.publish(topic, rows, now), strict=True))
        engine.wake(topic)
    engine.wake_written()
    return [answers[row] for row in range(len(items))]


def publish_rows(engine: Engine, topic: Topic, rows: Rows, now: int) -> list[Receipt]:
    """Let rows in and write them; the topic is made if it is not there yet."""
    if not topic.id or not engine.quotas.unlimited:
        engine.store.check(topic, rows, now)
        if not topic.id:
            engine.store.check_topics(topic.namespace, 1)
        engine.quotas.admit(topic.namespace, len(rows), now)
        topic = engine.topic(topic.namespace, topic.name, now)
    receipts = engine.store.publish(topic, rows, now)
    if engine.waiters:
        engine.wake(topic)
    engine.wake_written()
    return receipts
