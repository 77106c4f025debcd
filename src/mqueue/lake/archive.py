"""A lake as a broker reads it: archived messages as frames, to be put before those that the log still has.

Whoever reads page by page leaves off in the middle of a file and comes back: a few such readings are kept open, since
to find the place again costs more than the page. Any thread may ask. Does not know what of it the log still has.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from mqueue.lake.lake import Lake
from mqueue.lake.opening import open_lake
from mqueue.model.errors import Error, Unavailable
from mqueue.model.limits import FRAME_ROWS_MAX
from mqueue.model.times import to_datetime
from mqueue.wire.frame import Frame, one_or_many

LOGGER = logging.getLogger("mqueue")

_BODY = {
    "value": "payload",
    "key": "key",
    "headers": "headers",
    "idempotency_key": "idempotency_key",
    "fairness_key": "fairness_key",
}
_COLUMNS = ("offset", "id", "timestamp", "priority", "deliver_at", "expires_at", *_BODY)


_OPEN_MAX = 4
"""Readings that are kept open; each holds a row group at most."""
_PLACES_MAX = 256

_Partition = tuple[str, str, int]


class _Reading(Struct):
    """Frames of a partition from some offset on, as far as they were archived when it was begun."""

    of: _Partition
    frames: Iterator[Frame]
    last: Frame | None = None

    def stands_at(self, offset: int) -> bool:
        return self.last is not None and self.last.base <= offset <= self.last.stop


class LakeArchive:
    def __init__(self, url: str, format: str) -> None:
        self._url = url
        self._format = format
        self._lock = threading.Lock()
        self._left: list[_Reading] = []
        """What somebody left off reading, the last one at the end."""
        self._places: dict[tuple[str, str, int], Mapping[int, int]] = {}

    def frames(self, namespace: str, topic: str, partition: int, start: int) -> Iterator[Frame]:
        """The messages of a partition as archived now, from the frame on that reaches an offset. None has gaps."""
        of = (namespace, topic, partition)
        with self._told():
            reading = self._found(of, start)
            if reading is not None:
                with suppress(Error):  # its files may have gone meanwhile: then it is begun anew
                    for frame in self._read(reading):
                        yield frame
                        start = frame.stop
            batches = self._lake().scan(*of, start, columns=_COLUMNS)
            yield from self._read(_Reading(of, (frame for batch in batches for frame in frames_of(partition, batch))))

    def offsets_at(self, namespace: str, topic: str, at: int, partitions: Collection[int]) -> Mapping[int, int]:
        """By partition the first offset that is archived and was published at a time or later."""
        asked = (namespace, topic, at)
        known = self._places.get(asked, {})
        if all(partition in known for partition in partitions):  # what is archived later lies behind it
            return known
        with self._told():
            found = self._lake().offsets_at(namespace, topic, to_datetime(at))
        with self._lock:
            if len(self._places) >= _PLACES_MAX:
                self._places.clear()
            self._places[asked] = found
        return found

    def _found(self, of: _Partition, start: int) -> _Reading | None:
        """One that was left off here, if it is still open: from now on it is the caller's."""
        with self._lock:
            for number, reading in enumerate(self._left):
                if reading.of == of and reading.stands_at(start):
                    return self._left.pop(number)
        return None

    def _read(self, reading: _Reading) -> Iterator[Frame]:
        """From where it stands, the last frame once more, to its end; if it is left before, it is kept."""
        try:
            if reading.last is not None:
                yield reading.last
            for frame in reading.frames:
                reading.last = frame
                yield frame
        except GeneratorExit:
            with self._lock:
                self._left.append(reading)
                del self._left[:-_OPEN_MAX]
            raise

    def _lake(self) -> Lake:
        return open_lake(self._url, self._format)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Where the lake lies is for the log of the server, not for whoever calls it."""
        try:
            yield
        except Error as problem:
            if problem.code == "no_package":
                raise
            LOGGER.error("the lake cannot be read: %s", problem)
            raise Unavailable(
                f"the lake of this server cannot be read ({problem.code}); its log says why", code="lake_unreachable"
            ) from problem


def frames_of(partition: int, batch: pa.RecordBatch) -> Iterator[Frame]:
    """Rows that rise by offset as frames: a new one where an offset is missing, or when one is full.

    Of several rows with one offset the one with the highest id counts: that topic was made after the other.
    """
    offsets, ids = _numbers(batch, "offset"), _numbers(batch, "id")
    if np.any(offsets[1:] == offsets[:-1]):
        order = np.lexsort((ids, offsets))
        order = order[np.append(offsets[order][1:] != offsets[order][:-1], True)]
        batch, offsets = batch.take(pa.array(order)), offsets[order]
    cuts = np.flatnonzero(np.diff(offsets) != 1) + 1
    for start, stop in zip([0, *cuts.tolist()], [*cuts.tolist(), len(offsets)], strict=True):
        for first in range(start, stop, FRAME_ROWS_MAX):
            last = min(stop, first + FRAME_ROWS_MAX)
            yield _frame(partition, int(offsets[first]), batch.slice(first, last - first))


def _frame(partition: int, base: int, batch: pa.RecordBatch) -> Frame:
    body = {own: batch.column(name) for name, own in _BODY.items()}
    there = {own: column for own, column in body.items() if own == "payload" or column.null_count < len(column)}
    numbers = [one_or_many(_numbers(batch, name)) for name in ("priority", "deliver_at", "expires_at")]
    frame = Frame.of_batch(0, partition, pa.RecordBatch.from_pydict(there), *numbers)
    frame.base = base
    ids, at = _numbers(batch, "id"), _numbers(batch, "timestamp")
    stamps = np.flatnonzero((np.diff(ids, prepend=ids[0] - 2) != 1) | (np.diff(at, prepend=at[0]) != 0))
    frame.first_rows, frame.ids, frame.at = stamps.tolist(), ids[stamps].tolist(), at[stamps].tolist()
    return frame


def _numbers(batch: pa.RecordBatch, name: str) -> NDArray[np.int64]:
    """A column of numbers, times as milliseconds; 0 where there is none."""
    column = batch.column(name)
    is_time = pa.types.is_timestamp(column.type)
    values: NDArray[np.int64] = column.cast(pa.int64()).fill_null(0).to_numpy()
    return values // 1000 if is_time else values
