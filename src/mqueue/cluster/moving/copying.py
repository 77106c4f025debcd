"""Copies all that a virtual shard has from one server to another, some rows at a time.

While it is live at the source this is done again and again, each time less; once it has left, what came last is copied
the same way. What is only ever added to is copied from where the target ends, so anybody can go on where somebody
stopped, if what is there is of one history with what the source has (`comparing`). The rest (topics, floors, what is
kept below them) is small, and ends as it is at the source.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from mqueue.log.postgres import moving
from mqueue.log.postgres.batch import blocks_of
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.moving import Place
from mqueue.wire import journal as events_as_bytes

CHUNK_BYTES = 4 << 20
"""What goes with one statement, if it is more than one frame."""
CHUNK_ROWS = 2_000
_FRAMES = 1_000
_KEY_BYTES = 100
_LITTLE_BYTES = 1 << 20
_LITTLE_ROWS = 2_000
"""Of a round that copied no more than this, what is left is copied in a moment."""
_ROUNDS_MAX = 20
"""Somebody who publishes faster than we copy is not waited for longer than this."""
_SKEW_MS = 1_000
"""So much earlier than it was asked for may something have been begun that a barrier did not wait for."""
_WAIT_MS = 10_000
"""And so much earlier if it waited meanwhile for another virtual shard: as long as a statement of a node may last."""


class Copied(Struct):
    """How much went over so far."""

    frames: int = 0
    rows: int = 0
    """Of journals, keys and everything else."""
    bytes: int = 0


class Copier:
    """Of one virtual shard. `rate`: at most so many bytes a second, while it is live.

    What the target has is remembered: nobody else writes there. Each question that is saved makes the pause shorter.
    """

    def __init__(self, source: Link, target: Link, vshard: int, copied: Copied, rate: float = 0.0) -> None:
        self._source = source
        self._target = target
        self._vshard = vshard
        self._copied = copied
        self._rate = rate
        self._there: _There | None = None
        self._keys_since = 0
        """Keys that were claimed earlier than this are there."""

    def live(self) -> None:
        """While it is used at the source: until only a little is left."""
        for _ in range(_ROUNDS_MAX):
            bytes_before, rows_before = self._copied.bytes, self._copied.rows
            begun = moving.barrier(self._source, self._vshard) - _SKEW_MS
            self._round()
            self._keys_since = begun
            if self._copied.bytes - bytes_before <= _LITTLE_BYTES and self._copied.rows - rows_before <= _LITTLE_ROWS:
                return

    def rest(self) -> None:
        """When nothing is added at the source any more: all that is missing, and nothing else."""
        self._rate = 0.0
        self._keys_since = max(0, self._keys_since - _WAIT_MS)
        topics, floors, kept = self._round()
        late = moving.late(self._source, topics)
        moving.take_floors(self._target, self._vshard, topics, kept, floors, late)

    def _round(self) -> tuple[list[int], list[tuple[int, ...]], list[tuple[int, int, int]]]:
        """The topics that it has, their floors, and what is kept below them."""
        found = moving.topics(self._source, self._vshard)
        topics = [topic.id for topic in found]
        there = self._there = self._there or _There(self._target, self._vshard, topics)
        if found != there.topics:
            moving.take_topics(self._target, self._vshard, found)
            there.topics = found
        floors = moving.floors(self._source, topics)
        self._frames(topics, {(row[0], row[1]): row[2] for row in floors}, there)
        kept = self._kept(topics, there)
        self._journal(there)
        self._points(there)
        for topic in moving.keyed(self._source, topics, self._keys_since):
            self._keys(topic)
        self._transactions(there)
        return topics, floors, kept

    def _frames(self, topics: Sequence[int], floors: Mapping[tuple[int, int], int], there: _There) -> None:
        ends = moving.ends(self._source, topics)
        for place in ends:
            there.ends[place] = max(there.ends.get(place, 0), floors.get(place, 0))
        while starts := [(*place, there.ends[place]) for place, end in ends.items() if there.ends[place] < end]:
            frames = moving.frames(self._source, starts, _FRAMES, CHUNK_BYTES)
            if not frames:  # retention was faster
                return
            self._take(frames, kept=False)
            for frame in frames:
                there.ends[frame[0], frame[1]] = frame[2] + frame[3]

    def _kept(self, topics: Sequence[int], there: _There) -> list[tuple[int, int, int]]:
        here = moving.kept(self._source, topics)
        missing = [(*place, one[0]) for place, one in here.items() if there.kept.get(place, (0, 0, 0))[1:] != one[1:]]
        for chunk in chunks(missing):
            self._take(moving.kept_frames(self._source, chunk), kept=True)
        there.kept |= here
        return list(here)

    def _take(self, frames: Sequence[moving.Frame], *, kept: bool) -> None:
        moving.take_frames(self._target, self._vshard, frames, kept=kept)
        self._copied.frames += len(frames)
        self._paced(sum(len(frame[7]) + len(frame[8]) for frame in frames))

    def _journal(self, there: _There) -> None:
        while entries := moving.journal(self._source, self._vshard, there.row, CHUNK_ROWS, CHUNK_BYTES):
            blocks = [
                (number, *block)
                for number, entry in enumerate(entries, 1)
                for block in blocks_of(events_as_bytes.decode(entry[4]))
            ]
            moving.take_journal(self._target, self._vshard, entries, blocks)
            there.row = entries[-1][0]
            size = sum(len(entry[4]) for entry in entries)
            self._copied.rows += len(entries)
            self._paced(size)
            if len(entries) < CHUNK_ROWS and size < CHUNK_BYTES:
                return

    def _points(self, there: _There) -> None:
        here = moving.points(self._source, self._vshard)
        for seq, at in sorted(here.items()):
            found = None if there.points.get(seq) == at else moving.point(self._source, self._vshard, seq)
            if found is not None:
                moving.take_point(self._target, self._vshard, seq, *found, sorted(here))
                there.points[seq] = found[0]
                self._copied.rows += 1
                self._paced(len(found[1]))

    def _keys(self, topic: int) -> None:
        since, after = self._keys_since, b""
        while keys := moving.keys(self._source, topic, since, after, CHUNK_ROWS):
            moving.take_keys(self._target, self._vshard, keys)
            since, after = keys[-1][6], keys[-1][7]
            self._copied.rows += len(keys)
            self._paced(_KEY_BYTES * len(keys))
            if len(keys) < CHUNK_ROWS:
                return

    def _transactions(self, there: _There) -> None:
        found = moving.transactions(self._source, self._vshard)
        missing = [one for one in found if one not in there.transactions]
        for start in range(0, len(missing), CHUNK_ROWS):
            moving.take_transactions(self._target, self._vshard, missing[start : start + CHUNK_ROWS])
        there.transactions.update(missing)

    def _paced(self, size: int) -> None:
        self._copied.bytes += size
        if self._rate > 0:
            threading.Event().wait(size / self._rate)


class _There:
    """What the target has, as far as it matters for what is missing."""

    def __init__(self, link: Link, vshard: int, topics: Sequence[int]) -> None:
        self.topics: list[moving.Topic] | None = None
        self.ends = moving.ends(link, topics)
        self.kept = moving.kept(link, topics)
        self.row = moving.last_row(link, vshard)[0]
        self.points = moving.points(link, vshard)
        self.transactions: set[tuple[str, str, int, int]] = set()


def chunks(places: Sequence[Place]) -> Iterator[list[Place]]:
    """As many at a time as one statement may carry; one at least."""
    chunk: list[Place] = []
    size = 0
    for place in places:
        if chunk and (size + place[3] > CHUNK_BYTES or len(chunk) >= CHUNK_ROWS):
            yield chunk
            chunk, size = [], 0
        chunk.append(place)
        size += place[3]
    if chunk:
        yield chunk
