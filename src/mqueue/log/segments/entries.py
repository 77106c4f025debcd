"""The entries of a commit, ready to be folded."""

from __future__ import annotations

from operator import itemgetter

from mqueue.heart.fold import Appended, Entry
from mqueue.log.segments import commit as envelope
from mqueue.log.segments.commit import Commit
from mqueue.log.told import appended
from mqueue.wire import journal
from mqueue.wire.pack import head_of, unpack


def in_order(data: bytes, offset: int, commit: Commit) -> list[tuple[int, Entry]]:
    """(topic, entry) of a commit by time. Messages that came alone share a frame with later ones: what shares a
    millisecond commutes, but a frame must not come before an event that is older than its last messages."""
    found: list[tuple[int, int, Entry]] = []
    for kind, place, length in envelope.bodies(memoryview(data), offset, commit):
        if kind == envelope.EVENTS:
            found += [(event.at, event.topic, event) for event in journal.decode(data[place : place + length])]
        elif kind == envelope.FRAME:
            found += [(entry[3], entry[0], entry) for entry in _appended(data, place)]
    found.sort(key=_at)
    return [(topic, entry) for _, topic, entry in found]


def _appended(data: bytes, place: int) -> list[Appended]:
    """What a frame says; the head of most says it all."""
    head = head_of(data, place)
    if head.plain:
        stretch = (head.base, head.stop, head.priority, head.deliver_at, head.expires_at)
        return [(head.topic, head.partition, [stretch], head.at, [])]
    frame = unpack(data, place)
    return [appended(frame, stamp) for stamp in range(len(frame.at))]


_at = itemgetter(0)
