"""Where in the log it says what happened to a message: each segment has an index of that.

The index of a segment that is still written grows when somebody asks; when the segment is sealed it goes to a file.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from mqueue.log.segments import commit as envelope
from mqueue.log.segments import index as files
from mqueue.log.segments.commit import Commit, read
from mqueue.log.segments.disk import Disk
from mqueue.log.segments.index import ANYWHERE, BLOCK, Index, Indexer, Table
from mqueue.log.segments.segment import Segment
from mqueue.log.segments.shelf import Shelf
from mqueue.model.events import Event
from mqueue.wire import journal

_CHUNK_BYTES = 1 << 20
_TABLES_AT_HAND = 16


class History:
    """Has a lock of its own, held for a chunk at a time: whoever asks need not hold the one of the log."""

    def __init__(self, disk: Disk, uuid: bytes, shelf: Shelf, indexers: dict[int, Indexer]) -> None:
        self._disk = disk
        self._uuid = uuid
        self._shelf = shelf
        self._indexers = indexers
        """Of the segments that have no file, by their start."""
        self._tables: OrderedDict[int, Table] = OrderedDict()
        self._lock = threading.Lock()

    def batches(self, topic: int, partition: int, start: int, stop: int, end: int) -> Iterator[list[Event]]:
        """The events of each commit before `end` that may speak of the messages of a range, oldest first."""
        for segment in list(self._shelf.segments):
            if segment.start >= end:
                return
            table = self._events(segment)
            mine = table[table["topic"] == topic]
            within = (mine["block"] >= start // BLOCK) & (mine["block"] <= (stop - 1) // BLOCK)
            here = (mine["partition"] == partition) & within | (mine["block"] == ANYWHERE)
            for position in np.unique(mine["position"][here]).tolist():
                found = self._shelf.commit(position) if position < end else None
                if found is not None:
                    yield from _events_of(*found)

    def file(self, segment: Segment) -> None:
        """Write the index of a segment to its file; of the last one when the log is closed, so far as it goes."""
        while not self._grow(segment):
            pass
        with self._lock:
            if segment.indexed or segment not in self._shelf.segments:
                return
            files.save(self._disk, self._uuid, self._indexer(segment).index())
            if segment.sealed:
                segment.indexed = True
                del self._indexers[segment.start]
                self._shelf.rest(segment)

    def forget(self, segment: Segment) -> None:
        """A segment went away."""
        with self._lock:
            self._tables.pop(segment.start, None)
            self._indexers.pop(segment.start, None)
        with suppress(FileNotFoundError):
            self._disk.unlink(files.name_of(segment.start))

    def _events(self, segment: Segment) -> Table:
        while not segment.indexed and not self._grow(segment):
            pass
        with self._lock:
            if not segment.indexed and segment in self._shelf.segments:
                return self._indexer(segment).events()
            table = self._tables.get(segment.start)
            if table is None:
                index = self._load(segment)
                table = np.empty(0, files.EVENTS) if index is None else index.events.copy()
                self._tables[segment.start] = table
                if len(self._tables) > _TABLES_AT_HAND:
                    self._tables.popitem(last=False)
            return table

    def _load(self, segment: Segment) -> Index | None:
        try:
            return files.load(self._disk, self._uuid, segment.start)
        except FileNotFoundError:  # the segment has gone meanwhile
            return None

    def _indexer(self, segment: Segment) -> Indexer:
        indexer = self._indexers.get(segment.start)
        if indexer is None:
            indexer = self._indexers[segment.start] = Indexer(segment.start, segment.first)
        return indexer

    def _grow(self, segment: Segment) -> bool:
        """Take in a little more of a segment; whether that was all of it."""
        with self._lock:
            if segment.indexed or segment not in self._shelf.segments:
                return True
            indexer = self._indexer(segment)
            before, end = indexer.link.position, segment.end
            if before >= end:
                return True
            place = segment.place(before)
            data = self._shelf.read(segment, min(_CHUNK_BYTES, segment.place(end) - place), place)
            self._take_in(indexer, segment, data, before)
            if indexer.link.position == before:
                found = self._shelf.commit(before)  # one that is larger than a chunk
                if found is None:
                    return True  # a hole: what is behind it was seen when the log was opened
                indexer.add(found[0], 0, found[1])
            return indexer.link.position >= end

    def _take_in(self, indexer: Indexer, segment: Segment, data: bytes, start: int) -> None:
        view = memoryview(data)
        while True:
            position = indexer.link.position
            commit = read(view, position - start, segment.start, position)
            if commit is None:
                return
            indexer.add(data, position - start, commit)


def _events_of(data: bytes, commit: Commit) -> Iterator[list[Event]]:
    for kind, place, length in envelope.bodies(memoryview(data), 0, commit):
        if kind == envelope.EVENTS:
            yield journal.decode(data[place : place + length])
