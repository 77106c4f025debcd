"""Compacting a lake: fewer files, the same messages. Runs without Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mqueue.lake import open_lake
from mqueue.lake.schema import LAKE
from mqueue.pipeline.jobs import compact

DAY = datetime(2026, 1, 14, tzinfo=UTC)


def put(lake: Path, topic: str, appends: int, days: int = 1) -> None:
    opened = open_lake(str(lake), create=True)
    for number in range(appends):
        at = DAY + timedelta(days=number % days)
        row: dict[str, Any] = dict.fromkeys(LAKE.names)
        row |= {"topic": topic, "partition": 0, "offset": number, "timestamp": at, "namespace": "default"}
        row |= {"id": number, "priority": 5, "value": b"%d" % number, "date": at.date()}
        files = opened.writer().write([pa.RecordBatch.from_pylist([row], schema=LAKE)])
        opened.append(files, f"test/{topic}", number)


def values(lake: Path, topic: str) -> list[bytes]:
    return [value for batch in open_lake(str(lake)).scan("default", topic) for value in batch["value"].to_pylist()]


def run(lake: Path, *words: str) -> int:
    return compact.main(["--lake", str(lake), "--progress", "none", *words])


def test_small_files_become_large_ones_and_old_ones_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path / "lake", "orders", 12, days=2)
    put(tmp_path / "lake", "others", 3)
    before = values(tmp_path / "lake", "orders")
    assert run(tmp_path / "lake", "--topics", "orders", "--before", "2026-01-15") == 0
    assert "files before   15" in capsys.readouterr().out
    files = open_lake(str(tmp_path / "lake")).files(topic="orders")
    assert sorted(file.rows for file in files) == [1, 1, 1, 1, 1, 1, 6]
    assert run(tmp_path / "lake", "--vacuum", "0s", "--output", "json") == 0
    shown = capsys.readouterr().out
    assert '"files after": 3' in shown
    assert '"files removed": 15' in shown
    assert values(tmp_path / "lake", "orders") == before
    assert len(list((tmp_path / "lake").glob("namespace=*/**/*.parquet"))) == 3


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["--topics", "nope"], 3, "topic 'nope' is not in the lake"),
        (["--before", "soon"], 4, "--before 'soon' is no day"),
        (["--vacuum", "soon"], 4, "'soon' is not a duration"),
    ],
)
def test_bad_words_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, why: str
) -> None:
    put(tmp_path / "lake", "orders", 2)
    assert run(tmp_path / "lake", *words) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line


def test_a_lake_that_is_not_there_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "none") == 3
    assert capsys.readouterr().err.startswith("mqueue: there is no Delta lake at ")
    assert not (tmp_path / "none").exists()
