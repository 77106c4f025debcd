"""DoExchange by Arrow's own client: streams that are asked and pushed to, and the messages that come over them."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import count
from queue import SimpleQueue
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Struct
from pyarrow import flight

from mqueue.broker.deliver import error_text, lost_sentence
from mqueue.broker.given import check_ids
from mqueue.broker.message import Message
from mqueue.broker.settle import Settlement
from mqueue.broker.tables import SCHEMA
from mqueue.model.errors import Error, LeaseLost
from mqueue.server.flight.statuses import FlightErrorBody
from mqueue.wire.errors import error_of, kind_of

_SENTENCE = re.compile(r"(?:batch \d+: )?(.*?)(?:\. Detail: .*)?", re.DOTALL)


class Stream:
    """A thread reads it: what is asked is answered by its number, what comes unasked lies in `pushed`."""

    def __init__(self, client: flight.FlightClient, command: dict[str, Any]) -> None:
        self._place = {"namespace": command["namespace"], "topic": command["topic"]}
        self._writer, self._reader = client.do_exchange(described(command))
        self._check_accepted()
        self._lock = threading.Lock()
        self._numbers = count()
        self._asked: dict[int, Future[Any]] = {}
        self._ending: Error = LeaseLost("its stream is closed")
        self._is_over = self._is_closed = False
        self.pushed: SimpleQueue[list[Flew]] = SimpleQueue()
        """An empty list is the last one."""
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _check_accepted(self) -> None:
        """A schema comes at once, unless the stream is refused."""
        with told():
            try:
                self._reader.schema  # noqa: B018
            except pa.ArrowException:
                self._writer.close()
                raise

    def receive(self, limit: int, wait: Any) -> Lease:
        return self._lease(*self._ask(receive={"limit": limit, "wait": wait}))

    def settle(self, verb: str, lease: str, ids: Sequence[int], said: dict[str, Any]) -> Settlement:
        """Also if all of them are lost. No ids: what is left of the lease."""
        chosen = {"ids": list(map(str, ids))} if ids else {}
        try:
            answer, _ = self._ask(**{verb: {"lease": lease, **chosen, **_without_none(said)}})
        except LeaseLost as error:
            return Settlement(0, error.lost or tuple(sorted(set(ids))))
        return Settlement(answer[verb]["settled"], tuple(map(int, answer[verb]["lost"])))

    def close(self, ending: Error | None = None) -> None:
        """Whoever waits is told of this ending. What it holds is given back when this returns."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            if ending is not None and not self._is_over:
                self._ending = ending
            with suppress(pa.ArrowException, flight.FlightError):  # then it is over
                self._writer.done_writing()
        self._reading.join()
        with suppress(pa.ArrowException, flight.FlightError):  # what went wrong was told
            self._writer.close()

    def check_open(self) -> None:
        """Raises what it ended with."""
        if self._is_over:
            raise self._ending

    def _ask(self, **command: Any) -> tuple[Any, pa.RecordBatch | None]:
        answer: Future[Any] = Future()
        with self._lock:
            self.check_open()
            number = next(self._numbers)
            self._asked[number] = answer
            with suppress(pa.ArrowException, flight.FlightError):  # who reads is told why
                self._writer.write_metadata(json.dumps({**command, "seq": number}).encode())
        return answer.result()

    def _read(self) -> None:
        try:
            with told():
                for chunk in self._reader:
                    self._take(json.loads(chunk.app_metadata.to_pybytes()), chunk.data)
        except Error as error:
            self._ending = error
        with self._lock:
            self._is_over = True
            for asked in self._asked.values():
                asked.set_exception(self._ending)
        self.pushed.put([])

    def _take(self, answer: dict[str, Any], batch: pa.RecordBatch | None) -> None:
        asked = self._asked.pop(answer["seq"]) if "seq" in answer else None
        error = _error(msgspec.convert(answer["error"], FlightErrorBody), 400) if "error" in answer else None
        if asked is None and error is not None:
            raise error
        if asked is None:
            self.pushed.put(self._lease(answer, batch).messages())
        elif error is not None:
            asked.set_exception(error)
        else:
            asked.set_result((answer, batch))

    def _lease(self, answer: dict[str, Any], batch: pa.RecordBatch | None) -> Lease:
        table = SCHEMA.empty_table() if batch is None else pa.Table.from_batches([batch])
        given = answer["receive"]
        return Lease(self, self._place, table, given["lease"] or "", given["remaining_ms"])


class Lease(Struct):
    """What one receive was given: a table, or its messages."""

    stream: Stream
    place: dict[str, str]
    table: pa.Table
    token: str
    remaining_ms: int

    def __len__(self) -> int:
        rows: int = self.table.num_rows
        return rows

    def messages(self) -> list[Flew]:
        return list(messages_of(self.table, **self.place, _stream=self.stream, _lease=self.token))

    def ack(self, *, ids: Any = None) -> Settlement:
        return self._settle("ack", ids)

    def nack(self, delay: Any = None, error: object = None, *, ids: Any = None) -> Settlement:
        return self._settle("nack", ids, delay=delay, error=error)

    def reject(self, error: object = None, *, ids: Any = None) -> Settlement:
        return self._settle("reject", ids, error=error)

    def release(self, *, ids: Any = None) -> Settlement:
        return self._settle("release", ids)

    def extend(self, visibility: Any, *, ids: Any = None) -> Settlement:
        return self._settle("extend", ids, visibility=visibility)

    def _settle(self, verb: str, ids: Any, **said: Any) -> Settlement:
        if not self.table or ids == []:
            return Settlement(0)
        chosen = () if ids is None else sorted(check_ids(ids))
        return _unless_lost(verb, self.stream.settle(verb, self.token, chosen, said))


class Pushed:
    """Where a consumer gets its messages: what a stream is pushed."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.stopped = False

    def take(self, limit: int) -> list[Flew]:
        found = self._stream.pushed.get()
        if not found:
            self._stream.pushed.put(found)  # for whoever else waits
            if not self.stopped:
                self._stream.check_open()
        return found

    def stop(self) -> None:
        self.stopped = True
        self._stream.pushed.put([])

    def give_back(self) -> None:
        self._stream.close()


class Flew(Message, eq=False):
    """A message of a stream, or of a scan: nobody holds that."""

    id: int
    namespace: str
    topic: str
    partition: int
    offset: int
    attempt: int
    priority: int
    published_at: datetime
    deliver_at: datetime
    expires_at: datetime | None
    key: bytes | None
    headers: Mapping[str, str | bytes]
    payload: bytes
    _stream: Stream | None = None
    _lease: str = ""
    _settled: bool = False

    def _settle(self, verb: str, wait: Any = None, error: object = None) -> None:
        settled(verb, [self], error=error, **{"visibility" if verb == "extend" else "delay": wait})


def messages_of(table: pa.Table | pa.RecordBatch, **known: Any) -> Iterator[Flew]:
    for row in table.to_pylist():
        headers = {pair["key"]: _maybe_text(pair["value"]) for pair in row.pop("headers") or ()}
        yield Flew(headers=headers, **row, **known)


def settled(verb: str, messages: Iterable[Flew], error: object = None, **more: Any) -> Settlement:
    """Lease by lease."""
    leases: dict[tuple[Stream | None, str], list[Flew]] = {}
    for message in messages:
        leases.setdefault((message._stream, message._lease), []).append(message)
    said = {**more, "error": error_text(error) or None}
    done, lost = 0, list[int]()
    for (stream, lease), chosen in leases.items():
        ids = [message.id for message in chosen]
        outcome = Settlement(0, tuple(ids)) if stream is None else stream.settle(verb, lease, ids, said)
        done += outcome.settled
        lost += outcome.lost
        for message in chosen:
            message._settled |= verb != "extend" and message.id not in outcome.lost
    return _unless_lost(verb, Settlement(done, tuple(lost)))


def _unless_lost(verb: str, outcome: Settlement) -> Settlement:
    if not outcome.settled:
        raise LeaseLost(lost_sentence(verb, outcome.lost), lost=outcome.lost)
    return outcome


@contextmanager
def told() -> Iterator[None]:
    """Errors of Arrow's client as those that the server meant."""
    try:
        yield
    except (pa.ArrowException, flight.FlightError) as error:
        code, _, rest = str(error).partition(": ")
        sentence = _SENTENCE.fullmatch(rest)
        assert sentence is not None
        carried = getattr(error, "extra_info", b"")
        body = msgspec.json.decode(carried, type=FlightErrorBody) if carried else FlightErrorBody(code, "")
        body.message = sentence[1]
        raise _error(body, _status(error, code)) from error


def _error(body: FlightErrorBody, status: int) -> Error:
    return error_of(body, kind_of(body.code, status).status, body.retry_after_seconds)


def _status(error: Exception, code: str) -> int:
    """As HTTP has it, for codes that stand for no error of their own."""
    if code.endswith(("too_large", "too_many")):
        return 413
    if isinstance(error, flight.FlightUnavailableError):
        return 429
    return 404 if isinstance(error, pa.ArrowKeyError) else 400


def described(command: dict[str, Any]) -> flight.FlightDescriptor:
    return flight.FlightDescriptor.for_command(json.dumps(_without_none(command)))


def _without_none(said: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if value is not None}


def _maybe_text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
