"""SendMessage, one or ten at a time, published in one commit.

An entry of a batch that is wrong is told so and stored nowhere; the others are. Speaks to the one broker that has the
queue.
"""

from __future__ import annotations

from mqueue.model.errors import Conflict, Refused
from mqueue.model.message import Draft
from mqueue.server.http.call import Call
from mqueue.server.http.sqs.attributes import SIZE_MAX
from mqueue.server.http.sqs.composing import Ready, check_fifo, ready
from mqueue.server.http.sqs.errors import Fault
from mqueue.server.http.sqs.naming import sequence_number
from mqueue.server.http.sqs.opening import Queue, check_entries, failed, open_queue
from mqueue.wire import json_sqs as wire


async def send(call: Call, asked: wire.SendIn) -> wire.SentOut:
    queue = open_queue(call, asked.queue_url, "publish")
    one = ready(queue, asked)
    await _take_turns(call, queue, [one])
    id = await _publish_one(call, queue, one.item)
    told = (one.md5_of_body, one.md5_of_attributes, one.md5_of_system_attributes)
    return wire.SentOut(str(id), *told, _sequence(queue, id))


async def send_batch(call: Call, asked: wire.SendBatchIn) -> wire.BatchOut:
    queue = open_queue(call, asked.queue_url, "publish")
    check_entries(asked.entries)
    if queue.place.is_fifo:
        check_fifo(queue, asked.entries)
    out = wire.BatchOut([], [])
    taken: list[tuple[str, Ready]] = []
    for entry in asked.entries:
        try:
            taken.append((entry.id, ready(queue, entry)))
        except Fault as fault:
            out.failed.append(failed(entry.id, fault))
    size = sum(one.size for _, one in taken)
    if size > SIZE_MAX:
        raise Fault("BatchRequestTooLong", f"a batch of {size} bytes; {SIZE_MAX} are allowed")
    if taken:
        everything = [one for _, one in taken]
        await _take_turns(call, queue, everything)
        found = await _publish(call, queue, [one.item for one in everything])
        for (entry_id, one), id in zip(taken, found, strict=True):
            if isinstance(id, Refused):
                out.failed.append(failed(entry_id, id))
                continue
            told = (one.md5_of_body, one.md5_of_attributes, one.md5_of_system_attributes)
            out.successful.append(wire.SentEntryOut(str(id), *told, _sequence(queue, id), id=entry_id))
    return out


# Publish


async def _publish_one(call: Call, queue: Queue, item: bytes | Draft) -> int:
    """The id of a message; of one that was sent before, the id it has."""
    try:
        if isinstance(item, bytes):
            return (await call.broker.publish(queue.place.name, item)).id
        return (await call.broker.publish_many(queue.place.name, [item]))[0].id
    except Conflict as used:  # SQS goes by the deduplication id alone, whatever is in the message
        if used.first is None:
            raise
        return used.first


async def _publish(call: Call, queue: Queue, items: list[bytes | Draft]) -> list[int | Refused]:
    """All in one commit; one after the other where deduplication ids stand for other messages, or a limit of ours that
    SQS does not have is in the way of one."""
    try:
        return [receipt.id for receipt in await call.broker.publish_many(queue.place.name, items)]
    except (Conflict, Refused):
        return [await _publish_or_not(call, queue, item) for item in items]


async def _publish_or_not(call: Call, queue: Queue, item: bytes | Draft) -> int | Refused:
    try:
        return await _publish_one(call, queue, item)
    except Refused as refusal:
        return refusal


async def _take_turns(call: Call, queue: Queue, all_of: list[Ready]) -> None:
    """Who sends message groups to a queue that is not FIFO wants them to take turns."""
    if queue.settings.fairness is None and any(type(one.item) is Draft and one.item.fairness_key for one in all_of):
        await call.broker.configure(queue.place.name, fairness=True)


def _sequence(queue: Queue, id: int) -> str | None:
    """Ids rise, so they do."""
    return sequence_number(id) if queue.place.is_fifo else None
