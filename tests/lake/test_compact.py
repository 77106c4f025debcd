"""Small files become large ones, and nobody who reads can tell. What nobody needs is removed, once it is old."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from mqueue.lake import Compacted, Lake
from mqueue.lake.compacting import bundles, check_same
from mqueue.lake.files import DataFile
from mqueue.model.errors import Corrupt
from tests.lake.rows import DAY_MS, batch, put, table


def many(lake: Lake, count: int = 10) -> pa.Table:
    """A file for each ten messages of two partitions and three days."""
    rows = [
        batch("t", range(n * 10, n * 10 + 10), partition=part, step_ms=DAY_MS * 3 // (count * 10))
        for part in range(2)
        for n in range(count)
    ]
    for version, part in enumerate(rows):
        put(lake, "test", version, part)
    return table(rows)


def test_rows_stay_as_they_are(lake: Lake, opened: Callable[[], Lake]) -> None:
    rows = many(lake)
    put(lake, "test", 99, batch("other", range(10)), batch("other", range(10, 20)))
    before, files = lake.version(), lake.files()
    reader = opened().scan("default", "t")
    began = next(reader)
    told = lake.compact("default", "t")
    assert (told.rows, told.files_after) == (200, 6)
    assert told.bytes_after < told.bytes_before
    assert len(lake.files(namespace="default", topic="t")) == 6
    assert len(lake.files(namespace="default", topic="other")) == 2
    assert table(opened().scan("default", "t")).equals(rows)
    assert table([began, *reader]).equals(rows)
    assert opened().files(before) == files
    assert table(lake.scan("default", "t", at=before)).equals(rows)
    assert (lake.version_of("test"), lake.offsets("default", "t")) == (99, {0: 100, 1: 100})
    assert lake.compact("default", "t") == Compacted()


def test_only_days_before_a_date(lake: Lake) -> None:
    many(lake)
    lake.compact("default", "t", before=date(2026, 1, 2))
    days = [file.day for file in lake.files()]
    assert days.count("2026-01-01") == 2
    assert days.count("2026-01-02") > 4


def test_overlaps_end_and_doubles_stay(lake: Lake) -> None:
    put(lake, "test", 1, batch("t", range(0, 100, 2)), batch("t", range(1, 100, 2)), batch("t", range(40, 60)))
    rows = table(lake.scan("default", "t"))
    lake.compact("default", "t")
    assert table(lake.scan("default", "t")).equals(rows)
    assert len(rows) == 120


def test_an_append_in_between_is_no_conflict(lake: Lake, opened: Callable[[], Lake]) -> None:
    rows = many(lake, 4)
    commit = lake._table.commit
    late = batch("t", range(1000, 1010), partition=2)

    def overtaken(change):
        lake._table.commit = commit
        put(opened(), "other", 1, late)
        return commit(change)

    lake._table.commit = overtaken
    assert lake.compact("default", "t").rows > 0
    assert table(lake.scan("default", "t")).equals(pa.concat_tables([rows, table([late])]))


def test_who_comes_second_changes_nothing(lake: Lake, opened: Callable[[], Lake]) -> None:
    rows = many(lake, 4)
    count = len(lake.files())
    refresh = lake._table.refresh
    other = opened()

    def late():
        if len(_paths(lake)) > count:  # the new files are written, and not in the lake yet
            lake._table.refresh = refresh
            other.compact("default", "t")
        refresh()

    lake._table.refresh = late
    assert lake.compact("default", "t") == Compacted()
    assert table(lake.scan("default", "t")).equals(rows)
    assert len(lake.vacuum(0)) == count
    assert table(opened().scan("default", "t")).equals(rows)


def test_rows_that_would_change_are_left(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that loses a row is found out before the commit."""
    rows = many(lake, 4)
    files = lake.files()
    write = type(lake.writer()).write
    monkeypatch.setattr("mqueue.lake.writer.Writer.write", lambda self, rows: write(self, [b.slice(1) for b in rows]))
    with pytest.raises(Corrupt, match="would change from its row 0 on"):
        lake.compact("default", "t")
    assert lake.files() == files
    assert table(lake.scan("default", "t")).equals(rows)
    assert lake.vacuum(0, dry_run=True) == []


def test_vacuum_removes_what_nobody_needs(lake: Lake, opened: Callable[[], Lake]) -> None:
    rows = many(lake, 4)
    before = lake.version()
    orphans = [file.path for file in lake.writer().write([batch("t", range(5)), batch("x", range(5))])]
    lake.compact("default", "t")
    assert lake.vacuum("1h") == []
    assert lake.vacuum(0, dry_run=True) == sorted({*orphans, *_paths(lake)} - {file.path for file in lake.files()})
    assert table(lake.scan("default", "t", at=before)).equals(rows)
    assert set(orphans) <= set(lake.vacuum(0))
    assert _paths(lake) == {file.path for file in lake.files()}
    assert table(opened().scan("default", "t")).equals(rows)
    put(opened(), "test", 50, batch("t", range(2000, 2010), partition=2))


@pytest.mark.parametrize("format", ["parquet"], indirect=True)
def test_vacuum_removes_drafts_of_the_dead(lake: Lake) -> None:
    put(lake, "test", 1, batch("t", range(3)))
    draft = Path(lake.url, "_manifest/.0123.draft")
    draft.write_bytes(b"{")
    lake.vacuum("1h")
    assert draft.exists()
    os.utime(draft, (1, 1))
    lake.vacuum("1h")
    assert not draft.exists()
    assert lake.offsets("default", "t") == {0: 3}


def _paths(lake: Lake) -> set[str]:
    return {str(path.relative_to(lake.url)) for path in Path(lake.url).glob("namespace=*/*/*/*.parquet")}


def file(first: int, last: int, size: int, partition: int = 0, day: str = "2026-01-01") -> DataFile:
    return DataFile(f"{partition}/{first}-{last}", size, 1, "n", "t", day, partition, first, last, 0, 0)


def test_neighbours_go_together_up_to_the_target() -> None:
    files = [file(0, 9, 40), file(10, 19, 40), file(20, 29, 40), file(30, 39, 100), file(40, 49, 1), file(50, 59, 1)]
    found = bundles(files, None, 100)
    assert {day: [[f.first for f in b] for b in chosen] for day, chosen in found.items()} == {
        "2026-01-01": [[0, 10], [40, 50]]
    }
    assert bundles([file(0, 9, 1), file(0, 9, 1, partition=1), file(10, 19, 1, day="2026-01-02")], None, 100) == {}
    assert bundles(files, date(2026, 1, 1), 100) == {}
    overlapping = [file(0, 50, 90), file(40, 99, 90)]
    assert bundles(overlapping, None, 100) == {"2026-01-01": [overlapping]}


@pytest.mark.parametrize(("old", "new"), [(range(10), range(9)), (range(9), range(10)), (range(10), [*range(9), 7])])
def test_any_difference_is_found(old: range, new: range) -> None:
    before, after = batch("t", old), batch("t", new)
    check_same(iter([before.slice(0, 3), before.slice(3)]), iter([before]), "t")
    with pytest.raises(Corrupt, match=r"would change from its row [089] on"):
        check_same(iter([before.slice(0, 8), before.slice(8)]), iter([after]), "t")
