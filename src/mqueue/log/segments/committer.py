"""What goes into the next commit: everything that was handed in since the last one was cut. No I/O, no locks.

Calls hand in frames and events; a batch is cut between calls, so what one call handed in is never torn apart. A batch
has a number, and a caller waits for the number of the batch that holds what it handed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from mqueue.log.segments import commit as envelope
from mqueue.log.segments.commit import Link
from mqueue.model.events import Event
from mqueue.wire import journal
from mqueue.wire.frame import Frame
from mqueue.wire.pack import pack


class Kept(Struct, frozen=True):
    """A frame to be copied from a segment that is to go."""

    frame: Frame


class Packed(Struct, frozen=True):
    """Bytes that mean something to whoever hands them in, and nothing to the log."""

    body: bytes


Item: TypeAlias = Frame | Kept | Packed | list[Event]


class Batch(Struct):
    number: int
    items: Sequence[Item]
    at: int
    places: list[tuple[Frame, int, int, bool]] = []
    """Once it is packed: each frame, its position in the log, its length, and whether it is a copy."""
    position: int = 0
    end: int = 0


class Committer:
    __slots__ = ("at", "items", "number")

    def __init__(self, at: int) -> None:
        self.number = 1
        """Of the batch that is being gathered."""
        self.items: list[Item] = []
        self.at = at

    def add(self, item: Frame | Kept, now: int) -> None:
        self.items.append(item)
        self.at = max(self.at, now)

    def record(self, events: list[Event]) -> None:
        items = self.items
        if items and isinstance(items[-1], list):
            items[-1] += events
        else:
            items.append(events)
        self.at = max(self.at, events[-1].at)

    def cut(self, *, empty: bool = False) -> Batch | None:
        """The batch: nothing is added to it any more. `empty`: also one with nothing in it."""
        if not self.items and not empty:
            return None
        batch = Batch(self.number, self.items, self.at)
        self.number += 1
        self.items = []
        return batch


def encode(batch: Batch, link: Link, segment: int, epoch: int, synced: int) -> tuple[bytes, Link]:
    """A batch as a commit that goes on from `link`."""
    entries: list[tuple[int, bytes]] = []
    for item in batch.items:
        if isinstance(item, list):
            entries.append((envelope.EVENTS, journal.encode(item)))
        elif isinstance(item, Kept):
            entries.append((envelope.KEPT, pack(item.frame)))
        elif isinstance(item, Packed):
            entries.append((envelope.OTHER, item.body))
        else:
            entries.append((envelope.FRAME, pack(item)))
    data, after, places = envelope.pack(entries, link, segment, epoch, synced, max(batch.at, link.at))
    batch.position, batch.end = link.position, after.position
    batch.places = [
        (item.frame, link.position + place, len(body), True)
        if isinstance(item, Kept)
        else (item, link.position + place, len(body), False)
        for item, place, (_, body) in zip(batch.items, places, entries, strict=True)
        if not isinstance(item, list | Packed)
    ]
    return data, after
