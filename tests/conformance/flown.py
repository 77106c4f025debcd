"""A queue over Arrow Flight, as the tests call it: published by DoPut, received, settled and pushed over DoExchange,
scanned by DoGet, all by Arrow's own client. What Flight has no stream for is asked of the same server over HTTP.

Streams stay open until the test is over: when one ends, what it holds goes back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyarrow import flight

from mqueue import Draft, Receipt
from mqueue.broker.consume import Subscription, check_concurrency, consume
from mqueue.broker.settle import Settlement
from mqueue.model.errors import Closed
from mqueue.model.priority import priority
from mqueue.model.times import duration_ms, instant
from mqueue.testing import ManualClock
from mqueue.wire.arrow import HEADERS
from tests.conformance.streams import Flew, Lease, Pushed, Stream, described, messages_of, settled, told

_TIMES = pa.timestamp("ms", "UTC")
_TYPES = {
    "payload": pa.binary(),
    "key": pa.binary(),
    "headers": HEADERS,
    "priority": pa.int32(),
    "deliver_at": _TIMES,
    "expires_at": _TIMES,
    "idempotency_key": pa.string(),
    "fairness_key": pa.string(),
}


class Line:
    """A client of Arrow's, and its streams."""

    def __init__(self, port: int) -> None:
        self.client = flight.connect(f"grpc://127.0.0.1:{port}")
        self._streams: list[Stream] = []
        self._idle: dict[str, list[Stream]] = defaultdict(list)
        """Where nobody waits for messages, by what they were opened with."""
        self._consumers: list[Iterator[Any]] = []

    def open(self, command: dict[str, Any]) -> Stream:
        stream = Stream(self.client, command)
        self._streams.append(stream)
        return stream

    def receive(self, command: dict[str, Any], limit: int, wait: Any) -> Lease:
        idle = self._idle[repr(command)]
        try:
            stream = idle.pop()
        except IndexError:
            stream = self.open(command)
        found = stream.receive(limit, wait)
        idle.append(stream)
        return found

    def kept(self, consumer: Iterator[Any]) -> Iterator[Any]:
        """Else the garbage collector ends it in any thread, also in that of the server, which would wait for itself."""
        self._consumers.append(consumer)
        return consumer

    def close(self) -> None:
        for stream in self._streams:
            stream.close(Closed("this queue is closed"))


class Flown:
    """`remote` has the server, and is asked for all the rest."""

    def __init__(self, remote: Any, line: Line, clock: ManualClock, namespace: str = "default") -> None:
        self._remote = remote
        self._line = line
        self._clock = clock
        self._namespace = namespace

    def __getattr__(self, name: str) -> Any:
        return getattr(self._remote, name)

    def namespace(self, name: str) -> Flown:
        return View(self._remote.namespace(name), self._line, self._clock, name)

    def __enter__(self) -> Flown:
        return self

    def __exit__(self, *ending: object) -> None:
        self.close()

    def close(self) -> None:
        self._line.close()
        self._remote.close()

    def end(self) -> None:
        self.close()
        self._line.client.close()
        self._remote.end()

    # Publish

    def publish(self, topic: str, payload: Any, durability: str | None = None, **options: Any) -> Receipt:
        if not isinstance(topic, str):
            found: Receipt = self._remote.publish(topic, payload, durability=durability, **options)
            return found
        return self.publish_many(topic, [Draft(payload, **options)], durability)[0]

    def publish_many(self, topic: str, items: Sequence[Any], durability: str | None = None) -> list[Receipt]:
        drafts = [item if isinstance(item, Draft) else Draft(item) for item in items]
        if not isinstance(topic, str) or not drafts or not all(map(_fits, drafts)):
            found: list[Receipt] = self._remote.publish_many(topic, drafts, durability=durability)
            return found
        return self._put(topic, _batch([self._row(draft) for draft in drafts]), durability)

    def publish_arrow(self, topic: str, table: Any) -> Sequence[Receipt]:
        if not isinstance(table, pa.Table | pa.RecordBatch):
            found: Sequence[Receipt] = self._remote.publish_arrow(topic, table)
            return found
        columns = [column.combine_chunks() for column in pa.table(table).columns]
        return self._put(topic, pa.record_batch(columns, schema=table.schema), None)

    def _put(self, topic: str, batch: pa.RecordBatch, durability: str | None) -> list[Receipt]:
        command = {"topic": topic, "namespace": self._namespace, "receipts": "table", "durability": durability}
        with told():
            writer, reader = self._line.client.do_put(described(command), batch.schema)
            with writer:
                writer.write_batch(batch)
                writer.done_writing()
                found = pa.ipc.open_stream(reader.read()).read_all().to_pylist()
        return [Receipt(durability=durability or "memory", topic=topic, **row) for row in found]

    def _row(self, draft: Draft) -> dict[str, Any]:
        """Flight has columns for times, not for delays."""
        due = None if draft.deliver_at is None else instant(draft.deliver_at)
        if draft.delay is not None:
            due = self._clock.now() + duration_ms(draft.delay, "delay")
        ends = None if draft.ttl is None else max(self._clock.now(), due or 0) + duration_ms(draft.ttl, "ttl")
        return {
            "payload": _bytes(draft.payload),
            "key": _bytes(draft.key),
            "headers": [{"key": name, "value": _bytes(value)} for name, value in (draft.headers or {}).items()] or None,
            "priority": None if draft.priority is None else priority(draft.priority),
            "deliver_at": due,
            "expires_at": ends,
            "idempotency_key": draft.idempotency_key,
            "fairness_key": draft.fairness_key,
        }

    # Consume

    def receive(self, topic: Any, limit: int = 1, *, group: Any = "default", **options: Any) -> list[Any]:
        wait, visibility = options.pop("wait", None), options.pop("visibility", None)
        if options or not (isinstance(topic, str) and isinstance(group, str) and type(limit) is int):
            found: list[Any] = self._remote.receive(
                topic, limit, group=group, wait=wait, visibility=visibility, **options
            )
            return found
        return self._line.receive(self._stream(topic, group, visibility), limit, wait).messages()

    def receive_arrow(
        self, topic: str, limit: int = 10_000, *, group: str = "default", wait: Any = None, visibility: Any = None
    ) -> Lease:
        return self._line.receive(self._stream(topic, group, visibility), limit, wait)

    def consume(self, topic: Any, *, prefetch: int = 100, **options: Any) -> Iterator[Any]:
        if not isinstance(topic, str):
            found: Iterator[Any] = self._remote.consume(topic, prefetch=prefetch, **options)
            return found
        return self._line.kept(consume(self._pushed(topic, prefetch=prefetch, **options), prefetch))

    def subscribe(
        self, topic: str, handler: Callable[[Any], Any], *, concurrency: int = 1, **options: Any
    ) -> Subscription:
        check_concurrency(concurrency)
        return Subscription(self._pushed(topic, prefetch=concurrency, limit=1, **options), handler, concurrency)

    def _pushed(self, topic: str, group: str = "default", visibility: Any = None, **how: int) -> Pushed:
        return Pushed(self._line.open({**self._stream(topic, group, visibility), **how}))

    def _stream(self, topic: str, group: str, visibility: Any) -> dict[str, Any]:
        return {"topic": topic, "namespace": self._namespace, "group": group, "visibility": visibility}

    def ack(self, messages: Any, publish: Sequence[Any] = ()) -> Settlement:
        return self._settle("ack", messages, publish=publish or None)

    def nack(self, messages: Any, delay: Any = None, error: object = None) -> Settlement:
        return self._settle("nack", messages, delay=delay, error=error)

    def reject(self, messages: Any, error: object = None) -> Settlement:
        return self._settle("reject", messages, error=error)

    def release(self, messages: Any) -> Settlement:
        return self._settle("release", messages)

    def extend(self, messages: Any, visibility: Any) -> Settlement:
        return self._settle("extend", messages, visibility=visibility)

    def _settle(self, verb: str, messages: Any, **said: Any) -> Settlement:
        """What came over HTTP is settled there."""
        given = messages if isinstance(messages, list | tuple) else [messages]
        named = {name: value for name, value in said.items() if value is not None}
        if given and "publish" not in named and all(isinstance(message, Flew) for message in given):
            return settled(verb, given, **named)
        done: Settlement = getattr(self._remote, verb)(messages, **named)
        return done

    # Scan

    def scan(self, topic: Any, start: Any = None, stop: Any = None, **options: Any) -> Iterator[Any]:
        for batch in self.scan_arrow(topic, start, stop, **options):
            yield from messages_of(batch, namespace=self._namespace, topic=topic)

    def scan_arrow(
        self, topic: str, start: Any = None, stop: Any = None, *, partition: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        asked = {"start": _position(start), "stop": _position(stop), "partition": partition}
        with told():
            command = described({"topic": topic, "namespace": self._namespace, **asked})
            for endpoint in self._line.client.get_flight_info(command).endpoints:
                for chunk in self._line.client.do_get(endpoint.ticket):
                    yield chunk.data


class View(Flown):
    """Another namespace of a queue, which is not closed with it."""

    def close(self) -> None:
        pass


def _fits(draft: Draft) -> bool:
    """Whether there are columns for it."""
    return isinstance(draft.payload, bytes | str) and draft.topic is None and None in (draft.delay, draft.deliver_at)


def _batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in _TYPES.items()}
    return pa.record_batch({name: column for name, column in columns.items() if column.null_count < len(rows)})


def _position(position: Any) -> Any:
    """A number is an offset, a text a time."""
    return position.isoformat() if isinstance(position, datetime) else position


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
