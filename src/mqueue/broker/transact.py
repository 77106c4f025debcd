"""The walk of a transaction: stage what users hand in, part by part, then commit it or drop it.

What is staged is parsed and checked as a publish is. A commit goes step by step, and lets go of the lock in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from mqueue.broker.cursors import lasting_ms
from mqueue.broker.engine import Engine
from mqueue.broker.intake import rows_of
from mqueue.broker.intake_arrow import checked_table, columns_of
from mqueue.heart.topic import Topic
from mqueue.model import events as ev
from mqueue.model.errors import Conflict, Error, Refused
from mqueue.model.limits import TIME_MS_MAX, TRANSACTION_MEMORY_MS
from mqueue.model.message import Draft
from mqueue.model.names import check_part, check_transaction, transaction_of
from mqueue.model.times import Duration, to_datetime
from mqueue.store import transact
from mqueue.store.place import check_priorities, place, place_batch
from mqueue.wire.frame import Frame
from mqueue.wire.rows import Rows


class Transaction(Struct, frozen=True):
    """`state`: staged, committing (a commit has begun, and will be finished), committed or aborted.

    Once a commit has begun, parts, messages and topics are those that it publishes.
    """

    id: str
    state: str
    parts: int
    messages: int
    expires_at: datetime
    """When what is staged is aborted; of a transaction that is over, when that is forgotten."""
    topics: tuple[str, ...]


class StagedPart(Struct, frozen=True):
    """`messages`: how many there are in this part."""

    id: str
    part: str
    messages: int


def stage(
    engine: Engine,
    namespace: str,
    transaction: str,
    name: str,
    messages: pa.Table | pa.RecordBatch | Iterable[Any],
    part: str,
    ttl: Duration,
) -> StagedPart:
    """Put messages aside as one part of a transaction, in the place of an earlier part of that name."""
    check_transaction(transaction)
    check_part(part)
    ttl_ms = lasting_ms(ttl)
    limits = engine.store.limits
    table = checked_table(messages, limits) if isinstance(messages, pa.Table | pa.RecordBatch) else None
    items = [] if table is not None else list(messages)
    with engine.lock:
        now = engine.tick()
        store = engine.store
        store.check_disk()
        target = engine.draft_topic(namespace, name, now)
        body, rows = _of_items(items, target, engine, now) if table is None else columns_of(table, target, limits, now)
        count, size = (len(rows), rows.size) if body is None else (body.num_rows, body.nbytes)
        _check_keys(rows)
        store.judge(target)
        check_priorities(target, rows)
        store.ids.check(count, now)
        topic = transact.check_stage(store, namespace, transaction, part, name, size, now)
        engine.quotas.admit(namespace, count, now)
        topic = topic or transact.begin(store, namespace, transaction, now)
        levels = tuple(np.unique(np.asarray(rows.priority)).tolist())
        frames = _frames(topic, body, rows, now)
        transact.stage(store, topic, part, name, frames, levels, min(now + ttl_ms, TIME_MS_MAX), now)
        return StagedPart(transaction, part, count)


def commit(engine: Engine, namespace: str, transaction: str, parts: list[str] | None) -> Transaction:
    """Publish what was staged, all or the parts that are named, once, however often this is called."""
    while (done := commit_step(engine, namespace, transaction, parts)) is None:
        pass
    return done


def commit_step(engine: Engine, namespace: str, transaction: str, parts: list[str] | None) -> Transaction | None:
    """A part of a commit that holds the lock for a moment only; None: there is more to do."""
    check_transaction(transaction)
    with engine.lock:
        now = engine.tick()
        found = _known(engine, namespace, transaction, now)
        if isinstance(found, Topic):
            if not _commit(engine, found, parts, now):
                return None
            found = _known(engine, namespace, transaction, now)
        assert isinstance(found, ev.Concluded)
        if found.state == transact.ABORTED:
            raise transact.over(found)
        return _over(found)


def abort(engine: Engine, namespace: str, transaction: str) -> Transaction:
    """Drop everything that was staged. Once more is the same; after a commit it is a Conflict."""
    check_transaction(transaction)
    with engine.lock:
        now = engine.tick()
        found = _known(engine, namespace, transaction, now)
        if isinstance(found, Topic):
            if found.staging is not None and found.staging.moved:
                raise Conflict(f"transaction {transaction!r} is being committed", code="transaction_over")
            transact.abort(engine.store, found, now)
            found = _known(engine, namespace, transaction, now)
        assert isinstance(found, ev.Concluded)
        if found.state != transact.ABORTED:
            raise transact.over(found)
        return _over(found)


def forget(engine: Engine, namespace: str, transaction: str) -> None:
    """It is over, and nobody will ask how it ended. Once more, or for one that never was, is the same."""
    check_transaction(transaction)
    with engine.lock:
        now = engine.tick()
        engine.confirm()
        found = transact.find(engine.store, namespace, transaction, now)
        if isinstance(found, Topic):
            raise Conflict(f"transaction {transaction!r} is not over; commit or abort it", code="transaction_open")
        if found is not None:
            transact.forget(engine.store, found, namespace, now)


def look_up(engine: Engine, namespace: str, transaction: str) -> Transaction:
    """How it stands with a transaction."""
    check_transaction(transaction)
    with engine.lock:
        found = _known(engine, namespace, transaction, engine.tick())
        return _open(found) if isinstance(found, Topic) else _over(found)


def _known(engine: Engine, namespace: str, transaction: str, now: int) -> Topic | ev.Concluded:
    """A transaction that has to be there. What is told of it is durable, whoever did it."""
    engine.confirm()
    return transact.known(engine.store, namespace, transaction, now)


def _commit(engine: Engine, topic: Topic, parts: list[str] | None, now: int) -> bool:
    assert topic.staging is not None
    begun = bool(topic.staging.moved)
    try:
        return transact.commit(engine.store, topic, parts, now)
    except Error as error:
        if begun:  # what was published so far stays, and the rest will follow
            error.applied = None
        raise
    finally:
        engine.wake_written()


def _of_items(items: list[Any], target: Topic, engine: Engine, now: int) -> tuple[None, Rows]:
    for row, item in enumerate(items):
        if isinstance(item, Draft) and item.topic not in (None, target.name):
            raise Refused(f"message {row} is for topic {item.topic!r:.80}; all of a part are for one, {target.name!r}")
    return None, rows_of(items, target.settings, engine.store.limits, now)


def _check_keys(rows: Rows) -> None:
    """A key would have to be claimed when it is staged, for a message that may never be published."""
    for key in rows.idempotency_key or ():
        if key is not None:
            raise Refused(
                f"idempotency_key {key!r:.80}: none may be staged; a commit happens once as it is", code="staged_key"
            )
    rows.idempotency_key = None


def _frames(topic: Topic, body: pa.RecordBatch | None, rows: Rows, now: int) -> list[Frame]:
    if body is None:
        return [piece.frame for piece in place(topic, rows, 0, now)]
    return [frame for frame, _ in place_batch(topic, body, rows, 0, now)]


def _open(topic: Topic) -> Transaction:
    staging = topic.staging
    assert staging is not None
    state = "committing" if staging.moved else "staged"
    expires_at = to_datetime(staging.expires_at)
    return Transaction(
        transaction_of(topic.name), state, len(staging.parts), staging.messages, expires_at, staging.targets
    )


def _over(line: ev.Concluded) -> Transaction:
    forgotten_at = to_datetime(min(line.at + TRANSACTION_MEMORY_MS, TIME_MS_MAX))
    return Transaction(line.transaction, line.state, line.parts, line.messages, forgotten_at, line.targets)
