"""What a token stands for: which lease, of which topic, and which of its messages an id means.

For callers that have no message in hand. Reads frames, but only those that the lease speaks of; decides nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from itertools import chain

from msgspec import Struct

from mqueue.broker.deliver import TopicDesk
from mqueue.broker.engine import Engine
from mqueue.heart.group import Lease
from mqueue.heart.recent import is_repeated
from mqueue.heart.runs import tight
from mqueue.model.events import Settled, Span
from mqueue.wire.frame import Frame

TOKEN_DIGITS = 32


class Named(Struct):
    """Messages that a call names by their ids."""

    spans: tuple[Span, ...]
    ids: dict[tuple[int, int], int]
    """By (partition, offset)."""
    unknown: list[int]
    """Those that this lease never held."""
    gone: int
    """How many of them it settled in the same way, and retention has dropped since then."""

    def lost(self, places: Collection[tuple[int, int]]) -> tuple[int, ...]:
        """The ids of what is not held, in order."""
        return tuple(sorted([*self.unknown, *(self.ids[place] for place in places)]))


class Grip(Struct):
    """A token that is known: its lease, if that is still open, and what was settled under it lately."""

    desk: TopicDesk
    token: bytes
    lease: Lease | None
    settled: list[Settled]

    def holds(self, spans: Sequence[Span]) -> bool:
        """Whether any of this is held now."""
        lease = self.lease
        return lease is not None and any(lease.find(partition, start, mask) for partition, start, _, mask in spans)

    def last_settled(self, verb: str, now: int) -> int:
        """How many messages the call that ended this lease settled, if it had that verb."""
        last = self.settled[-1] if self.settled else None
        if last is None or not is_repeated(last, verb, now):
            return 0
        told = [last] if verb in ("ack", "release") else [event for event in self.settled if event.at == last.at]
        return sum(mask.bit_count() for event in told for _, _, _, mask in event.spans if is_repeated(event, verb, now))

    def name(self, ids: list[int], verb: str, now: int) -> Named:
        """Where messages are, given their ids in order. Whether the lease still holds them is not asked here."""
        found: dict[int, tuple[Frame, int]] = {}
        for frame in self._frames():
            for id in ids[bisect_left(ids, frame.ids[0]) : bisect_right(ids, frame.id_of(frame.count - 1))]:
                row = frame.row_of(id)
                if row is not None:
                    found[id] = frame, row
            if len(found) == len(ids):
                break
        unknown = [id for id in ids if id not in found]
        gone = min(len(unknown), self._gone(verb, now)) if unknown else 0
        places = {(frame.partition, frame.base + row): id for id, (frame, row) in found.items()}
        return Named(_spans(found.values()), places, unknown[gone:], gone)

    def _frames(self) -> Iterator[Frame]:
        """The frames that the lease speaks of, each once: first of what it holds, then of what was settled."""
        log, topic = self.desk.engine.store.log, self.desk.topic.id
        seen: set[tuple[int, int]] = set()
        last: dict[int, Frame] = {}
        for partition, start, stop in self._stretches():
            known = last.get(partition)
            if known is not None and known.base <= start and stop <= known.stop:
                continue
            for frame in log.frames(topic, partition, start, stop):
                last[partition] = frame
                if (partition, frame.base) not in seen:
                    seen.add((partition, frame.base))
                    yield frame

    def _stretches(self) -> Iterator[tuple[int, int, int]]:
        runs = self.lease.runs if self.lease else ()
        held = ((run.partition, run.start, run.stop) for run in runs)
        return chain(held, ((p, start, stop) for event in self.settled for p, start, stop, _ in event.spans))

    def _gone(self, verb: str, now: int) -> int:
        """How many messages were settled in this way and are not in the log any more: nobody can tell their ids."""
        log, topic = self.desk.engine.store.log, self.desk.topic.id
        count = 0
        for event in self.settled:
            if is_repeated(event, verb, now):
                for partition, start, _, mask in event.spans:
                    while mask:
                        start, _, mask = tight(start, mask)
                        frame = log.frame(topic, partition, start)
                        step = 1 if frame is None else frame.stop - start
                        count += frame is None
                        start, mask = start + step, mask >> step
        return count


def grip_of(engine: Engine, namespace: str, token: str) -> Grip | None:
    """What a token stands for in a namespace; None: nothing, or nothing any more. Call it with the lock held."""
    try:
        known = bytes.fromhex(token) if len(token) == TOKEN_DIGITS else b""
    except ValueError:
        return None
    state = engine.store.state
    lease, settled = state.leases.get(known), state.recent.of(known)
    if lease is None and not settled:
        return None
    topic = state.topics.get(lease.group.topic if lease else settled[-1].topic)
    if topic is None or topic.namespace != namespace:
        return None
    return Grip(TopicDesk(engine, topic), known, lease, settled)


def _spans(found: Collection[tuple[Frame, int]]) -> tuple[Span, ...]:
    """What some rows cover, frame by frame, as tight as can be."""
    masks: dict[tuple[int, int], int] = {}
    for frame, row in found:
        place = (frame.partition, frame.base)
        masks[place] = masks.get(place, 0) | 1 << row
    return tuple((partition, *tight(base, mask)) for (partition, base), mask in masks.items())
