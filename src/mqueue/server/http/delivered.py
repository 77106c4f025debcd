"""What is told of messages that were just handed out: to metrics how long the first had waited, to telemetry all."""

from __future__ import annotations

from collections.abc import Sequence

from mqueue.broker.remote import Handed, HandedTable
from mqueue.server.http.call import Call
from mqueue.server.http.service import Service


def begun(call: Call) -> int:
    """When somebody began to wait for messages, for `tell`."""
    telemetry = call.service.telemetry
    return 0 if telemetry is None else telemetry.now()


def tell(call: Call, group: str, found: list[Handed] | HandedTable, since: int) -> None:
    """They were handed out to a caller by HTTP."""
    service = call.service
    handed: Sequence[Handed | HandedTable] = found if isinstance(found, list) else [found]
    waited(service, handed)
    if service.telemetry is not None:
        service.telemetry.handed(call.namespace, group, handed, since, call.headers, call.consumer)


def waited(service: Service, handed: Sequence[Handed | HandedTable]) -> None:
    """Only first attempts tell how fast we are: a retry waits because it has to."""
    if service.page is not None:
        now = service.clock.now()
        for lease in handed:
            due, attempt = _first(lease)
            if attempt == 1:
                service.page.waits.add(max(0, now - due) / 1000)


def _first(lease: Handed | HandedTable) -> tuple[int, int]:
    """When the first message was due, and which attempt it is at."""
    if isinstance(lease, Handed):
        first = lease.messages[0]
        return round(first.deliver_at.timestamp() * 1000), first.attempt
    table = lease.table
    return table.column("deliver_at")[0].value, table.column("attempt")[0].as_py()
