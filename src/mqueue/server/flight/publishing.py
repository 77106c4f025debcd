"""DoPut: record batches that come in are published, each by one call, in the order they came.

A batch is read when the one before it has its receipt. Whoever sends `ahead` says so: then so many are handed in
before the receipt of the first is waited for, and one stream keeps the disk busy. Calls to a broker elsewhere would
overtake each other; there each waits for the one before all the same. The first batch that is refused ends the stream,
as soon as nothing more is being read. Those behind it that were handed in already are published or not, and have a
receipt if they are.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from queue import SimpleQueue

import msgspec
import pyarrow as pa
from msgspec import Struct
from pyarrow import flight

from mqueue.broker.aio import AsyncBroker
from mqueue.broker.intake_arrow import Receipts
from mqueue.model.errors import Error, Refused, Stopping
from mqueue.model.message import Receipt
from mqueue.server.faces import is_here
from mqueue.server.flight.asked import Put
from mqueue.server.flight.bridge import Bridge
from mqueue.server.flight.door import Caller
from mqueue.server.http.v1.receipts import receipt_stream

AHEAD_MAX = 64
_ENCODER = msgspec.json.Encoder()


class Taken(Struct):
    """The receipt of a batch. `stretches`: (first id, partition, first offset, count) of neighbours, in the order of
    the batch; none where its messages were sorted, or some were duplicates: a table has each."""

    batch: int
    count: int
    durability: str
    stretches: list[tuple[str, int, int, int]]
    duplicates: int = 0


class Sum(Struct):
    """The receipt of a whole stream."""

    batches: int = 0
    count: int = 0
    durability: str = ""


class Publishing:
    def __init__(self, bridge: Bridge, broker: AsyncBroker, caller: Caller, asked: Put) -> None:
        self._bridge = bridge
        self._broker = broker
        self._caller = caller
        self._asked = asked
        if not 0 <= asked.ahead <= AHEAD_MAX:
            raise Refused(f"ahead {asked.ahead}; it takes 0 to {AHEAD_MAX}", code="bad_limit")
        self._ahead = asked.ahead if is_here(broker) else 0
        self._refused = False
        self._failure: Exception | None = None
        """The first thing that went wrong with a batch that was sent ahead."""
        self._sum = Sum()

    def run(self, reader: flight.MetadataRecordBatchReader, writer: flight.FlightMetadataWriter) -> None:
        """Until the caller has sent all, or one is refused. In a thread of gRPC."""
        if self._ahead:
            self._run_ahead(reader, writer)
        else:
            while (batch := self._next(reader)) is not None:
                self._tell(self._bridge.begin(self._publish(batch)), writer)
        if self._asked.receipts == "end":
            _write(writer, _ENCODER.encode(self._sum))

    def _run_ahead(self, reader: flight.MetadataRecordBatchReader, writer: flight.FlightMetadataWriter) -> None:
        """A thread of ours writes the receipts as they come, also while the caller sends nothing."""
        pending: SimpleQueue[Future[Sequence[Receipt]] | None] = SimpleQueue()
        room = threading.Semaphore(self._ahead)
        telling = threading.Thread(
            target=self._tell_all, args=(pending, room, writer), name="mqueue-flight-receipts", daemon=True
        )
        telling.start()
        try:
            while self._failure is None and (batch := self._next(reader)) is not None:
                pending.put(self._bridge.begin(self._publish(batch)))
                room.acquire()
        finally:
            pending.put(None)
            telling.join()
        if self._failure is not None:
            raise self._failure

    def _tell_all(
        self,
        pending: SimpleQueue[Future[Sequence[Receipt]] | None],
        room: threading.Semaphore,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        """Also of what comes behind one that was refused: it was handed in, and may be published."""
        while (begun := pending.get()) is not None:
            try:
                self._tell(begun, writer)
            except Exception as error:
                self._failure = self._failure or error
            room.release()

    def _next(self, reader: flight.MetadataRecordBatchReader) -> pa.RecordBatch | None:
        while True:
            if self._caller.footing.stopping.is_set():
                raise Stopping("the server stops; what has a receipt is published")
            try:
                chunk = reader.read_chunk()
            except StopIteration:
                return None
            except (pa.ArrowException, ValueError, OSError) as error:
                raise Refused(f"the stream cannot be read: {error!s:.500}", code="bad_stream") from error
            if chunk.data is not None:
                return chunk.data

    async def _publish(self, batch: pa.RecordBatch) -> Sequence[Receipt]:
        if self._refused:
            raise Refused("a batch before this one was refused")
        asked = self._asked
        try:
            self._caller.demand_again("do_put", "publish", asked.namespace, asked.topic)
            return await self._broker.publish_arrow(asked.topic, batch, durability=asked.durability)
        except BaseException:
            self._refused = True
            raise

    def _tell(self, begun: Future[Sequence[Receipt]], writer: flight.FlightMetadataWriter) -> None:
        number = self._sum.batches
        self._sum.batches += 1
        try:
            receipts = self._bridge.end(begun)
        except Error as error:
            error.message = f"batch {number}: {error.message}"
            raise
        self._sum.count += len(receipts)
        self._sum.durability = receipts[0].durability
        if self._asked.receipts == "table":
            _write(writer, receipt_stream(receipts))
        elif self._asked.receipts == "each":
            _write(writer, _ENCODER.encode(_taken(number, receipts)))


def _write(writer: flight.FlightMetadataWriter, metadata: bytes) -> None:
    try:
        writer.write(metadata)
    except (pa.ArrowException, OSError):
        raise CancelledError from None  # the caller has left


def _taken(number: int, receipts: Sequence[Receipt]) -> Taken:
    """From columns, if there are any; single receipts are there only where somebody had to make them anyway."""
    if isinstance(receipts, Receipts):
        stretches = [(str(id), partition, offset, count) for id, partition, offset, count in receipts.stretches()]
        return Taken(number, len(receipts), receipts.durability, stretches)
    duplicates = sum(receipt.duplicate for receipt in receipts)
    first, count = receipts[0], len(receipts)
    in_a_row = all((each.id - first.id, each.offset - first.offset) == (n, n) for n, each in enumerate(receipts))
    alone = in_a_row and not duplicates and len({each.partition for each in receipts}) == 1
    stretches = [(str(first.id), first.partition, first.offset, count)] if alone else []
    return Taken(number, count, first.durability, stretches, duplicates)
