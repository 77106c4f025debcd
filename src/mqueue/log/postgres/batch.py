"""What is handed in between two commits of a virtual shard: events, and frames that get their places with the commit.

Singles that come alone are put together. Who publishes is promised receipts: they are told their offsets when the
commit has given them. Does not know SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import force_setattr

from mqueue.heart.dedup import Claim
from mqueue.heart.marks import BLOCK
from mqueue.log.postgres.appends import ANY_VERSION
from mqueue.log.told import claims_of
from mqueue.model import events as ev
from mqueue.model.errors import Error
from mqueue.model.limits import FRAME_BYTES_MAX, FRAME_ROWS_MAX
from mqueue.model.message import Receipt
from mqueue.wire import journal
from mqueue.wire.frame import Frame
from mqueue.wire.head import HEAD_LENGTH_MIN
from mqueue.wire.pack import pack
from mqueue.wire.rows import Extras

ANYWHERE = -1
"""The partition of what speaks of a topic as a whole."""
_SPANNING = (ev.Leased, ev.Settled, ev.Extended, ev.Voided, ev.Redriven)  # a union would be made anew for each event
_PLACED = (ev.Rescheduled, ev.Duplicated)


class Arrival(Struct):
    """A frame that has its place. `frame` may be read later; `head` tells the order of its rows if that is plain."""

    topic: int
    partition: int
    base: int
    count: int
    id: int
    at: int
    size: int
    head: bytes
    frame: Frame | None = None
    body: bytes = b""
    """As it was appended, for who appended it."""


class Promise(Struct):
    """A frame on its way. `id`: of its first row; `receipts`: what those were answered who published its rows."""

    frame: Frame
    id: int
    receipts: list[tuple[int, Receipt]]
    claims: list[tuple[int, bytes, Claim]]
    """(row, digest of the key, claim) of rows that claim an idempotency key; the claim has no place yet."""
    head: bytes = b""
    body: bytes = b""
    expected: int | None = None
    """The place that it has to get: nobody else appends there."""
    landed: bool = False
    failed: Error | None = None
    version: int = ANY_VERSION
    """Of the topic that it was made for."""
    quorum: bool = False
    """Whether it is stored only if a standby confirms it."""
    kin: list[Promise] = []
    """Those that are stored with it or not at all; empty: it is alone."""

    def seal(self) -> None:
        """As bytes, without a place: that is in columns of the shard."""
        frame = self.frame
        if frame.open:
            frame.seal()
        frame.first_rows, frame.ids, frame.at = [], [], []
        data = pack(frame)
        self.head, self.body = data[:HEAD_LENGTH_MIN], data[HEAD_LENGTH_MIN:]

    def land(self, base: int, at: int) -> Arrival:
        """It has its place."""
        assert self.expected in (None, base), "nobody else appends there"
        frame = self.frame
        frame.stamp(base, self.id, at)
        self.landed = True
        for row, receipt in self.receipts:
            force_setattr(receipt, "offset", base + row)
        place = (frame.topic, frame.partition, base, frame.count, self.id, at, frame.size)
        return Arrival(*place, self.head, frame, self.body)


class Batch:
    """Being gathered, or on its way."""

    __slots__ = ("_open", "at", "claims", "events", "late", "number", "promises", "quorum", "sure", "turns")

    def __init__(self, number: int) -> None:
        self.number = number
        self.events: list[ev.Event] = []
        self.promises: list[Promise] = []
        self.late: list[tuple[int, int, int, int, int]] = []
        """(topic, partition, base, count, time) of frames that count as appended later than they were."""
        self.claims: dict[tuple[int, bytes], tuple[Promise, int, Claim]] = {}
        """By topic and digest of the key: who claims it, with which row."""
        self.turns: dict[int, int] = {}
        """Of each topic, where its messages go that come alone and have no key."""
        self.at = 0
        self.sure = False
        """Whether whoever hands in something now asks for a standby that confirms it. He shares no frame with others:
        they are not to be refused with him."""
        self.quorum = False
        """Whether somebody did."""
        self._open: dict[tuple[int, int, bool], Promise] = {}

    def __bool__(self) -> bool:
        return bool(self.events or self.promises or self.late)

    def put(self, frame: Frame, id: int) -> Promise:
        """A whole frame."""
        promise = Promise(frame, id, [], [], quorum=self.sure)
        self._open.pop((frame.topic, frame.partition, self.sure), None)
        self.promises.append(promise)
        return promise

    def add(self, topic: int, partition: int, payload: bytes, extras: Extras | None, id: int, now: int) -> Promise:
        """One message, its row the last of the frame: with others of its partition whose ids it follows."""
        promise = self._open.get((topic, partition, self.sure))
        frame = None if promise is None else promise.frame
        if promise is None or frame is None or not _takes(frame, promise.id, id):
            frame = Frame.opened(topic, partition, 0)
            promise = self._open[topic, partition, self.sure] = Promise(frame, id, [], [], quorum=self.sure)
            self.promises.append(promise)
        frame.add(payload, extras, id, now)
        return promise

    def claim(self, promise: Promise, rows: range) -> None:
        """Some rows of a promise have idempotency keys."""
        frame = promise.frame
        for key, claim in claims_of(frame, rows):
            row = claim.offset - frame.base
            promise.claims.append((row, key, claim))
            self.claims[frame.topic, key] = promise, row, claim

    def seal(self) -> bytes:
        """Nothing is added any more; the events as bytes."""
        for promise in self.promises:
            promise.seal()
        return journal.encode(self.events)


def bind(promises: list[Promise]) -> None:
    """One call has handed these in: all are stored, or none, and so with whatever they share a frame with."""
    if len(promises) > 1:
        found = {id(one): one for promise in promises for one in promise.kin or [promise] if not one.landed}
        kin = list(found.values())
        for promise in kin:
            promise.kin = kin


def kindred(promises: list[Promise]) -> list[list[Promise]]:
    """The same promises, by what has to be stored together."""
    groups: dict[int, list[Promise]] = {}
    for promise in promises:
        groups.setdefault(id(promise.kin) if promise.kin else id(promise), []).append(promise)
    return list(groups.values())


def _takes(frame: Frame, first: int, id: int) -> bool:
    return frame.count < FRAME_ROWS_MAX and frame.size < FRAME_BYTES_MAX // 2 and id == first + frame.count


def blocks_of(events: Iterable[ev.Event]) -> tuple[tuple[int, int, int], ...]:
    """(topic, partition, block) of everything that events speak of: so a trace need not read all of a journal."""
    return tuple(sorted({place for event in events for place in _blocks(event)}))


def _blocks(event: ev.Event) -> Iterator[tuple[int, int, int]]:
    if isinstance(event, _SPANNING):
        for span in event.spans:
            for block in range(span[1] // BLOCK, (span[2] - 1) // BLOCK + 1):
                yield event.topic, span[0], block
    elif isinstance(event, _PLACED):
        yield event.topic, event.partition, event.offset // BLOCK
    else:
        yield event.topic, ANYWHERE, 0
