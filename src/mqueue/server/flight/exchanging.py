"""DoExchange: a consumer that receives and settles over one stream.

The consumer sends commands without data. Each is answered once: a settled one by metadata alone, a received one by a
batch whose metadata names its lease.

    {"receive": {"limit": 100, "wait": "10s"}}        {"receive": {"lease": "…", "count": 100, "remaining_ms": 29990}}
    {"ack": {"lease": "…"}}                           {"ack": {"settled": 100, "lost": []}}
    {"nack": {"lease": "…", "ids": ["…"]}}            {"error": {"code": "lease_lost", …}}

A thread of gRPC reads (`Exchange.run`), one of ours writes, and all that is done is done in the loop; one batch at a
time is on its way to the consumer. When the stream ends, however it does, what is unsettled goes to others at once,
and no attempt is counted.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Struct, UnsetType
from pyarrow import flight

from mqueue.broker.aio import AsyncArrowLease, AsyncBroker
from mqueue.broker.deliver import check_receive
from mqueue.broker.tables import SCHEMA
from mqueue.model.errors import Backpressure, Error, LeaseLost, Refused
from mqueue.model.limits import MIB, RECEIVE_LIMIT_MAX
from mqueue.model.times import Duration, duration_ms
from mqueue.server.flight.asked import Consume, parsed
from mqueue.server.flight.bridge import LOOK_SECONDS, Bridge
from mqueue.server.flight.commands import Answer, Command, Given, Receive, Settle, Settled
from mqueue.server.flight.door import Caller
from mqueue.server.flight.statuses import body_of, error_of
from mqueue.wire.json_in import ids_of

COMMANDS_MAX = 64
"""Commands of one stream that are not answered yet; then no more are read."""
LEASES_MAX = 10_000
"""Of one stream."""
UNSETTLED_BYTES_MAX = 256 * MIB
"""Of one stream: what is unsettled stays in memory. One answer more than that may be held."""
PUSH_WAIT_SECONDS = 20
RETRY_SECONDS = 1.0
ANSWERS_SECONDS = 5.0
_AT_ONCE_MAX = 256
_ENCODER = msgspec.json.Encoder()


class Parcel(Struct):
    """Something to be written. `written` is set in the loop, also if nobody is there to read it."""

    metadata: bytes
    batch: pa.RecordBatch | None
    written: asyncio.Event


class Held(Struct):
    lease: AsyncArrowLease
    left: int
    """How many of its messages are unsettled."""
    until: int
    """Nothing of it is held for longer than this."""
    size: int
    """In bytes."""
    heard: int
    """How many commands had come when it was handed out."""
    ids: set[int] | None = None
    """Those, once they are told apart."""

    def without(self, ids: list[int] | None) -> int:
        """How many are left without these; None: without all of them."""
        if ids is None:
            return 0
        if self.ids is None:
            self.ids = set(self.lease.table["id"].to_pylist())
        self.ids.difference_update(ids)
        return len(self.ids)


class Exchange:
    def __init__(self, bridge: Bridge, broker: AsyncBroker, caller: Caller, asked: Consume) -> None:
        if asked.prefetch is not None and not 1 <= asked.prefetch <= RECEIVE_LIMIT_MAX:
            raise Refused(f"prefetch {asked.prefetch}; it takes 1 to {RECEIVE_LIMIT_MAX}", code="bad_limit")
        check_receive(asked.limit, "at_least_once")
        self._bridge = bridge
        self._broker = broker
        self._caller = caller
        self._asked = asked
        self._slots = threading.Semaphore(COMMANDS_MAX)
        self._parcels: SimpleQueue[Parcel | None] = SimpleQueue()
        self._settling: set[asyncio.Task[None]] = set()
        self._receiving: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()
        self._held: dict[str, Held] = {}
        """By token."""
        self._room = asyncio.Event()
        self._heard = 0
        """How many commands have come."""
        self._unheard = -1
        """How many had come when the last lease was handed out whose time is over."""

    # In a thread of gRPC

    def run(
        self,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
        gone: Callable[[], bool],
    ) -> None:
        """Until the consumer ends the stream, or leaves."""
        writer.begin(SCHEMA)
        writing = threading.Thread(target=self._write, args=(writer,), name="mqueue-flight-writer", daemon=True)
        writing.start()
        try:
            if self._asked.prefetch is not None:
                self._bridge.loop.call_soon_threadsafe(self._start, self._push(self._asked.prefetch), self._receiving)
            while (metadata := _next(reader)) is not None and self._has_slot(gone):
                self._bridge.loop.call_soon_threadsafe(self._take, metadata)
        finally:
            try:
                self._bridge.run(self._end())
            finally:
                self._parcels.put(None)
                writing.join()

    def _has_slot(self, gone: Callable[[], bool]) -> bool:
        """Wait until one more command may be unanswered; False: the consumer has left. Who reads would notice that."""
        while not self._slots.acquire(timeout=LOOK_SECONDS):
            if gone():
                return False
        return True

    def _write(self, writer: flight.MetadataRecordBatchWriter) -> None:
        """In a thread of its own. Once the consumer is gone the rest is thrown away."""
        gone = False
        while (parcel := self._parcels.get()) is not None:
            try:
                if gone:
                    pass
                elif parcel.batch is None:
                    writer.write_metadata(parcel.metadata)
                else:
                    writer.write_with_metadata(parcel.batch, parcel.metadata)
            except (pa.ArrowException, OSError):
                gone = True
            self._bridge.loop.call_soon_threadsafe(parcel.written.set)

    # In the loop

    def _take(self, metadata: bytes) -> None:
        """Begin with a command."""
        if self._is_silent():
            self._room.set()
        self._heard += 1
        command = Command()
        try:
            command = parsed(metadata, Command, "command")
            verb, asked = command.chosen()
        except Refused as error:
            refusal = Answer(error=body_of(error), seq=command.seq)
            self._start(self._send(refusal), self._settling, self._slots.release)
            return
        tasks = self._receiving if isinstance(asked, Receive) else self._settling
        self._start(self._do(verb, asked, command.seq), tasks, self._slots.release)

    def _start(
        self,
        doing: Coroutine[Any, Any, None],
        tasks: set[asyncio.Task[None]],
        after: Callable[[], None] | None = None,
    ) -> None:
        task = self._bridge.loop.create_task(doing)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        if after is not None:
            task.add_done_callback(lambda _: after())

    async def _do(self, verb: str, asked: Receive | Settle, seq: int | str | UnsetType) -> None:
        try:
            if isinstance(asked, Receive):
                await self._receive(asked, seq)
                return
            answer = Answer(seq=seq)
            setattr(answer, verb, await self._bridge.counted(self._settle(verb, asked)))
        except Exception as error:
            answer = Answer(error=body_of(error_of(error, f"exchange, {verb}")), seq=seq)
        await self._send(answer)

    async def _send(self, answer: Answer, batch: pa.RecordBatch | None = None) -> None:
        """Until it is written: a consumer that does not read gets nothing more."""
        parcel = Parcel(_ENCODER.encode(answer), batch, asyncio.Event())
        self._parcels.put(parcel)
        await parcel.written.wait()

    async def _receive(self, asked: Receive, seq: int | str | UnsetType) -> None:
        if self._asked.prefetch is not None:
            raise Refused(
                "what comes over this stream is pushed; receive is for one without prefetch", code="bad_command"
            )
        async with self._turn:
            given, batch = await self._lease(asked.limit, asked.wait)
            await self._send(Answer(receive=given, seq=seq), batch)

    async def _push(self, prefetch: int) -> None:
        """Messages as they come, never more than `prefetch` of them unsettled; none to who is silent."""
        while True:
            self._room.clear()
            try:
                count, size = self._unsettled()
                spare = prefetch - count
                if spare > 0 and size < UNSETTLED_BYTES_MAX and not self._is_silent():
                    given, batch = await self._lease(min(spare, self._asked.limit), PUSH_WAIT_SECONDS)
                    self._unsettled()
                    held = self._held.get(given.lease or "")
                    if held is not None and self._is_silent():  # what ran out meanwhile came here again
                        await _release(held.lease)
                        self._note(held.lease.token, held, None)
                    elif batch is not None:
                        await self._send(Answer(receive=given), batch)
                    continue
            except Exception as error:
                told = error_of(error, "exchange, push")
                await self._send(Answer(error=body_of(told)))
                if not told.retryable:
                    return
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_SECONDS):
                    await self._room.wait()

    def _unsettled(self) -> tuple[int, int]:
        """Messages that are held, and the bytes of their leases. A lease whose time is over is forgotten."""
        now = self._caller.footing.clock.now()
        for token in [token for token, held in self._held.items() if held.until <= now]:
            self._unheard = max(self._unheard, self._held.pop(token).heard)
        return sum(held.left for held in self._held.values()), sum(held.size for held in self._held.values())

    def _is_silent(self) -> bool:
        """Whether a lease ran out and nothing was heard since it was handed out: then nobody may be there, and what is
        pushed would only use up its attempts."""
        return self._unheard == self._heard

    async def _lease(self, limit: int, wait: Duration | None) -> tuple[Given, pa.RecordBatch | None]:
        """What there is, or comes within `wait`. Who is cancelled meanwhile gives it back."""
        asked = self._asked
        self._caller.demand_again("do_exchange", "receive", asked.namespace, asked.topic)
        _, size = self._unsettled()
        if len(self._held) >= LEASES_MAX:
            raise Backpressure(f"{len(self._held)} leases of one stream are unsettled; {LEASES_MAX} are allowed")
        if size >= UNSETTLED_BYTES_MAX:
            raise Backpressure(f"{size} bytes of one stream are unsettled; {UNSETTLED_BYTES_MAX} are allowed")
        lease = await self._broker.receive_arrow(
            asked.topic, limit, group=asked.group, wait=wait, visibility=asked.visibility
        )
        if not len(lease):
            return Given(), None
        now, table = self._caller.footing.clock.now(), lease.table
        self._held[lease.token] = Held(lease, len(lease), now + lease.remaining_ms, table.nbytes, self._heard)
        batches = table.to_batches()
        batch = batches[0] if len(batches) == 1 else table.combine_chunks().to_batches()[0]
        return Given(lease.token, len(lease), lease.remaining_ms), batch

    async def _settle(self, verb: str, asked: Settle) -> Settled:
        visibility_ms = None if asked.visibility is None else duration_ms(asked.visibility, "visibility")
        held = self._held.get(asked.lease)
        if held is None:
            raise LeaseLost(f"cannot {verb}: this stream holds no lease {asked.lease!r:.80}")
        self._caller.demand_again("do_exchange", "settle", self._asked.namespace, self._asked.topic)
        ids = None if asked.ids is None else ids_of(asked.ids)
        try:
            done = await _call(held.lease, verb, asked, ids)
        except LeaseLost:
            self._note(asked.lease, held, ids)
            raise
        if verb != "extend":
            self._note(asked.lease, held, ids)
        elif visibility_ms is not None:
            until = self._caller.footing.clock.now() + visibility_ms
            held.until = until if ids is None else max(held.until, until)
        return Settled(done.settled, list(map(str, done.lost)))

    def _note(self, token: str, held: Held, ids: list[int] | None) -> None:
        """Messages of a lease are settled, or lost."""
        held.left = held.without(ids)
        if not held.left:
            self._held.pop(token, None)
        self._room.set()

    async def _end(self) -> None:
        """Whoever waits for messages waits no longer; what is being settled is settled; the rest is given back, also
        if the consumer does not read the last answers."""
        for task in self._receiving:
            task.cancel()
        await asyncio.gather(*self._receiving, return_exceptions=True)
        if self._settling:
            await asyncio.wait(self._settling, timeout=ANSWERS_SECONDS)
        left = list(self._held.values())
        for start in range(0, len(left), _AT_ONCE_MAX):
            await asyncio.gather(*(_release(held.lease) for held in left[start : start + _AT_ONCE_MAX]))


async def _call(lease: AsyncArrowLease, verb: str, asked: Settle, ids: list[int] | None) -> Any:
    if verb == "ack":
        return await lease.ack(ids=ids)
    if verb == "nack":
        return await lease.nack(asked.delay, asked.error, ids=ids)
    if verb == "reject":
        return await lease.reject(asked.error, ids=ids)
    if verb == "release":
        return await lease.release(ids=ids)
    assert asked.visibility is not None, "it was checked"
    return await lease.extend(asked.visibility, ids=ids)


async def _release(lease: AsyncArrowLease) -> None:
    with suppress(Error):  # what cannot be given back now comes back when its time is over
        await lease.release()


def _next(reader: flight.MetadataRecordBatchReader) -> bytes | None:
    """The metadata of the next message; None: there is none, or the consumer has left."""
    while True:
        try:
            chunk = reader.read_chunk()
        except StopIteration:
            return None
        except (flight.FlightError, OSError):
            return None
        except pa.ArrowException as error:
            raise Refused(f"the stream cannot be read: {error!s:.500}", code="bad_stream") from error
        if chunk.app_metadata is not None:
            metadata: bytes = chunk.app_metadata.to_pybytes()
            return metadata
        if chunk.data is not None:
            raise Refused("a batch without a command; messages are published by DoPut", code="bad_command")
