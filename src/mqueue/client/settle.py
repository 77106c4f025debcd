"""The walk of a settle call of a client: messages by their lease, one request for each lease."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from mqueue.broker.deliver import check_visibility, error_text, lost_sentence
from mqueue.broker.message import AnyMessage
from mqueue.broker.settle import Settlement
from mqueue.client import outgoing
from mqueue.client.envelope import Held, Letter
from mqueue.client.incoming import receipts
from mqueue.client.line import Line
from mqueue.client.window import Window, path_of
from mqueue.model.errors import LeaseLost, Refused
from mqueue.model.message import Receipt
from mqueue.model.times import Duration, duration_ms
from mqueue.wire.errors import ids_of
from mqueue.wire.json import SettleIn, SettleOut

Batches = dict[int, tuple[Held | None, list[Letter]]]
"""Messages by their lease."""


def order(verb: str, wait: Duration | None, error: object, publish: Sequence[Any]) -> SettleIn:
    """What is to be done, without the messages it is done to."""
    wait_ms = None if wait is None else duration_ms(wait, "visibility" if verb == "extend" else "delay")
    told = SettleIn(error=error_text(error) or None)
    if verb == "extend":
        told.visibility = f"{check_visibility(wait_ms or 0)}ms"
    elif wait_ms is not None:
        told.delay = f"{wait_ms}ms"
    if publish:
        drafts = outgoing.with_topic(None, publish)
        outgoing.topic_of(None, drafts)
        told.publish = outgoing.messages(drafts, outgoing.rows(drafts), named=True)
    return told


async def settle_messages(line: Line, verb: str, messages: Sequence[AnyMessage], told: SettleIn) -> Settlement:
    """Settle messages. What is no longer held is named; if none of them is, that is an error."""
    ours = _ours(line, messages)
    batches = _by_lease(ours)
    if told.publish and len(batches) > 1:
        raise Refused(
            f"these messages are of {len(batches)} leases; what follows is published with one of them at a time",
            code="several_leases",
        )
    settled = 0
    lost: list[int] = []
    followed: tuple[Receipt, ...] = ()
    for lease, chosen in batches.values():
        outcome = await _settle(verb, lease, chosen, told)
        settled += outcome.settled
        lost += outcome.lost
        followed += outcome.receipts
        _note(verb, lease, chosen, set(outcome.lost))
    if not settled and lost:
        raise LeaseLost(lost_sentence(verb, lost), lost=tuple(lost))
    return Settlement(settled, tuple(lost), followed)


async def _settle(verb: str, lease: Held | None, chosen: list[Letter], told: SettleIn) -> Settlement:
    """The messages of one lease: all of it by its token alone, a part by ids."""
    ids = [message.id for message in chosen]
    distinct = list(dict.fromkeys(ids))
    if lease is not None and not lease.token and verb == "ack" and not told.publish:
        return Settlement(len(distinct))  # at most once: it was acked as it was handed out
    if lease is None or not lease.token:
        return Settlement(0, tuple(ids))
    window = chosen[0]._home.window
    whole = len(distinct) == lease.count and not lease.split and not told.publish
    try:
        done = await settle_lease(window, verb, lease.token, told, None if whole else distinct)
        if whole and done.settled < lease.count:  # it has to be said what was lost
            done = await settle_lease(window, verb, lease.token, told, distinct)
    except LeaseLost as error:
        return Settlement(0, tuple(ids if whole else error.lost or ids))
    return done


async def settle_lease(
    window: Window, verb: str, token: str, told: SettleIn, ids: Sequence[int] | None = None
) -> Settlement:
    """One request. It may be repeated: the server remembers what it answered."""
    body = SettleIn(
        ids=None if ids is None else list(map(str, ids)),
        delay=told.delay,
        error=told.error,
        visibility=told.visibility,
        publish=told.publish,
    )
    done = await window.ask(SettleOut, "POST", path_of("leases", token, verb), body, repeatable=True)
    return Settlement(done.settled, ids_of(done.lost), tuple(receipts(done.receipts, done.durability or "")))


def _note(verb: str, lease: Held | None, chosen: list[Letter], lost: set[int]) -> None:
    """Remember what was settled through us."""
    if lease is None or verb == "extend":
        return
    fresh = [message for message in chosen if not message._settled and message.id not in lost]
    lease.split = lease.split or len(chosen) < lease.count
    lease.open -= len(fresh)
    for message in fresh:
        message._settled = True


def _ours(line: Line, messages: Sequence[AnyMessage]) -> Sequence[Letter]:
    for kind in set(map(type, messages)):
        if not issubclass(kind, Letter):
            raise Refused(f"a {kind.__name__} is no message of this client; settle it where it is", code="other_broker")
    ours = cast(Sequence[Letter], messages)
    if any(message._home.window.line is not line for message in ours):
        raise Refused("these messages are of different clients; settle them apart", code="other_broker")
    return ours


def _by_lease(messages: Sequence[Letter]) -> Batches:
    batches: Batches = {}
    for message in messages:
        lease = message._lease
        known = batches.get(id(lease))
        if known is None:
            known = batches[id(lease)] = (lease, [])
        known[1].append(message)
    return batches
