"""What is written down of exchanges, queues and bindings, and what it adds up to: pure, the same at every node.

A record is one message of the topic `.amqp` of its namespace. Whoever reads all of them, in the order in which they lie
there, knows what there is. What is there already is not made twice: of two nodes that make a queue at the same time
the first one wins, and both see so. A `Snapshot` is all there is in a few records, so that older ones may go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from mqueue.server.amqp.exchanges import BUILT_IN, Binding, Exchange, Router

USE_LASTS_MS = 60_000
"""A node that is not heard of for so long uses no queue any more. It writes down that it does three times as often."""


class Queue(Struct, frozen=True):
    """`owner`: the connection that an exclusive queue belongs to."""

    name: str
    durable: bool = True
    auto_delete: bool = False
    owner: str = ""
    arguments: dict[str, Any] = {}

    @property
    def dead_exchange(self) -> str | None:
        return self.arguments.get("x-dead-letter-exchange")

    @property
    def dead_key(self) -> str | None:
        return self.arguments.get("x-dead-letter-routing-key")

    @property
    def ttl_ms(self) -> int | None:
        return self.arguments.get("x-message-ttl")

    @property
    def priority_max(self) -> int:
        return min(int(self.arguments.get("x-max-priority", 0)), 255)

    @property
    def delivery_limit(self) -> int | None:
        return self.arguments.get("x-delivery-limit")

    @property
    def expires_ms(self) -> int | None:
        """For how long it stays while nobody uses it; None: for good."""
        expires: int | None = self.arguments.get("x-expires")
        return USE_LASTS_MS if expires is None and self.owner else expires

    @property
    def temporary(self) -> bool:
        """Whether it goes by itself."""
        return self.auto_delete or self.expires_ms is not None


class QueueMade(Struct, frozen=True, tag=True):
    queue: Queue


class QueueGone(Struct, frozen=True, tag=True):
    name: str


class ExchangeMade(Struct, frozen=True, tag=True):
    exchange: Exchange


class ExchangeGone(Struct, frozen=True, tag=True):
    name: str


class Bound(Struct, frozen=True, tag=True):
    binding: Binding


class Unbound(Struct, frozen=True, tag=True):
    binding: Binding


class Used(Struct, frozen=True, tag=True):
    """A node uses a queue: somebody consumes from it there, or owns it."""

    queue: str
    node: str


class Unused(Struct, frozen=True, tag=True):
    queue: str
    node: str


class Snapshot(Struct, frozen=True, tag=True):
    """A part of all there was before offset `upto`. The parts of one follow each other."""

    upto: int
    part: int
    parts: int
    exchanges: list[Exchange]
    queues: list[tuple[Queue, int]]
    """With the time at which each was made."""
    bindings: list[Binding]
    uses: list[tuple[str, str, int]]


Record = QueueMade | QueueGone | ExchangeMade | ExchangeGone | Bound | Unbound | Used | Unused | Snapshot

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)
_PART_ROWS = 500


def write(record: Record) -> bytes:
    return _ENCODER.encode(record)


def read(payload: bytes) -> Record | None:
    """None: it is none of ours, or of a version to come."""
    try:
        return _DECODER.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


class Contents:
    """All there is in a namespace. `apply` is the only thing that changes it."""

    def __init__(self) -> None:
        self.exchanges: dict[str, Exchange] = {exchange.name: exchange for exchange in BUILT_IN}
        self.queues: dict[str, Queue] = {}
        self.made_at: dict[str, int] = {}
        """Of queues: when each was made."""
        self.bindings: dict[tuple[str, ...], Binding] = {}
        self.uses: dict[str, dict[str, int]] = {}
        """Of queues: which nodes use it, and when each was heard of."""
        self._router: Router | None = None

    @property
    def router(self) -> Router:
        if self._router is None:
            self._router = Router(self.exchanges, self.bindings.values(), self.queues)
        return self._router

    def __len__(self) -> int:
        return len(self.exchanges) + len(self.queues) + len(self.bindings) + sum(map(len, self.uses.values()))

    def apply(self, record: Record, at: int) -> None:
        match record:
            case Used(queue, node):
                if queue in self.queues:
                    self.uses.setdefault(queue, {})[node] = at
                return
            case Unused(queue, node):
                self.uses.get(queue, {}).pop(node, None)
                return
            case QueueMade(queue):
                if queue.name not in self.queues:
                    self.queues[queue.name] = queue
                    self.made_at[queue.name] = at
            case QueueGone(name):
                self._drop_queue(name)
            case ExchangeMade(exchange):
                self.exchanges.setdefault(exchange.name, exchange)
            case ExchangeGone(name):
                self._drop_exchange(name)
            case Bound(binding):
                if self._holds(binding):
                    self.bindings[binding.identity] = binding
            case Unbound(binding):
                self._drop([binding])
            case Snapshot():
                return  # whoever reads on knows it already
        self._router = None

    def _holds(self, binding: Binding) -> bool:
        targets = self.queues if binding.kind == "queue" else self.exchanges
        return binding.source in self.exchanges and binding.target in targets

    def _drop_queue(self, name: str) -> None:
        self.queues.pop(name, None)
        self.made_at.pop(name, None)
        self.uses.pop(name, None)
        self._drop([one for one in self.bindings.values() if one.kind == "queue" and one.target == name])

    def _drop_exchange(self, name: str) -> None:
        if any(name == one.name for one in BUILT_IN):
            return
        self.exchanges.pop(name, None)
        around = [b for b in self.bindings.values() if b.source == name or (b.kind, b.target) == ("exchange", name)]
        self._drop(around)

    def _drop(self, bindings: Iterable[Binding]) -> None:
        """An exchange that is to go with its last binding does."""
        sources = set()
        for binding in bindings:
            if self.bindings.pop(binding.identity, None) is not None:
                sources.add(binding.source)
        for name in sources:
            exchange = self.exchanges.get(name)
            if exchange is not None and exchange.auto_delete and not self.is_bound_from(name):
                self._drop_exchange(name)

    def is_bound_from(self, exchange: str) -> bool:
        return any(binding.source == exchange for binding in self.bindings.values())

    def snapshot(self, upto: int) -> list[Snapshot]:
        """All there is, in parts of bounded size."""
        built_in = {exchange.name for exchange in BUILT_IN}
        columns: list[list[Any]] = [
            [exchange for exchange in self.exchanges.values() if exchange.name not in built_in],
            [(queue, self.made_at[queue.name]) for queue in self.queues.values()],
            list(self.bindings.values()),
            [(queue, node, at) for queue, nodes in self.uses.items() for node, at in nodes.items()],
        ]
        rows = max(map(len, columns))
        starts = range(0, max(rows, 1), _PART_ROWS)
        return [
            Snapshot(upto, part, len(starts), *(column[start : start + _PART_ROWS] for column in columns))
            for part, start in enumerate(starts)
        ]

    def restore(self, parts: Iterable[Snapshot]) -> None:
        for part in parts:
            self.exchanges |= {exchange.name: exchange for exchange in part.exchanges}
            self.queues |= {queue.name: queue for queue, _ in part.queues}
            self.made_at |= {queue.name: at for queue, at in part.queues}
            self.bindings |= {binding.identity: binding for binding in part.bindings}
            for queue, node, at in part.uses:
                self.uses.setdefault(queue, {})[node] = at
        self._router = None


def fold(records: Iterable[tuple[int, int, Record]]) -> Contents:
    """What all records that are left add up to; each comes with its offset and time, in order."""
    listed = list(records)
    contents = Contents()
    upto = 0
    whole = list(_last_snapshot(listed))
    if whole:
        contents.restore(whole)
        upto = whole[0].upto
    for offset, at, record in listed:
        if offset >= upto:
            contents.apply(record, at)
    return contents


def _last_snapshot(records: list[tuple[int, int, Record]]) -> Iterator[Snapshot]:
    """The parts of the last one that is whole."""
    parts: list[Snapshot] = []
    for _, _, record in reversed(records):
        if isinstance(record, Snapshot):
            if record.part == record.parts - 1:
                parts = []
            parts.append(record)
            if record.part == 0 and len(parts) == record.parts:
                return iter(reversed(parts))
    return iter(())
