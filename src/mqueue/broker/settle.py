"""The walk of a settle call: many messages, of one lease or several, and what follows from them, in one commit."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, TypeAlias, cast

from msgspec import Struct

from mqueue.broker.deliver import TopicDesk, check_visibility, error_text, lost_ids, lost_sentence, spans_of
from mqueue.broker.envelope import Envelope
from mqueue.broker.message import AnyMessage
from mqueue.broker.publish import publish_drafts
from mqueue.heart.group import Lease
from mqueue.model import events as ev
from mqueue.model.errors import LeaseLost, Refused
from mqueue.model.message import Receipt
from mqueue.model.times import Duration, duration_ms

Batches: TypeAlias = dict[int, tuple[TopicDesk, Lease, list[Envelope]]]
"""Messages by their lease."""


class Settlement(Struct, frozen=True):
    """What a settle call did. `lost`: ids that were no longer held; `receipts`: of what was published with it."""

    settled: int
    lost: tuple[int, ...] = ()
    receipts: tuple[Receipt, ...] = ()


def settle_many(
    verb: str,
    messages: Sequence[AnyMessage],
    *,
    wait: Duration | None = None,
    error: object = None,
    publish: Sequence[Any] = (),
) -> Settlement:
    """Settle messages. What is no longer held is named; if none of them is, that is an error."""
    if not messages:
        return Settlement(0)
    ours = _ours(messages)
    batches = _by_lease(ours)
    engine = next(iter(batches.values()))[0].engine
    if any(desk.engine is not engine for desk, _, _ in batches.values()):
        raise Refused("these messages are of different brokers; settle them apart", code="other_broker")
    wait_ms = None if wait is None else duration_ms(wait, "visibility" if verb == "extend" else "delay")
    if verb == "extend":
        check_visibility(wait_ms or 0)
    reason = error_text(error)
    settled = 0
    lost: list[int] = []
    receipts: tuple[Receipt, ...] = ()
    with engine.lock:
        now = engine.tick()
        if publish:
            _check_held(verb, batches, now)
            receipts = _follow(verb, batches, publish, now)
        for desk, lease, chosen in batches.values():
            outcome = desk.settle_now(lease.token, verb, _spans(lease, chosen), wait_ms, reason, now)
            settled += outcome.settled
            if outcome.lost:
                lost += lost_ids(outcome, chosen)
    if not settled and lost:
        raise LeaseLost(lost_sentence(verb, lost), lost=tuple(lost))
    if verb != "extend":
        gone = set(lost)
        for message in ours if not gone else [message for message in ours if message.id not in gone]:
            message._settled = True
    return Settlement(settled, tuple(lost), receipts)


def _ours(messages: Sequence[AnyMessage]) -> Sequence[Envelope]:
    """The messages, all of them handed out by an embedded broker."""
    for kind in set(map(type, messages)):
        if not issubclass(kind, Envelope):
            raise Refused(f"a {kind.__name__} is no message of this broker; settle it where it is", code="other_broker")
    return cast(Sequence[Envelope], messages)


def _by_lease(messages: Sequence[Envelope]) -> Batches:
    """The messages of each lease; mostly there is only one."""
    first = messages[0]
    if len({id(message._lease) for message in messages}) == 1:
        return {id(first._lease): (cast(TopicDesk, first._desk), first._lease, list(messages))}
    batches: Batches = {}
    for message in messages:
        batch = batches.get(id(message._lease))
        if batch is None:
            batch = batches[id(message._lease)] = (cast(TopicDesk, message._desk), message._lease, [])
        batch[2].append(message)
    return batches


def _spans(lease: Lease, chosen: list[Envelope]) -> Any:
    """What to settle of a lease; None: all of it, if just that was handed in."""
    if len(chosen) == lease.open == lease.count and _distinct(chosen):  # nothing of it was settled before
        return None
    return spans_of(chosen)


def _distinct(chosen: list[Envelope]) -> bool:
    """Whether no message stands twice in a list."""
    count = len(chosen)
    if len({id(message._frame) for message in chosen}) == 1:
        return len({message._row for message in chosen}) == count
    return len({(message._frame.partition, message._frame.base + message._row) for message in chosen}) == count


def _check_held(verb: str, batches: Batches, now: int) -> None:
    """Nothing is published on behalf of a message that somebody else may have by now."""
    lost: list[int] = []
    for desk, lease, chosen in batches.values():
        missing = desk.engine.store.heart.not_held(lease.token, verb, spans_of(chosen), now)
        lost += [message.id for message in chosen if (message.partition, message.offset) in missing]
    if lost:
        raise LeaseLost(lost_sentence(verb, lost), lost=tuple(lost))


def _follow(verb: str, batches: Batches, drafts: Sequence[Any], now: int) -> tuple[Receipt, ...]:
    """Publish what follows from messages that are held. If none is, the call has to be a repetition of one that did."""
    call = digest_of(verb, [(lease.token, spans_of(chosen)) for _, lease, chosen in batches.values()])
    held = any(lease.open and _holds(lease, chosen) for _, lease, chosen in batches.values())
    receipts = follow(next(iter(batches.values()))[0], call, drafts, held, now)
    if receipts is None:
        lost = [message.id for _, _, chosen in batches.values() for message in chosen]
        raise LeaseLost(lost_sentence(verb, lost), lost=tuple(lost))
    return receipts


def _holds(lease: Lease, chosen: list[Envelope]) -> bool:
    return any(lease.find(partition, start, mask) for partition, start, _, mask in spans_of(chosen))


def digest_of(*call: object) -> bytes:
    """What a settle call that publishes is known by, should it be repeated."""
    return blake2b(repr(call).encode(), digest_size=16).digest()


def follow(desk: TopicDesk, call: bytes, drafts: Sequence[Any], held: bool, now: int) -> tuple[Receipt, ...] | None:
    """Publish what follows from messages of a topic, or tell what the same call published before.

    None: it did not, and nothing is held on whose behalf it could.
    """
    engine = desk.engine
    store = engine.store
    known = store.state.follows.find(call, now)
    if known is not None:
        engine.confirm()
        return tuple(store.receipt(placed) for placed in known.receipts)
    if not held:
        return None
    receipts = tuple(publish_drafts(engine, desk.namespace, None, list(drafts), now))
    placed = tuple((one.id, one.topic, one.partition, one.offset, one.duplicate) for one in receipts)
    store.heart.happen(ev.Followed(now, desk.topic.id, call, placed))
    return receipts
