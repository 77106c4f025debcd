"""A lake is read in the order of the log, only where it has to be, and as it was at any time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqueue.lake import Lake
from mqueue.lake.reading import merge
from mqueue.lake.schema import LAKE
from mqueue.model.errors import BadTime, Corrupt, NotFound, Refused
from mqueue.model.times import to_datetime
from tests.lake.rows import DAY_MS, START_MS, batch, offsets, put, table
from tests.laws.profile import profile

PLACE = ["partition", "offset"]


def test_order_does_not_depend_on_the_order_of_appends(lake: Lake) -> None:
    put(lake, "test", 1, batch("t", range(20, 30), partition=1), batch("t", range(10, 20)))
    put(lake, "test", 2, batch("t", range(10)), batch("t", range(20), partition=1))
    put(lake, "test", 3, batch("other", range(5)))
    expected = [(0, offset) for offset in range(20)] + [(1, offset) for offset in range(30)]
    assert offsets(lake.scan("default", "t", columns=PLACE)) == expected
    assert offsets(lake.scan("default", "t", 1, 18, 22, columns=PLACE)) == [(1, offset) for offset in range(18, 22)]
    assert offsets(lake.scan("default", "t", start=19, columns=PLACE)) == [p for p in expected if p[1] >= 19]
    assert offsets(lake.scan("default", "t", stop=1, columns=PLACE)) == [(0, 0), (1, 0)]
    assert offsets(lake.scan("default", "t", 7, columns=PLACE)) == []
    assert lake.offsets("default", "t") == {0: 20, 1: 30}
    assert lake.offsets("default", "none") == {}


def test_files_that_overlap_are_merged(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that is there twice comes out twice, side by side."""
    monkeypatch.setattr("mqueue.lake.reading.BATCH_ROWS", 7)
    put(lake, "test", 1, batch("t", range(0, 100, 2)), batch("t", range(1, 100, 2)), batch("t", range(40, 60)))
    put(lake, "test", 2, batch("t", range(100, 110)))
    expected = sorted([*range(110), *range(40, 60)])
    assert offsets(lake.scan("default", "t", columns=PLACE)) == [(0, offset) for offset in expected]
    assert table(lake.scan("default", "t", start=39, stop=61)).equals(
        table([batch("t", [offset for offset in expected if 39 <= offset < 61])])
    )


@profile(short=60, long=2000)
@given(st.lists(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=5), max_size=4), max_size=4))
def test_merging_is_a_stable_sort(streams: list[list[list[int]]]) -> None:
    """Of streams that rise, each cut into batches anywhere: all rows, by offset, then by stream, then as they came."""

    def cut(row: int, stream: list[list[int]]) -> Iterator[pa.RecordBatch]:
        rising = iter(sorted(number for piece in stream for number in piece))
        for piece in stream:
            yield pa.record_batch(
                {"offset": pa.array([next(rising) for _ in piece], pa.int64()), "row": [row] * len(piece)}
            )

    merged = [
        (row["offset"], row["row"])
        for b in merge([cut(row, s) for row, s in enumerate(streams)])
        for row in b.to_pylist()
    ]
    assert merged == sorted((number, row) for row, stream in enumerate(streams) for piece in stream for number in piece)


def test_columns_are_those_asked_for(lake: Lake) -> None:
    rows = batch("t", range(10))
    put(lake, "test", 1, rows)
    for names in (["value"], ["date", "topic", "key"], ["offset", "namespace"], list(LAKE.names)[::-1]):
        (found,) = lake.scan("default", "t", columns=names)
        assert found.equals(rows.select(names))
    with pytest.raises(Refused, match="column 'payload' is not in a lake") as told:
        lake.scan("default", "t", columns=["payload"])
    assert told.value.code == "bad_column"


def test_files_without_such_offsets_are_not_opened(lake: Lake) -> None:
    put(lake, "test", 1, batch("t", range(10)), batch("t", range(10, 20)), batch("t", range(10), partition=1))
    gone = [file for file in lake.files() if file.partition == 1 or file.first == 0]
    for file in gone:
        Path(lake.url, file.path).unlink()
    assert offsets(lake.scan("default", "t", 0, 10, columns=PLACE)) == [(0, offset) for offset in range(10, 20)]
    with pytest.raises(Corrupt, match="is missing") as told:
        list(lake.scan("default", "t"))
    assert told.value.code == "file_lost"


def test_row_groups_without_such_offsets_are_not_read(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqueue.lake.writer.GROUP_ROWS", 100)
    lake.append(lake.writer().write([batch("t", range(n, n + 100)) for n in range(0, 1000, 100)]), "test", 1)
    (file,) = lake.files()
    seen: list[list[int]] = []
    read = pa.parquet.ParquetFile.iter_batches

    def watched(parquet: object, **options: object) -> Iterator[pa.RecordBatch]:
        seen.append(options["row_groups"])  # type: ignore[arg-type]
        return read(parquet, **options)

    monkeypatch.setattr(pa.parquet.ParquetFile, "iter_batches", watched)
    assert len(offsets(lake.scan("default", "t", 0, 250, 410, columns=PLACE))) == 160
    assert seen == [[2, 3, 4]]
    assert (file.rows, file.first, file.last) == (1000, 0, 999)


def test_a_lake_is_read_as_it_was(lake: Lake, opened: Callable[[], Lake]) -> None:
    """By version and by time; what a scan reads is fixed when it is called."""
    versions, times = [lake.version()], []
    for n in range(3):
        put(lake, "test", n, batch("t", range(n * 10, n * 10 + 10)))
        versions.append(lake.version())
        threading.Event().wait(0.02)
        times.append(datetime.now(UTC))
        threading.Event().wait(0.02)
    assert len(set(versions)) == 4
    for n, version in enumerate(versions):
        assert offsets(opened().scan("default", "t", at=version, columns=PLACE)) == [(0, o) for o in range(n * 10)]
        assert lake.offsets("default", "t", at=version) == ({0: n * 10} if n else {})
    for n, time in enumerate(times, 1):
        assert len(table(opened().scan("default", "t", at=time))) == n * 10
    assert lake.files(times[0] - timedelta(days=9)) == []
    assert lake.files(str(times[-1].date() + timedelta(days=2))) == lake.files()
    scan = lake.scan("default", "t", columns=PLACE)
    put(opened(), "test", 9, batch("t", range(90, 99)))
    assert len(offsets(scan)) == 30


def test_a_version_that_never_was(lake: Lake) -> None:
    with pytest.raises(NotFound, match="no version 12345") as told:
        lake.files(12345)
    assert told.value.code == "no_version"
    with pytest.raises(BadTime):
        lake.files("yesterday")


def test_the_first_offset_of_a_time(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqueue.lake.reading.BATCH_ROWS", 3)
    put(lake, "test", 1, batch("t", range(50), step_ms=DAY_MS // 10), batch("t", range(5), partition=1))

    def at(ms: int) -> dict[int, int]:
        return lake.offsets_at("default", "t", to_datetime(START_MS + ms))

    assert at(-1) == {0: 0, 1: 0}
    assert at(3) == {0: 1, 1: 3}
    assert at(DAY_MS) == {0: 10}
    assert at(DAY_MS // 10 * 7 + 1) == {0: 8}
    assert at(50 * DAY_MS) == {}
