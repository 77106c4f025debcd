"""The history of a run: one record per completed call, as its caller saw it. The checkers read nothing else.

`inv` and `ret` come from one counter, so they order all calls exactly; `at` and `till` are the broker's clock, in
milliseconds, when the call began and when it was over. `res` is ok, fail (it did not happen) or info (nobody knows).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any

from mqueue import Broker, Draft, Error, Message
from mqueue.testing import ManualClock

TRACED = 250
"""Of so many messages the trace is written down."""


@dataclass(frozen=True)
class Offer:
    """A message as its producer handed it in."""

    uid: str
    payload: bytes
    priority: int
    key: bytes | None
    delay_ms: int = 0
    ttl_ms: int = 0
    idem: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {"uid": self.uid}

    @property
    def digest(self) -> str:
        return digest(self.payload, self.key, self.headers)


@dataclass(frozen=True)
class Seen:
    """A message as somebody got to see it."""

    id: int
    uid: str
    digest: str
    priority: int
    partition: int
    offset: int
    attempt: int = 0
    published_at: int = 0


@dataclass(frozen=True)
class Buried:
    """A copy in the dead-letter queue."""

    id: int
    uid: str
    digest: str
    group: str
    attempts: int
    reason: str


@dataclass(frozen=True)
class Record:
    proc: str
    op: str
    args: dict[str, Any]
    inv: int
    ret: int
    at: int
    till: int
    res: str
    val: Any


@dataclass
class History:
    """All records of a run, and what the run was set up with."""

    rules: dict[str, Any]
    records: list[Record] = field(default_factory=list)
    lives: Any = None

    def of(self, *ops: str, res: str | None = "ok") -> list[Record]:
        """The records of some operations, in the order in which they began."""
        found = [record for record in self.records if record.op in ops and (res is None or record.res == res)]
        return sorted(found, key=lambda record: record.inv)

    def last(self, op: str) -> Any:
        return self.of(op)[-1].val


class Recorder:
    """Calls a broker and writes down what it answered. May be used from several threads."""

    def __init__(self, broker: Broker, clock: ManualClock, topic: str, rules: dict[str, Any]) -> None:
        self.broker = broker
        self.clock = clock
        self.topic = topic
        self.history = History(rules)
        self._counter = itertools.count(1)
        self._lock = threading.Lock()

    def call(self, proc: str, op: str, args: dict[str, Any], work: Callable[[], Any]) -> Any:
        """What the call answered; None if it was refused."""
        inv, at = next(self._counter), self.clock.now()
        try:
            shown, answer = work()
            res = "ok"
        except Error as error:
            shown, answer = (error.code, getattr(error, "lost", ())), None
            res = "info" if error.applied is None else "fail"
        record = Record(proc, op, args, inv, next(self._counter), at, self.clock.now(), res, shown)
        with self._lock:
            self.history.records.append(record)
        return answer

    def publish(self, proc: str, offers: list[Offer]) -> None:
        def work() -> Any:
            if len(offers) == 1:
                receipts = [self.broker.publish(self.topic, offers[0].payload, **_typed(offers[0]))]
            else:
                receipts = self.broker.publish_many(self.topic, [Draft(o.payload, **_typed(o)) for o in offers])
            return [(r.id, r.partition, r.offset, r.duplicate) for r in receipts], None

        self.call(proc, "publish", {"offers": offers}, work)

    def receive(self, proc: str, group: str, limit: int, visibility_ms: int, mode: str) -> list[Message]:
        def work() -> Any:
            got = self.broker.receive(self.topic, limit, group=group, visibility=f"{visibility_ms}ms", mode=mode)
            token = got[0]._lease.token if got else b""
            return (token, [seen(message) for message in got]), got

        args = {"group": group, "limit": limit, "visibility_ms": visibility_ms, "mode": mode}
        return self.call(proc, "receive", args, work) or []

    def settle(self, proc: str, verb: str, group: str, messages: list[Message], wait_ms: int | None = None) -> None:
        wait = () if wait_ms is None else (f"{wait_ms}ms",)

        def work() -> Any:
            if len(messages) == 1:
                getattr(messages[0], verb)(*wait)
                return (1, ()), None
            answer = getattr(self.broker, verb)(messages, *wait)
            return (answer.settled, answer.lost), None

        args = {
            "verb": verb,
            "group": group,
            "token": messages[0]._lease.token,
            "ids": [message.id for message in messages],
            "wait_ms": wait_ms,
        }
        self.call(proc, "settle", args, work)

    def simply(self, proc: str, op: str, work: Callable[[], Any], **args: Any) -> Any:
        def both() -> Any:
            answer = work()
            return answer, answer

        return self.call(proc, op, args, both)

    def look(self) -> None:
        """Write down everything there is to see at the end."""
        broker, topic = self.broker, self.topic
        for _ in range(2):
            self.simply("end", "scan", lambda: [seen(message) for message in broker.scan(topic)])
        self.simply("end", "dlq", lambda: [buried(message) for message in _scan(broker, topic + ".dlq")])
        self.simply("end", "stats", lambda: broker.stats(topic))
        ids = [one.id for one in self.history.last("scan")][:TRACED]
        self.simply("end", "traces", lambda: {id: [_event(e) for e in broker.trace(id).events] for id in ids})


def seen(message: Message) -> Seen:
    return Seen(
        message.id,
        str(message.headers.get("uid", "")),
        digest(message.payload, message.key, message.headers),
        message.priority,
        message.partition,
        message.offset,
        message.attempt,
        _ms(message.published_at),
    )


def buried(message: Message) -> Buried:
    own = {name: value for name, value in message.headers.items() if not name.startswith("x-")}
    story = message.headers
    return Buried(
        int(story.get("x-origin-id", 0)),
        str(own.get("uid", "")),
        digest(message.payload, message.key, own),
        str(story.get("x-group", "")),
        int(story.get("x-attempts", 0)),
        str(story.get("x-reason", "")),
    )


def digest(payload: bytes, key: bytes | None, headers: Any) -> str:
    parts = [payload, key or b"", repr(sorted(headers.items())).encode()]
    return sha256(b"\0".join(parts)).hexdigest()[:16]


def _scan(broker: Broker, topic: str) -> Iterable[Message]:
    return broker.scan(topic) if topic in broker.topics() else ()


def _event(event: Any) -> tuple[int, str, str]:
    return _ms(event.time), event.kind, event.detail


def _ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def _typed(offer: Offer) -> dict[str, Any]:
    return {
        "priority": offer.priority,
        "key": offer.key,
        "headers": offer.headers,
        "delay": f"{offer.delay_ms}ms" if offer.delay_ms else None,
        "ttl": f"{offer.ttl_ms}ms" if offer.ttl_ms else None,
        "idempotency_key": offer.idem,
    }
