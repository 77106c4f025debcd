"""What was asked of a cluster and what it answered: one history, in the order in which calls ended.

Times are those of the one clock that all processes of a machine share and nobody can set. A call has one of three
outcomes: it was answered, it was refused and changed nothing, or nobody knows what became of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

OK, NO, UNKNOWN = "ok", "no", "unknown"
PLAIN, KEYED, ONCE = "plain", "keyed", "once"
"""Kinds of topics: priorities, delays and failures; keys and nothing that changes the order; idempotency keys."""


class Topic(Struct, frozen=True):
    name: str
    kind: str
    server: int
    """The number of the PostgreSQL server that it lives on."""
    attempts_max: int = 3


class Sent(Struct, frozen=True):
    """A message as it was handed in. `uid` is part of its payload, and of no other's."""

    uid: int
    digest: str
    delay: float = 0.0
    once: str | None = None


class Receipt(Struct, frozen=True):
    id: int
    partition: int
    offset: int
    duplicate: bool = False


class Got(Struct, frozen=True):
    """A message as it was handed out."""

    uid: int
    id: int
    partition: int
    offset: int
    attempt: int
    priority: int
    digest: str


class Call(Struct, tag_field="op"):
    """`node`: who was asked, which need not be who answered. `code`: why it was not answered."""

    node: str
    topic: str
    begun: float
    ended: float = 0.0
    outcome: str = UNKNOWN
    code: str = ""


class Publish(Call, tag="publish"):
    sent: list[Sent] = []
    receipts: list[Receipt] = []
    durability: str = ""


class Receive(Call, tag="receive"):
    """`lasting`: for how many seconds from `begun` on the messages are held."""

    got: list[Got] = []
    token: str = ""
    lasting: float = 0.0


class Settle(Call, tag="settle"):
    """`lost`: those of `ids` that the token did not hold. `lasting`: of an extend."""

    verb: str = ""
    token: str = ""
    ids: list[int] = []
    lost: list[int] = []
    lasting: float = 0.0

    @property
    def settled(self) -> list[int]:
        """What it did, if it was answered."""
        if self.outcome != OK:
            return []
        lost = set(self.lost)
        return [id for id in self.ids if id not in lost]


class Row(Struct, frozen=True):
    """A message as it lies in the log when all is over."""

    topic: str
    partition: int
    offset: int
    id: int
    uid: int
    digest: str


class Dead(Struct, frozen=True):
    """A message in a dead-letter queue: which one it was, and how often it had been tried."""

    topic: str
    id: int
    attempts: int


class Final(Struct):
    """What is there when all is over. `left`: by topic, how many messages are neither acked nor dead."""

    rows: list[Row] = []
    dead: list[Dead] = []
    left: dict[str, int] = {}


C = TypeVar("C", bound=Call)
AnyCall = Publish | Receive | Settle


class History:
    """Many threads add to it."""

    def __init__(self, topics: list[Topic], calls: list[AnyCall] | None = None) -> None:
        self.topics = {topic.name: topic for topic in topics}
        self._calls: list[AnyCall] = list(calls or ())
        self._lock = threading.Lock()
        self.published = 0
        """Messages that were answered."""

    def add(self, call: AnyCall) -> None:
        with self._lock:
            self._calls.append(call)
            if isinstance(call, Publish) and call.outcome == OK:
                self.published += len(call.sent)

    @property
    def calls(self) -> list[AnyCall]:
        with self._lock:
            return list(self._calls)

    def of(self, kind: type[C]) -> Iterator[C]:
        return (call for call in self.calls if isinstance(call, kind))

    def answered(self, kind: type[C]) -> Iterator[C]:
        return (call for call in self.of(kind) if call.outcome == OK)

    def save(self, place: Path) -> None:
        """One line a call."""
        encode = msgspec.json.Encoder().encode
        place.write_bytes(b"".join(encode(call) + b"\n" for call in self.calls))


def now() -> float:
    return time.monotonic()


def digest(payload: bytes) -> str:
    return blake2b(payload, digest_size=8).hexdigest()


def uid_of(payload: bytes) -> int:
    """-1: nobody here has published that."""
    word = payload.partition(b" ")[0]
    return int(word) if word.isdigit() else -1
