"""Files of a lake → record batches, in the order of the log, a row group of each file in memory at a time.

Files of a partition rarely overlap: then one is read after the other. Those that do are merged: as far as every one of
them has been read, rows are put in order and handed on. A message that is there twice comes out twice; whether it may
be is not for a reader to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mqueue.lake.files import STORED, DataFile
from mqueue.lake.place import Place
from mqueue.lake.schema import LAKE
from mqueue.model.errors import Corrupt, Refused

BATCH_ROWS = 1 << 16


def check_columns(columns: Iterable[str] | None) -> list[str]:
    """The names that are asked for; all, if none are."""
    names = list(LAKE.names) if columns is None else list(columns)
    if strange := [name for name in names if name not in LAKE.names]:
        raise Refused(f"column {strange[0]!r:.80} is not in a lake: it has {', '.join(LAKE.names)}", code="bad_column")
    return names


def read(
    place: Place, files: list[DataFile], start: int | None, stop: int | None, names: list[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of files of one partition, by offset, from `start` to before `stop`."""
    for cluster in clusters([file for file in files if file.reaches(start, stop)]):
        streams = [_rows(place, file, start, stop, names) for file in cluster]
        for batch in streams[0] if len(streams) == 1 else merge(streams):
            yield batch.select(names)


def clusters(files: list[DataFile]) -> list[list[DataFile]]:
    """Files in the order of their offsets, those that overlap together."""
    found: list[list[DataFile]] = []
    end = -1
    for file in sorted(files, key=lambda file: (file.first, file.last, file.path)):
        if found and file.first <= end:
            found[-1].append(file)
        else:
            found.append([file])
        end = max(end, file.last)
    return found


def merge(streams: list[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Batches that rise by offset, each stream in itself, as one such stream. Equal offsets keep the streams' order."""
    heads: list[Any] = [next(stream, None) for stream in streams]
    while waiting := [row for row, head in enumerate(heads) if head is not None]:
        bound = min(int(_offsets(heads[row])[-1]) for row in waiting)
        ready = []
        for row in waiting:
            head = heads[row]
            cut = int(np.searchsorted(_offsets(head), bound, side="right"))
            ready.append(head.slice(0, cut))
            # All of the rows at the bound have to be here before it is handed on, or equal offsets lose their order.
            rest: pa.RecordBatch | None = head.slice(cut)
            while rest is not None and not rest.num_rows:
                rest = next(streams[row], None)
                if rest is not None and int(_offsets(rest)[0]) == bound:
                    more = int(np.searchsorted(_offsets(rest), bound, side="right"))
                    ready.append(rest.slice(0, more))
                    rest = rest.slice(more)
            heads[row] = rest
        yield _sorted(ready)


def _sorted(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    rows = pa.concat_batches([batch for batch in batches if batch.num_rows])
    offsets = _offsets(rows)
    return rows.take(pa.array(np.argsort(offsets, kind="stable"))) if np.any(offsets[1:] < offsets[:-1]) else rows


def _rows(
    place: Place, file: DataFile, start: int | None, stop: int | None, names: list[str]
) -> Iterator[pa.RecordBatch]:
    """Of one file: the columns asked for, and the offset."""
    wanted = names if "offset" in names else ["offset", *names]
    try:
        source = place.source(file.path)
    except FileNotFoundError as problem:
        raise Corrupt(f"file {file.path} of the lake {place} is missing", code="file_lost") from problem
    with source, pq.ParquetFile(source) as parquet:
        groups = _groups(parquet, start, stop)
        stored = [name for name in wanted if name in STORED]
        for batch in parquet.iter_batches(batch_size=BATCH_ROWS, row_groups=groups, columns=stored):
            offsets = batch.column("offset").to_numpy()
            first = 0 if start is None else int(np.searchsorted(offsets, start))
            last = len(offsets) if stop is None else int(np.searchsorted(offsets, stop))
            if first < last:
                yield _whole(file, batch.slice(first, last - first), wanted)


def first_since(place: Place, file: DataFile, ms: int) -> int:
    """The first offset of a file that was published at a time or later. Times never fall with the offset."""
    if file.first_ms >= ms:
        return file.first
    for batch in _rows(place, file, None, None, ["timestamp"]):
        row = int(np.searchsorted(batch.column("timestamp").cast(pa.int64()).to_numpy(), ms * 1000))
        if row < batch.num_rows:
            return int(_offsets(batch)[row])
    return file.next


def _groups(parquet: pq.ParquetFile, start: int | None, stop: int | None) -> list[int]:
    """The row groups that may have such offsets."""
    metadata = parquet.metadata
    column = parquet.schema_arrow.get_field_index("offset")
    found = []
    for group in range(metadata.num_row_groups):
        ends = metadata.row_group(group).column(column).statistics
        if (start is None or ends.max >= start) and (stop is None or ends.min < stop):
            found.append(group)
    return found


def _whole(file: DataFile, batch: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    """With the columns that are in the path, in the types of `LAKE`."""
    in_path: dict[str, str | date] = {
        "namespace": file.namespace,
        "topic": file.topic,
        "date": date.fromisoformat(file.day),
    }
    columns = []
    for name in names:
        field = LAKE.field(name)
        if name in in_path:
            columns.append(pa.repeat(pa.scalar(in_path[name], field.type), batch.num_rows))
        else:
            column = batch.column(name)
            columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([LAKE.field(name) for name in names]))


def _offsets(batch: pa.RecordBatch) -> NDArray[np.int64]:
    offsets: NDArray[np.int64] = batch.column("offset").to_numpy()
    return offsets
