"""DeleteMessage and ChangeMessageVisibility: receipts are settled under the leases they came from.

    delete                      ack
    visibility of n seconds     extend
    visibility of 0             nack without a delay: it is ready at once, and the receive counts

A receipt whose lease is over settles nothing, and its bearer is told: the message comes to somebody else, or has. What
was deleted before is deleted again without a word; and what nobody has received since, unless the queue is FIFO.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from mqueue.broker import remote
from mqueue.broker.overview import topic_of
from mqueue.broker.shown import topic_of_lease
from mqueue.model.errors import LeaseLost, NotFound
from mqueue.server.http.call import Call
from mqueue.server.http.sqs.errors import Fault
from mqueue.server.http.sqs.naming import read_handle
from mqueue.server.http.sqs.opening import Queue, check_entries, failed, open_queue
from mqueue.wire import json_sqs as wire

_VISIBILITY_SECONDS_MAX = 43_200

Receipt = tuple[str, int]
"""A token and the id of a message."""
Order = tuple[str, int | None]
"""What is to become of a message: a verb, and for how long."""


async def delete(call: Call, asked: wire.ReceiptIn) -> None:
    queue = open_queue(call, asked.queue_url, "settle")
    receipt = read_handle(asked.receipt_handle)
    await _one(call, queue, receipt, ("ack", None))


async def delete_batch(call: Call, asked: wire.ReceiptsIn) -> wire.BatchOut:
    queue = open_queue(call, asked.queue_url, "settle")
    check_entries(asked.entries)
    return await _batch(call, queue, [(entry, ("ack", None)) for entry in asked.entries])


async def change(call: Call, asked: wire.VisibilityIn) -> None:
    queue = open_queue(call, asked.queue_url, "settle")
    receipt = read_handle(asked.receipt_handle)
    await _one(call, queue, receipt, _order(asked.visibility_timeout))


async def change_batch(call: Call, asked: wire.VisibilitiesIn) -> wire.BatchOut:
    queue = open_queue(call, asked.queue_url, "settle")
    check_entries(asked.entries)
    out: list[wire.FailedOut] = []
    orders: list[tuple[wire.ReceiptEntryIn, Order]] = []
    for entry in asked.entries:
        try:
            orders.append((entry, _order(entry.visibility_timeout)))
        except Fault as fault:
            out.append(failed(entry.id, fault))
    done = await _batch(call, queue, orders)
    done.failed += out
    return done


def _order(seconds: int | None) -> Order:
    if seconds is None:
        raise Fault("MissingParameter", "VisibilityTimeout is missing")
    if not 0 <= seconds <= _VISIBILITY_SECONDS_MAX:
        why = f"VisibilityTimeout {seconds}; it takes 0 to {_VISIBILITY_SECONDS_MAX}"
        raise Fault("InvalidParameterValue", why)
    return ("extend", seconds) if seconds else ("nack", 0)


async def _one(call: Call, queue: Queue, receipt: Receipt, order: Order) -> None:
    lost = await _settle(call, queue, receipt[0], [receipt[1]], order)
    if lost:
        raise _lost(order)


async def _batch(call: Call, queue: Queue, orders: Sequence[tuple[wire.ReceiptEntryIn, Order]]) -> wire.BatchOut:
    """What came under one lease and is to become the same goes together; all of it shares a commit."""
    out = wire.BatchOut([], [])
    together: dict[tuple[str, Order], list[tuple[str, int]]] = {}
    for entry, order in orders:
        try:
            token, id = read_handle(entry.receipt_handle)
        except Fault as fault:
            out.failed.append(failed(entry.id, fault))
        else:
            together.setdefault((token, order), []).append((entry.id, id))
    settled = await asyncio.gather(
        *(_settle(call, queue, token, [id for _, id in named], order) for (token, order), named in together.items())
    )
    for ((_, order), named), lost in zip(together.items(), settled, strict=True):
        for entry_id, id in named:
            if id in lost:
                out.failed.append(failed(entry_id, _lost(order)))
            else:
                out.successful.append(wire.EntryOut(entry_id))
    return out


async def _settle(call: Call, queue: Queue, token: str, ids: list[int], order: Order) -> set[int]:
    """Which of these the lease does not hold."""
    verb, seconds = order
    topic = topic_of_lease(call.behind, token)
    if topic not in (None, queue.place.name):
        return set(ids)
    try:
        lost: Iterable[int] = (await remote.settle(call.behind, verb, token, ids, wait=seconds)).lost
    except LeaseLost:
        lost = ids
    finally:
        call.service.streams.settled(token)
    if verb != "ack" or not lost:
        return set(lost)
    if not queue.place.is_fifo:
        lost = set(lost) - await remote.ack_late(call.behind, token, list(lost))
    return {id for id in lost if not await _is_deleted(call, queue, id)}


async def _is_deleted(call: Call, queue: Queue, id: int) -> bool:
    try:
        if await topic_of(call.behind, id) != queue.place.name:
            return False
        return (await call.broker.explain(id)).code in ("settled", "dead", "cancelled", "expired")
    except NotFound:
        return False


def _lost(order: Order) -> Fault:
    if order[0] == "ack":
        return Fault("ReceiptHandleIsInvalid", "the receipt handle holds no message of this queue, or not any more")
    return Fault("MessageNotInflight", "the message is not in flight under this receipt handle")
