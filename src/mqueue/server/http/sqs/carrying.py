"""Dead letters for a queue on another server of a cluster.

Who dies is buried with the commit of his death, so his grave is on the same server. Where a RedrivePolicy names a queue
on another one, the dead go to `<queue>.dlq` beside their queue, and both queues note that (`FAR`). Whoever asks for
what is in the dead-letter queue has it carried there: published with an idempotency key made from the id, then acked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from mqueue.broker.aio import AsyncBroker
from mqueue.model.errors import Error, NotFound
from mqueue.model.message import Draft
from mqueue.model.names import dlq_name
from mqueue.server.http.service import Service
from mqueue.server.http.sqs.naming import Place

LOGGER = logging.getLogger("mqueue.server")
SOURCE = "sqs.source."
"""Labels of a dead-letter queue: whose dead it was to take, and whether from `FAR`. What holds, the source knows."""
FAR = "far"
_STEP = 100
_PAUSE_SECONDS = 1.0
"""Who asks again and again has somebody look for the dead no more often than this."""
_PLACES_MAX = 10_000


def far_sources(labels: Mapping[str, str]) -> list[str]:
    """The queues whose dead are to be carried here."""
    return [name[len(SOURCE) :] for name, text in labels.items() if name.startswith(SOURCE) and text == FAR]


def begin(service: Service, place: Place, sources: list[str]) -> None:
    """Have the dead carried while the caller gets his answer, or waits for one."""
    if sources:
        service.errand(lambda node: _carry_now_and_then(node, place, sources))


async def _carry_now_and_then(node: Service, place: Place, sources: list[str]) -> None:
    now = asyncio.get_running_loop().time()
    if now - node.carried.get(place, -_PAUSE_SECONDS) < _PAUSE_SECONDS:
        return
    if len(node.carried) >= _PLACES_MAX:
        node.carried.clear()
    node.carried[place] = now
    try:
        await carry(node.calls(place.namespace), place, sources)
    except Error as error:
        LOGGER.warning("dead letters for %s were not carried there, they wait: %s", place.name, error)


async def carry(calls: AsyncBroker, place: Place, sources: list[str]) -> None:
    """All that lies in the graves of these queues now."""
    for source in sources:
        grave = dlq_name(source)
        try:
            await calls.settings(grave)
        except NotFound:  # nobody has died there
            continue
        while messages := await calls.receive(grave, _STEP):
            drafts = [
                Draft(
                    message.payload,
                    key=message.key,
                    headers=message.headers,
                    priority=message.priority,
                    idempotency_key=f"sqs-carried {message.id}",
                )
                for message in messages
            ]
            await calls.publish_many(place.name, drafts)
            await calls.ack(messages)
