"""A queue over Arrow Flight, as the tests call it: published by DoPut, received and settled over DoExchange by Arrow's
own client. All that Flight has no stream for is asked of the same server over HTTP.

Each receive has a stream of its own, which stays open until the test is over: when it ends, what it holds goes back.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import flight

from mqueue import Draft, Receipt
from mqueue.broker.settle import Settlement
from mqueue.model.errors import LeaseLost
from mqueue.model.priority import priority
from mqueue.model.times import duration_ms, instant
from mqueue.testing import ManualClock
from mqueue.wire.arrow import HEADERS
from mqueue.wire.errors import error_of
from mqueue.wire.json import ErrorBody

_TOLD = re.compile(r"(?:batch \d+: )?(.*?)(?:\. Detail: .*)?", re.DOTALL)
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


class Flown:
    """`remote` has the server, and is asked for all the rest."""

    def __init__(self, remote: Any, port: int, clock: ManualClock) -> None:
        self._remote = remote
        self._clock = clock
        self._flight = flight.connect(f"grpc://127.0.0.1:{port}")
        self._streams: list[Stream] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._remote, name)

    def __enter__(self) -> Flown:
        return self

    def __exit__(self, *ending: object) -> None:
        self.close()

    def close(self) -> None:
        for stream in self._streams:
            stream.close()
        self._remote.close()

    def end(self) -> None:
        self.close()
        self._flight.close()
        self._remote.end()

    # Publish

    def publish(self, topic: str, payload: Any, durability: str | None = None, **options: Any) -> Receipt:
        return self.publish_many(topic, [Draft(payload, **options)], durability)[0]

    def publish_many(self, topic: str, items: Sequence[Any], durability: str | None = None) -> list[Receipt]:
        drafts = [item if isinstance(item, Draft) else Draft(item) for item in items]
        if not drafts or not all(isinstance(draft.payload, bytes | str) and draft.topic is None for draft in drafts):
            told: list[Receipt] = self._remote.publish_many(topic, items, durability=durability)
            return told
        rows = [self._row(draft) for draft in drafts]
        columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in _TYPES.items()}
        batch = pa.record_batch({name: column for name, column in columns.items() if column.null_count < len(rows)})
        command = {"topic": topic, "receipts": "table", "durability": durability}
        with _told():
            writer, reader = self._flight.do_put(_described(command), batch.schema)
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

    def receive(self, topic: Any, limit: int = 1, **options: Any) -> list[Any]:
        group, visibility = options.pop("group", "default"), options.pop("visibility", None)
        wait = options.pop("wait", None)
        if not isinstance(topic, str) or options:
            found: list[Any] = self._remote.receive(
                topic, limit, group=group, visibility=visibility, wait=wait, **options
            )
            return found
        with _told():
            stream = Stream(self._flight, {"topic": topic, "group": group, "visibility": visibility})
        self._streams.append(stream)
        return stream.receive(topic, limit, wait)

    def ack(self, messages: Any, publish: Sequence[Any] = ()) -> Settlement:
        if publish:
            told: Settlement = self._remote.ack(messages, publish=publish)
            return told
        return _settled("ack", messages, lambda theirs: self._remote.ack(theirs))

    def nack(self, messages: Any, delay: Any = None, error: object = None) -> Settlement:
        more = {"delay": delay, "error": _text(error)}
        return _settled("nack", messages, lambda theirs: self._remote.nack(theirs, delay, error), **more)

    def reject(self, messages: Any, error: object = None) -> Settlement:
        return _settled("reject", messages, lambda theirs: self._remote.reject(theirs, error), error=_text(error))

    def release(self, messages: Any) -> Settlement:
        return _settled("release", messages, lambda theirs: self._remote.release(theirs))

    def extend(self, messages: Any, visibility: Any) -> Settlement:
        return _settled(
            "extend", messages, lambda theirs: self._remote.extend(theirs, visibility), visibility=visibility
        )


class Stream:
    def __init__(self, client: flight.FlightClient, command: dict[str, Any]) -> None:
        self._writer, self._reader = client.do_exchange(_described(command))
        self._lock = threading.Lock()
        self._open = True

    def receive(self, topic: str, limit: int, wait: Any) -> list[Flew]:
        answer, batch = self.ask(receive={"limit": limit, "wait": wait})
        if batch is None:
            self.close()
            return []
        lease = answer["receive"]["lease"]
        return [Flew(self, lease, {**row, "topic": topic}) for row in batch.to_pylist()]

    def ask(self, **command: Any) -> tuple[Any, pa.RecordBatch | None]:
        with self._lock, _told():
            if not self._open:
                raise LeaseLost("its stream is closed")
            self._writer.write_metadata(json.dumps(command).encode())
            chunk = self._reader.read_chunk()
        answer = json.loads(chunk.app_metadata.to_pybytes())
        if "error" in answer:
            raise error_of(msgspec.convert(answer["error"], ErrorBody), 400)
        return answer, chunk.data

    def close(self) -> None:
        with self._lock:
            if self._open:
                self._open = False
                self._writer.close()


class Flew:
    """A message of a stream."""

    def __init__(self, stream: Stream, lease: str, row: dict[str, Any]) -> None:
        self.stream, self.lease = stream, lease
        self.namespace = "default"
        self.headers = {pair["key"]: _maybe_text(pair["value"]) for pair in row.pop("headers") or ()}
        self.__dict__.update(row)

    def ack(self) -> None:
        self._settle("ack")

    def nack(self, delay: Any = None, error: object = None) -> None:
        self._settle("nack", delay=delay, error=_text(error))

    def reject(self, error: object = None) -> None:
        self._settle("reject", error=_text(error))

    def release(self) -> None:
        self._settle("release")

    def extend(self, visibility: Any) -> None:
        self._settle("extend", visibility=visibility)

    def _settle(self, verb: str, **more: Any) -> None:
        _settled(verb, [self], lambda _: Settlement(0), **more)


def _settled(verb: str, messages: Any, others: Callable[[list[Any]], Settlement], **more: Any) -> Settlement:
    """Stream by stream; what came over HTTP is settled there."""
    given = [messages] if not isinstance(messages, list | tuple) else messages
    ours: dict[tuple[Stream, str], list[int]] = {}
    for message in given:
        if isinstance(message, Flew):
            ours.setdefault((message.stream, message.lease), []).append(message.__dict__["id"])
    theirs = [message for message in given if not isinstance(message, Flew)]
    settled, lost, failure = 0, list[int](), None
    said = {name: value for name, value in more.items() if value is not None}
    for (stream, lease), ids in ours.items():
        try:
            answer, _ = stream.ask(**{verb: {"lease": lease, "ids": list(map(str, ids)), **said}})
        except LeaseLost as error:
            failure = error
            lost += error.lost or sorted(set(ids))
        else:
            settled += answer[verb]["settled"]
            lost += map(int, answer[verb]["lost"])
    if theirs or not ours:
        settled += others(theirs).settled
    if failure is not None and not settled:
        raise LeaseLost(failure.message, lost=tuple(lost))
    return Settlement(settled, tuple(lost))


@contextmanager
def _told() -> Any:
    """Errors of Arrow's client as those that the server meant."""
    try:
        yield
    except (pa.ArrowException, flight.FlightError) as error:
        code, _, rest = str(error).partition(": ")
        sentence = _TOLD.fullmatch(rest)
        assert sentence is not None
        raise error_of(ErrorBody(code, sentence[1]), 404 if isinstance(error, pa.ArrowKeyError) else 400) from error


def _described(command: dict[str, Any]) -> flight.FlightDescriptor:
    told = {name: value for name, value in command.items() if value is not None}
    return flight.FlightDescriptor.for_command(json.dumps(told))


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _text(error: object) -> str | None:
    return None if error is None else f"{type(error).__name__}: {error}" if isinstance(error, Exception) else str(error)


def _maybe_text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
