"""Frames as the columns of a view: whole columns, only those that are asked for, and nothing per row in Python.

Knows Arrow and frames; neither Spark nor the server. Small frames are put together: a batch of a few rows costs Spark
as much as one of thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqueue.lake.schema import COLUMNS, LOG_TIME, TIME
from mqueue.pipeline.schema import STORY, arrow_schema
from mqueue.wire.arrow import constant
from mqueue.wire.frame import Frame
from mqueue.wire.rows import Numbers
from mqueue.wire.story import story_columns

BATCH_ROWS = 10_000
BATCH_BYTES = 8 << 20
"""A batch is full when it has so many rows, or so many bytes, or one frame that has more."""

_BODY = {"key": "key", "value": "payload", "headers": "headers"}
_BODY |= {"idempotency_key": "idempotency_key", "fairness_key": "fairness_key"}


class Columns:
    """Which columns are made of the frames of one partition, in which order."""

    def __init__(self, view: str, names: list[str], namespace: str, topic: str, partition: int) -> None:
        self.schema = arrow_schema(view, names)
        self._fixed: dict[str, str | int] = {
            "namespace": namespace,
            "topic": topic,
            "partition": partition,
            "timestampType": LOG_TIME,
        }

    def batches(self, frames: Iterable[Frame], priorities: tuple[int, ...] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows of these frames, in their order; with `priorities`, those of these alone."""
        wanted = None if priorities is None else np.array(priorities, np.int64)
        gathered: list[Frame] = []
        rows = size = 0
        for frame in frames:
            if wanted is not None and isinstance(frame.priority, int) and frame.priority not in wanted:
                continue
            gathered.append(frame)
            rows += frame.count
            size += frame.size
            if rows >= BATCH_ROWS or size >= BATCH_BYTES:
                yield self._batch(gathered, rows, wanted)
                gathered, rows, size = [], 0, 0
        if gathered:
            yield self._batch(gathered, rows, wanted)

    def _batch(self, frames: list[Frame], rows: int, wanted: NDArray[np.int64] | None) -> pa.RecordBatch:
        story = _story(frames) if any(name in STORY for name in self.schema.names) else {}
        columns = [
            story[name] if name in story else self._column(name, type, frames, rows)
            for name, type in zip(self.schema.names, self.schema.types, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        if wanted is None or all(isinstance(frame.priority, int) for frame in frames):
            return batch
        return batch.filter(pa.array(np.isin(_gathered(frames, _priorities), wanted)))

    def _column(self, name: str, type: pa.DataType, frames: list[Frame], rows: int) -> pa.Array:
        if name in _BODY:
            return _joined_body(frames, _BODY[name], type, rows)
        if name in self._fixed:
            return constant(self._fixed[name], rows, type)
        if name in _NUMBERS:
            return pa.array(_gathered(frames, _NUMBERS[name]), type)
        return _time(frames, name) if name in _TIMES else pa.nulls(rows, type)


def _story(frames: list[Frame]) -> dict[str, pa.Array]:
    return story_columns(_joined_body(frames, "headers", COLUMNS["headers"], sum(frame.count for frame in frames)))


def _joined_body(frames: list[Frame], name: str, type: pa.DataType, rows: int) -> pa.Array:
    places = [frame.batch.schema.get_field_index(name) for frame in frames]
    if max(places) < 0:
        return constant(None, rows, type)
    parts = zip(frames, places, strict=True)
    columns = [frame.batch.column(n) if n >= 0 else pa.nulls(frame.count, type) for frame, n in parts]
    return columns[0] if len(columns) == 1 else pa.concat_arrays(columns)


def _gathered(frames: list[Frame], column: Callable[[Frame], NDArray[np.int64]]) -> NDArray[np.int64]:
    return column(frames[0]) if len(frames) == 1 else np.concatenate([column(frame) for frame in frames])


def _offsets(frame: Frame) -> NDArray[np.int64]:
    return np.arange(frame.base, frame.stop, dtype=np.int64)


def _priorities(frame: Frame) -> NDArray[np.int64]:
    return _numbers(frame, frame.priority)


def _numbers(frame: Frame, numbers: Numbers) -> NDArray[np.int64]:
    return np.full(frame.count, numbers, np.int64) if isinstance(numbers, int) else np.asarray(numbers, np.int64)


_NUMBERS: dict[str, Callable[[Frame], NDArray[np.int64]]] = {
    "offset": _offsets,
    "id": Frame.column_ids,
    "priority": _priorities,
}
_TIMES: dict[str, Callable[[Frame], NDArray[np.int64]]] = {
    "timestamp": Frame.column_at,
    "deliver_at": lambda frame: _numbers(frame, frame.deliver_at),
    "expires_at": lambda frame: _numbers(frame, frame.expires_at),
}


def _time(frames: list[Frame], name: str) -> pa.Array:
    """Milliseconds as a column of times. 0 is no time, but for when a message was published."""
    if name != "timestamp" and all(isinstance(getattr(f, name), int) and not getattr(f, name) for f in frames):
        return constant(None, sum(frame.count for frame in frames), TIME)
    ms = _gathered(frames, _TIMES[name])
    return pa.array(ms * 1000, TIME, mask=None if name == "timestamp" else ms == 0)
