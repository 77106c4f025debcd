"""The walk of a settle call: many messages, of one lease or several, and what follows from them, in one commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from msgspec import Struct

from mqueue.broker.deliver import TopicDesk, check_visibility, error_text, lost_ids, lost_sentence, spans_of
from mqueue.broker.message import Envelope
from mqueue.broker.publish import publish_drafts
from mqueue.heart.group import Lease
from mqueue.model.errors import LeaseLost, Refused
from mqueue.model.message import Receipt
from mqueue.model.times import Duration, duration_ms


class Settlement(Struct, frozen=True):
    """What a settle call did. `lost`: ids that were no longer held; `receipts`: of what was published with it."""

    settled: int
    lost: tuple[int, ...] = ()
    receipts: tuple[Receipt, ...] = ()


def settle_many(
    verb: str,
    messages: Sequence[Envelope],
    *,
    wait: Duration | None = None,
    error: object = None,
    publish: Sequence[Any] = (),
) -> Settlement:
    """Settle messages. What is no longer held is named; if none of them is, that is an error."""
    if not messages:
        return Settlement(0)
    batches: dict[int, tuple[TopicDesk, Lease, list[Envelope]]] = {}
    for message in messages:
        batch = batches.get(id(message._lease))
        if batch is None:
            batch = batches[id(message._lease)] = (cast(TopicDesk, message._desk), message._lease, [])
        batch[2].append(message)
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
            if any(lease.open for _, lease, _ in batches.values()):  # else the call is a repetition: it has published
                namespace = messages[0].namespace
                receipts = tuple(publish_drafts(engine, namespace, None, list(publish), now))
        for desk, lease, chosen in batches.values():
            outcome = desk.settle_now(lease, verb, _spans(lease, chosen), wait_ms, reason, now)
            settled += outcome.settled
            if outcome.lost:
                lost += lost_ids(outcome, chosen)
    if not settled and lost:
        raise LeaseLost(lost_sentence(verb, lost), lost=tuple(lost))
    gone = set(lost)
    if verb != "extend":
        for message in messages:
            if not gone or message.id not in gone:
                message._settled = True
    return Settlement(settled, tuple(lost), receipts)


def _spans(lease: Lease, chosen: list[Envelope]) -> Any:
    """What to settle of a lease; None: all of it, if just that was handed in."""
    if len(chosen) == lease.open == lease.count:  # nothing of it was settled before, so as many are the same
        offsets = {(message._frame.partition, message._frame.base + message._row) for message in chosen}
        if len(offsets) == lease.open:
            return None
    return spans_of(chosen)


def _check_held(verb: str, batches: dict[int, tuple[TopicDesk, Lease, list[Envelope]]], now: int) -> None:
    """Nothing is published on behalf of a message that somebody else may have by now."""
    lost: list[int] = []
    for desk, lease, chosen in batches.values():
        missing = desk.engine.store.heart.not_held(lease.token, verb, spans_of(chosen), now)
        lost += [message.id for message in chosen if (message.partition, message.offset) in missing]
    if lost:
        raise LeaseLost(lost_sentence(verb, lost), lost=tuple(lost))
