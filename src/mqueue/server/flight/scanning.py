"""GetFlightInfo and DoGet: the log as record batches, a stretch of a partition for each endpoint.

Frames go out as they lie in the log; nothing is looked at message by message. The next page is read while one is on
its way. A reader that is slow holds three pages and nothing else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress

import msgspec
import pyarrow as pa
from msgspec import Struct
from pyarrow import flight

from mqueue.broker.aio import AsyncBroker
from mqueue.broker.bounds import PartitionOffsets
from mqueue.broker.frames import PAGE_BYTES
from mqueue.broker.replay import check_window
from mqueue.broker.tables import SCHEMA, batch_of
from mqueue.model.errors import NotFound, Refused, Stopping
from mqueue.server.flight.asked import Scan, Ticket
from mqueue.server.flight.bridge import Bridge
from mqueue.server.flight.door import Caller
from mqueue.wire.frame import Frame

RANGE_MESSAGES = 1 << 20
"""So many offsets are one endpoint, so that several can read one partition at once."""
ENDPOINTS_MAX = 1024
"""Beyond that stretches are longer."""
_FRAMES_MAX = 64
_ENCODER = msgspec.json.Encoder()


def schema_of(columns: Sequence[str] | None) -> pa.Schema:
    """All columns, or those that are named, in that order."""
    if columns is None:
        return SCHEMA
    for name in columns:
        if name not in SCHEMA.names:
            known = ", ".join(SCHEMA.names)
            raise Refused(f"column {name!r:.80}; there are {known}", code="bad_column")
    if not columns or len(set(columns)) != len(columns):
        raise Refused("no column is named, or one of them twice", code="bad_column")
    return pa.schema([SCHEMA.field(name) for name in columns])


class Stretch(Struct, frozen=True):
    partition: int
    start: int
    stop: int
    whole: bool
    """Whether there is a message at every offset."""


async def flight_info(broker: AsyncBroker, asked: Scan, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
    """What there is to read now, in stretches. What comes later is not in it."""
    schema = schema_of(asked.columns)
    stretches = await _stretches(broker, asked)
    count = sum(each.stop - each.start for each in stretches)
    step = max(RANGE_MESSAGES, -(-count // ENDPOINTS_MAX))
    endpoints = [
        flight.FlightEndpoint(_ticket(asked, each.partition, first, min(first + step, each.stop)), [])
        for each in stretches
        for first in range(each.start, each.stop, step)
    ]
    return flight.FlightInfo(schema, descriptor, endpoints, count if all(each.whole for each in stretches) else -1, -1)


async def _stretches(broker: AsyncBroker, asked: Scan) -> list[Stretch]:
    """Of each partition, as far as there is something to read."""
    check_window(asked.start, asked.stop)
    begin = await broker.offsets(asked.topic, _time(asked.start))
    until = _time(asked.stop)
    end = begin if until is None else await broker.offsets(asked.topic, until)
    if asked.partition is not None and not 0 <= asked.partition < len(begin):
        raise NotFound(f"partition {asked.partition} of {asked.topic!r}; there are {len(begin)}, from 0 on")
    found = []
    for one, other in zip(begin, end, strict=False):
        start = max(_bound(asked.start, one, one.first), one.first)
        stop = min(_bound(asked.stop, other, one.next), one.next)
        if asked.partition in (None, one.partition) and start < stop:
            found.append(Stretch(one.partition, start, stop, start >= one.floor))
    return found


def _time(asked: int | str | None) -> str | None:
    return asked if isinstance(asked, str) and asked not in ("earliest", "latest") else None


def _bound(asked: int | str | None, known: PartitionOffsets, default: int) -> int:
    if asked in ("earliest", "latest"):
        return known.first if asked == "earliest" else known.next
    if isinstance(asked, str):
        return default if known.at is None else known.at
    if asked is not None and asked < 0:
        raise Refused(f"offset {asked}; offsets begin at 0", code="bad_position")
    return default if asked is None else asked


def _ticket(asked: Scan, partition: int, start: int, stop: int) -> bytes:
    told = Ticket(
        topic=asked.topic,
        namespace=asked.namespace,
        partition=partition,
        start=start,
        stop=stop,
        columns=asked.columns,
    )
    return _ENCODER.encode(told)


class Scanning:
    """The batches of a ticket."""

    def __init__(self, bridge: Bridge, broker: AsyncBroker, caller: Caller, ticket: Ticket) -> None:
        self.schema = schema_of(ticket.columns)
        self._bridge = bridge
        self._caller = caller
        self._ticket = ticket
        self._frames = broker.scan_frames(ticket.topic, ticket.partition, ticket.start, ticket.stop)

    def first(self) -> list[Frame]:
        """What comes first. Whatever is wrong with the ticket is found out here."""
        return self._bridge.run(self._page())

    def batches(self, page: list[Frame]) -> Iterator[pa.RecordBatch]:
        """From the first page on. In a thread of gRPC."""
        columns = self._ticket.columns
        ahead = self._bridge.begin(self._page())
        try:
            while page:
                for frame in page:
                    if self._caller.footing.stopping.is_set():
                        raise Stopping("the server stops")
                    batch = batch_of(frame, 0, frame.count, 0)
                    yield batch if columns is None else batch.select(columns)
                page = self._bridge.end(ahead)
                if page:
                    ahead = self._bridge.begin(self._page())
        finally:
            ahead.cancel()
            self._bridge.begin(_leave(self._frames))

    async def _page(self) -> list[Frame]:
        """About `PAGE_BYTES` of frames; none: that was all."""
        self._caller.demand_again("do_get", "read", self._ticket.namespace, self._ticket.topic)
        found: list[Frame] = []
        size = 0
        async for frame in self._frames:
            found.append(frame)
            size += frame.batch.nbytes
            if size >= PAGE_BYTES or len(found) == _FRAMES_MAX:
                break
        return found


async def _leave(frames: AsyncIterator[Frame]) -> None:
    """An iterator of either kind of broker can be closed, though its type does not say so. One that is being cancelled
    just now refuses, and ends by that."""
    close = getattr(frames, "aclose", None)
    if close is not None:
        with suppress(RuntimeError):
            await close()
