"""Transactions: messages are staged part by part, and published by one commit, or never.

What is staged lies in a topic of its own, in frames like all others, so it is as durable as they are. A commit appends
these frames to the topics that they are for; it may name the parts that count, and then the others never show. What
one step of it publishes, and that it did, is one commit of the log: so a step happens once, whatever crashes, and one
that is called again goes on where the last one ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress

from mqueue.heart.staging import Staging
from mqueue.heart.topic import Topic
from mqueue.model import events as ev
from mqueue.model.errors import Conflict, Corrupt, Error, NotFound, QueueFull, Refused, TooLarge
from mqueue.model.limits import COMMIT_STEP_BYTES, COMMIT_STEP_MESSAGES, TRANSACTION_TOPICS_MAX, Limits
from mqueue.model.names import LEDGER, staging_name, transaction_of
from mqueue.model.settings import Retention, Settings
from mqueue.store.place import check_priorities, place_batch
from mqueue.store.store import Store, check_settings
from mqueue.wire.frame import Frame
from mqueue.wire.rows import Rows

COMMITTED, ABORTED = "committed", "aborted"
_SETTINGS = Settings(retention=Retention(hours=None), dlq=False)
"""Of hidden topics: nothing in them is ever dropped by itself."""


def find(store: Store, namespace: str, transaction: str, now: int) -> Topic | ev.Concluded | None:
    """A transaction: the topic it is staged in, or how it ended. What was staged too long ago is aborted first."""
    topic = store.state.staged.get(namespace, {}).get(transaction)
    if topic is not None:
        staging = _staging(topic)
        if staging.moved or staging.expires_at > now:
            return topic
        abort(store, topic, now)
    ledger = store.state.ledgers.get(namespace)
    return ledger.ledger.find(transaction, now) if ledger is not None and ledger.ledger is not None else None


def known(store: Store, namespace: str, transaction: str, now: int) -> Topic | ev.Concluded:
    """The same of a transaction that has to be there."""
    found = find(store, namespace, transaction, now)
    if found is None:
        raise NotFound(f"transaction {transaction!r} is not there in namespace {namespace!r}")
    return found


def check_stage(
    store: Store, namespace: str, transaction: str, part: str, target: str, size: int, now: int
) -> Topic | None:
    """Raise if a part of so many bytes cannot be staged; the topic of a transaction that has begun."""
    found = find(store, namespace, transaction, now)
    if isinstance(found, ev.Concluded):
        raise over(found)
    if found is None:
        _check_open(store, namespace, now)
    staging = Staging() if found is None else _staging(found)
    if staging.moved:
        raise Conflict(f"transaction {transaction!r} is being committed", code="transaction_over")
    _check_size(store.limits, transaction, staging, part, target, size)
    return found


def _check_size(limits: Limits, transaction: str, staging: Staging, part: str, target: str, size: int) -> None:
    if staging.size + size > limits.transaction_bytes_max:
        raise TooLarge(
            f"transaction {transaction!r} would have {staging.size + size} bytes staged, replaced ones too;"
            f" {limits.transaction_bytes_max} are allowed",
            code="transaction_too_large",
        )
    if part not in staging.parts and len(staging.parts) >= limits.transaction_parts_max:
        raise TooLarge(
            f"transaction {transaction!r} has {len(staging.parts)} parts, as many as allowed", code="too_many_parts"
        )
    if target not in staging.targets and len(staging.targets) >= TRANSACTION_TOPICS_MAX:
        raise Refused(
            f"transaction {transaction!r} goes to {len(staging.targets)} topics, as many as allowed",
            code="too_many_topics",
        )


def over(line: ev.Concluded) -> Conflict:
    """What is answered to who would change a transaction that has ended."""
    return Conflict(f"transaction {line.transaction!r} was {line.state} already", code="transaction_over")


def _check_open(store: Store, namespace: str, now: int) -> None:
    limits, ledger = store.limits, store.state.ledgers.get(namespace)
    count = len(store.state.staged.get(namespace, ()))
    remembered = ledger.ledger.count(now) if ledger is not None and ledger.ledger is not None else 0
    if count >= limits.transactions_open_max or count + remembered >= limits.transactions_max:
        raise QueueFull(
            f"namespace {namespace!r} has {count} transactions open and remembers {remembered};"
            f" {limits.transactions_open_max} may be open, {limits.transactions_max} in all",
            code="transactions_full",
        )


def begin(store: Store, namespace: str, transaction: str, now: int) -> Topic:
    """A topic for what a transaction stages; that, and the ledger, cannot fail."""
    if namespace not in store.state.ledgers:
        store.add_topic(namespace, LEDGER, _SETTINGS, now)
    return store.add_topic(namespace, staging_name(transaction), _SETTINGS, now)


def stage(
    store: Store,
    topic: Topic,
    part: str,
    target: str,
    frames: list[Frame],
    priorities: tuple[int, ...],
    expires_at: int,
    now: int,
) -> None:
    """Put frames aside as a part of a transaction; what was called so before is not part of it any more."""
    staging = _staging(topic)
    start = topic.partitions[0].next
    store.append(topic, frames, now)
    size = staging.size + sum(frame.size for frame in frames)
    stop, expires_at = topic.partitions[0].next, max(staging.expires_at, expires_at)
    store.happen(ev.Staged(now, topic.id, part, target, start, stop, priorities, size, expires_at), now)


def abort(store: Store, topic: Topic, now: int) -> None:
    """Nothing of what was staged is published."""
    assert not _staging(topic).moved, "a commit that has begun is finished"
    _conclude(store, topic, ABORTED, now)


def forget(store: Store, line: ev.Concluded, namespace: str, now: int) -> None:
    """How a transaction ended is not remembered any more: one of that name begins anew."""
    store.happen(ev.Forgotten(now, store.state.ledgers[namespace].id, line.transaction), now)


def commit(store: Store, topic: Topic, parts: Collection[str] | None, now: int) -> bool:
    """Publish what was staged, or as much of it as one step may; whether that was all.

    `parts`: publish only these. Once a commit has begun it is what the first call said.
    """
    store.check_disk()
    staging = _staging(topic)
    if not staging.moved:
        staging = _chosen(topic, staging, parts)
        _check_commit(store, topic, staging)
    work = list(_next(store, topic, staging))
    store.ids.check(sum(frame.count for _, frame in work), now)
    for name in sorted({name for name, _ in work}):
        _publish(store, topic.namespace, name, [frame for target, frame in work if target == name], now)
    if len(staging.parts) < len(_staging(topic).parts):
        store.happen(ev.Chosen(now, topic.id, tuple(staging.parts)), now)
    upto = work[-1][1].stop if work else 0
    if any(part.stop > upto for part in staging.parts.values()):
        store.happen(ev.Moved(now, topic.id, upto), now)
        return False
    _conclude(store, topic, COMMITTED, now)
    return True


def look_after(store: Store, topics: Iterable[Topic], now: int) -> None:
    """End what was staged too long ago, and go on with commits whose caller is gone."""
    for topic in topics:
        if topic.staging is None or topic.dropped:
            continue
        if topic.staging.moved:
            with suppress(Error):  # is for whoever commits it again, not for whoever calls just now
                commit(store, topic, None, now)
        elif topic.staging.expires_at <= now:
            abort(store, topic, now)


def _chosen(topic: Topic, staging: Staging, parts: Collection[str] | None) -> Staging:
    """What is to be published: everything, or the parts that are named, all of which have to be there."""
    if parts is None:
        return staging
    missing = [part for part in parts if part not in staging.parts]
    if missing:
        raise Conflict(
            f"{len(missing)} of the {len(parts)} parts that are named were not staged in transaction"
            f" {transaction_of(topic.name)!r}, {missing[0]!r} the first of them; nothing is published",
            code="part_missing",
        )
    return staging.only(frozenset(parts))


def _check_commit(store: Store, topic: Topic, staging: Staging) -> None:
    """Raise if what was staged cannot be published. Once the first step is done nothing may stop the others."""
    missing = 0
    for name in staging.targets:
        target = store.find_topic(topic.namespace, name)
        parts = [part for part in staging.parts.values() if part.target == name]
        if target is None:
            missing += 1
            target = Topic(0, topic.namespace, name, store.settings_of(name), 0)
            check_settings(name, target.settings)
        store.check_room(target, sum(part.stop - part.start for part in parts))
        check_priorities(target, Rows([], priority=[level for part in parts for level in part.priorities]))
    store.check_topics(topic.namespace, missing)


def _next(store: Store, topic: Topic, staging: Staging) -> Iterator[tuple[str, Frame]]:
    """Staged frames that are not published yet, with the topics they are for, as many as make one step."""
    count = size = 0
    for part in staging.rest():
        start = max(part.start, staging.moved)
        for frame in store.log.frames(topic.id, 0, start, part.stop):
            if frame.base != start:
                break
            count, size, start = count + frame.count, size + frame.size, frame.stop
            if count > frame.count and (count > COMMIT_STEP_MESSAGES or size > COMMIT_STEP_BYTES):
                return
            yield part.target, frame
        if start != part.stop:
            name = transaction_of(topic.name)
            raise Corrupt(f"{part.stop - start} staged messages of transaction {name!r} are missing", code="data_lost")


def _publish(store: Store, namespace: str, name: str, staged: list[Frame], now: int) -> None:
    target = store.find_topic(namespace, name) or store.add_topic(namespace, name, store.settings_of(name), now)
    depth_max = target.settings.max_depth
    count = sum(frame.count for frame in staged)
    if depth_max is not None and target.settings.overflow != "refuse":
        store.heart.drop_oldest(target, max(0, depth_max - count), now)
    for frame in staged:
        numbers = Rows([], priority=frame.priority, deliver_at=frame.deliver_at, expires_at=frame.expires_at)
        placed = place_batch(target, frame.batch, numbers, store.next_partition(target), now)
        store.append(target, [piece for piece, _ in placed], now)
    store.written.append(target)


def _conclude(store: Store, topic: Topic, state: str, now: int) -> None:
    staging, ledger = _staging(topic), store.state.ledgers[topic.namespace]
    ending = (transaction_of(topic.name), state, len(staging.parts), staging.messages, staging.targets)
    store.happen(ev.Concluded(now, ledger.id, *ending), now)
    store.drop_topic(topic, now)


def _staging(topic: Topic) -> Staging:
    assert topic.staging is not None, "no topic of a transaction"
    return topic.staging
