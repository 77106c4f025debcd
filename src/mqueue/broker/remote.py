"""Receive and settle for consumers that are elsewhere: what they hold is named by the token of its lease, and by ids.

Stands between a server and an engine, inside an event loop. It does not know how messages travel, nor who may ask for
them: a token of another namespace is to it as one that never was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

import pyarrow as pa
from msgspec import Struct

from mqueue.broker import deliver
from mqueue.broker.commits import committed, settled
from mqueue.broker.grip import Grip, grip_of
from mqueue.broker.loop import LoopBroker
from mqueue.broker.message import AsyncMessage
from mqueue.broker.portion import fit
from mqueue.broker.settle import Settlement, digest_of, follow
from mqueue.broker.tables import ArrowLease
from mqueue.broker.waiting import look_in_loop, never, wait_in_loop
from mqueue.heart.crew import Seat
from mqueue.heart.group import Lease
from mqueue.model.clock import Clock
from mqueue.model.errors import LeaseLost, Refused, TooLarge
from mqueue.model.limits import ANSWER_BYTES_MAX, RECEIVE_LIMIT_MAX, RECEIVE_TOPICS_MAX
from mqueue.model.message import Draft, Receipt
from mqueue.model.names import check_consumer, check_name
from mqueue.model.times import Duration, duration_ms

C = TypeVar("C")


class Wanted(Struct, frozen=True):
    """What a consumer asks for."""

    topics: tuple[str, ...]
    limit: int = 1
    group: str = "default"
    wait: Duration | None = None
    visibility: Duration | None = None
    mode: str = "at_least_once"
    consumer: str = ""
    seat: Seat | None = None
    """Of a member of an assigned group."""


class Handed(Struct):
    """Messages of one topic under one lease. At most once: no token, and nothing to settle."""

    topic: str
    token: str
    deadline: int
    remaining_ms: int
    messages: list[AsyncMessage]


class HandedTable(Struct):
    """The same as a table."""

    topic: str
    token: str
    deadline: int
    remaining_ms: int
    table: pa.Table


class _Taken(Struct):
    """What was leased of one topic, on its way out."""

    _desk: deliver.TopicDesk
    _lease: Lease
    content: object
    spare: int
    """How many bytes of the answer are left."""


async def receive(broker: LoopBroker, wanted: Wanted) -> list[Handed]:
    """What there is, or comes within `wait`: for each topic that has something a lease of its own."""
    clock = broker._engine.clock
    taken = await _take(broker, wanted, lambda desk, lease: desk.messages(lease, broker._message_type))
    return _handed(clock, wanted, taken, Handed)


async def receive_table(broker: LoopBroker, wanted: Wanted) -> HandedTable | None:
    """The same of one topic, as a table."""
    if len(wanted.topics) != 1:
        raise Refused(f"{len(wanted.topics)} topics; a table is of one", code="bad_limit")
    clock = broker._engine.clock
    taken = await _take(broker, wanted, ArrowLease.of)
    for one in taken:
        assert isinstance(one.content, ArrowLease)
        one.content = one.content.table  # made now: it takes no lock
    found = _handed(clock, wanted, taken, HandedTable)
    return found[0] if found else None


async def settle(
    broker: LoopBroker,
    verb: str,
    token: str,
    ids: Sequence[int] | None = None,
    *,
    wait: Duration | None = None,
    error: object = None,
    publish: Sequence[Draft] = (),
) -> Settlement:
    """Settle some messages of a lease, or all that it holds, and publish what follows from them; durable on return.

    `wait`: the delay of a nack, the new visibility of an extend.
    """
    try:
        done = _settle(broker, verb, token, ids, wait, error, publish)
    except BaseException:
        await settled()
        raise
    await committed()
    return done


async def ack_late(broker: LoopBroker, token: str, ids: Sequence[int]) -> set[int]:
    """Ack messages whose lease is over, as far as nobody has had them since: each is leased anew, and acked, in one
    commit. For protocols that let that pass; which of them it did."""
    done: set[int] = set()
    engine = broker._engine
    try:
        with engine.lock:
            now = engine.tick()
            grip = grip_of(engine, broker._namespace, token)
            named = {} if grip is None else grip.name(sorted(set(ids)), "ack", now).ids
            for (partition, offset), id in named.items():
                assert grip is not None, "it named them"
                store, deadline = engine.store, now + grip.desk.topic.settings.visibility_ms
                again = store.tokens.take()
                if store.heart.lease_again(grip.token, partition, offset, deadline, again, now):
                    grip.desk.settle_now(again, "ack", None, None, "", now)
                    done.add(id)
    except BaseException:
        await settled()
        raise
    await committed()
    return done


async def give_back(broker: LoopBroker, tokens: Iterable[str]) -> None:
    """What was leased for somebody who is not there any more goes to others, and no attempt is counted."""
    for token in tokens:
        with suppress(LeaseLost):
            await settle(broker, "release", token)


async def _take(
    broker: LoopBroker, wanted: Wanted, content: Callable[[deliver.TopicDesk, Lease], object]
) -> list[_Taken]:
    """Lease what is wanted, durably, waiting for it if need be. Who is cancelled meanwhile gives it back."""
    visibility_ms = check(wanted)
    names = wanted.topics
    engine = broker._engine

    def lease(name: str, room: int, spare: int, now: int) -> _Taken | None:
        desk = broker._desk(name, now)
        consumer = wanted.consumer or broker._name
        store, mode = engine.store, "at_least_once"
        taken = store.lease(desk.topic, wanted.group, room, visibility_ms, mode, consumer, now, wanted.seat)
        if taken is None:
            engine.wake_written()
            return None
        spare = fit(desk, taken, now, spare, len(names) == 1)
        if wanted.mode == "at_most_once":
            engine.store.finish(taken, now)
        engine.wake_written()
        return _Taken(desk, taken, content(desk, taken), spare)

    def look(now: int) -> list[_Taken]:
        found: list[_Taken] = []
        room, spare = wanted.limit, ANSWER_BYTES_MAX
        broker._turn += 1  # each topic gets its turn to be first
        try:
            for step in range(len(names)):
                one = lease(names[(broker._turn + step) % len(names)], room, spare, now)
                if one is not None and one.content:  # what is damaged is in no answer
                    found.append(one)
                    room, spare = room - one._lease.count, one.spare
                    if room <= 0 or spare <= 0:
                        break
        except BaseException:
            deliver.let_go(found)
            raise
        return found

    topics, wait_ms = broker._topics_of(names), deliver.wait_ms(wanted.wait)
    if not wait_ms:
        return await look_in_loop(engine, topics, look)
    return await wait_in_loop(engine, topics, look, wait_ms, never)


def check(wanted: Wanted) -> int | None:
    """Raise unless it makes sense; for how long messages are wanted."""
    deliver.check_receive(wanted.limit, wanted.mode)
    check_name(wanted.group, "group")
    check_consumer(wanted.consumer)
    if len(wanted.topics) > RECEIVE_TOPICS_MAX:
        raise TooLarge(f"{len(wanted.topics)} topics; at most {RECEIVE_TOPICS_MAX} are allowed", code="too_many")
    return None if wanted.visibility is None else deliver.visibility_ms(wanted.visibility)


def _handed(clock: Clock, wanted: Wanted, taken: list[_Taken], kind: Callable[..., C]) -> list[C]:
    """What was taken, with the time that is left for it.

    If there is none left, or the lease ended while it was written, it is not handed out. `clock`: that of the engine
    when it was asked; an engine that was handed over while the lease was written has none, and the lease is good.
    """
    if not taken:
        return []
    now = clock.now()
    found: list[C] = []
    for one in taken:
        lease = one._lease
        if wanted.mode == "at_most_once":  # it was settled as it was leased
            found.append(kind(one._desk.name, "", 0, 0, one.content))
        elif lease.open and lease.until > now:
            found.append(kind(one._desk.name, lease.token.hex(), lease.until, lease.until - now, one.content))
    return found


def _settle(
    broker: LoopBroker,
    verb: str,
    token: str,
    ids: Sequence[int] | None,
    wait: Duration | None,
    error: object,
    publish: Sequence[Draft],
) -> Settlement:
    wait_ms = None if wait is None else duration_ms(wait, "visibility" if verb == "extend" else "delay")
    if verb == "extend":
        deliver.check_visibility(wait_ms or 0)
    _check_named(verb, ids, publish)
    if ids is not None and not ids:
        return Settlement(0)
    reason = deliver.error_text(error)
    engine = broker._engine
    with engine.lock:
        now = engine.tick()
        deliver.check_delay(wait_ms, now)
        grip = grip_of(engine, broker._namespace, token)
        if grip is None:
            raise _lost(verb, sorted(set(ids or ())))
        if ids is None:
            return _settle_all(grip, verb, wait_ms, reason, publish, now)
        return _settle_some(grip, verb, ids, wait_ms, reason, publish, now)


def _check_named(verb: str, ids: Sequence[int] | None, publish: Sequence[Draft]) -> None:
    if ids is not None and len(ids) > RECEIVE_LIMIT_MAX:
        raise TooLarge(f"{len(ids)} ids; at most {RECEIVE_LIMIT_MAX} are allowed", code="too_many")
    if publish and ids is not None and not ids:
        raise Refused("something is to be published, but none of the messages it follows from is named", code="empty")
    if publish and verb == "extend":
        raise Refused("nothing follows from an extend; publish with what ends the work", code="bad_publish")


def _settle_all(
    grip: Grip, verb: str, wait_ms: int | None, error: str, publish: Sequence[Draft], now: int
) -> Settlement:
    """All that a lease holds. If that is nothing the same call has to have settled it before."""
    before = 0 if grip.lease else grip.last_settled(verb, now)
    if grip.lease is None and not before:
        raise _lost(verb, ())
    receipts = _follow(grip, verb, (), publish, grip.lease is not None, now)
    if grip.lease is None:
        grip.desk.engine.confirm()
        return Settlement(before, (), receipts)
    outcome = grip.desk.settle_now(grip.token, verb, None, wait_ms, error, now)
    return Settlement(outcome.settled, (), receipts)


def _settle_some(
    grip: Grip, verb: str, ids: Sequence[int], wait_ms: int | None, error: str, publish: Sequence[Draft], now: int
) -> Settlement:
    """The messages with these ids, as far as the lease holds them."""
    named = grip.name(sorted(set(ids)), verb, now)
    receipts: tuple[Receipt, ...] = ()
    if publish:
        lost = named.lost(grip.desk.engine.store.heart.not_held(grip.token, verb, named.spans, now))
        if lost:
            raise _lost(verb, lost)
        receipts = _follow(grip, verb, ids, publish, grip.holds(named.spans), now)
    outcome = grip.desk.settle_now(grip.token, verb, named.spans, wait_ms, error, now)
    lost = named.lost(outcome.lost)
    if not outcome.settled and not named.gone:
        raise _lost(verb, lost)
    if named.gone:
        grip.desk.engine.confirm()
    return Settlement(outcome.settled + named.gone, lost, receipts)


def _follow(
    grip: Grip, verb: str, ids: Sequence[int], publish: Sequence[Draft], held: bool, now: int
) -> tuple[Receipt, ...]:
    if not publish:
        return ()
    receipts = follow(grip.desk, digest_of(verb, grip.token, sorted(set(ids))), publish, held, now)
    if receipts is None:
        raise _lost(verb, ids)
    return receipts


def _lost(verb: str, ids: Sequence[int]) -> LeaseLost:
    if not ids:
        return LeaseLost(f"cannot {verb}: this lease holds nothing any more")
    return LeaseLost(deliver.lost_sentence(verb, ids), lost=tuple(ids))
