"""The benchmarks of the pipeline: what they compare with is right. How fast anything is, is not looked at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.spark import BENCHMARKS, main
from benchmarks.spark_place import BYTES, all_there, numbers_of, payloads
from benchmarks.spark_plain import TupleReader
from mqueue.lake.schema import COLUMNS


def test_rows_are_told_apart_by_what_is_in_them() -> None:
    rows = payloads(5, 1005)
    assert {len(row) for row in rows.to_pylist()} == {BYTES}
    assert numbers_of(rows.slice(10, 500)).tolist() == list(range(15, 515))
    all_there([payloads(0, 300), payloads(700, 1000), payloads(300, 700)], 1000)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([payloads(0, 999)], "1 messages are missing, 0 came twice"),
        ([payloads(0, 1000), payloads(7, 9)], "0 messages are missing, 2 came twice"),
    ],
)
def test_what_is_lost_or_doubled_is_told(given: list[pa.Array], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        all_there(given, 1000)


def test_one_other_bit_is_told() -> None:
    rows = payloads(0, 10)
    cells = np.frombuffer(rows.buffers()[2], np.uint8).copy()
    cells[555] ^= 1
    changed = pa.Array.from_buffers(pa.binary(), 10, [None, rows.buffers()[1], pa.py_buffer(cells)])
    with pytest.raises(ValueError, match="other bytes"):
        all_there([changed], 10)
    with pytest.raises(ValueError, match="another length"):
        numbers_of(pa.array([b"x"], pa.binary()))


def test_tuples_are_as_many_as_asked_for() -> None:
    reader = TupleReader(25_001, ("value", "offset", "key"))
    rows = [row for part in reader.partitions() for row in reader.read(part)]
    assert len(rows) == 25_001
    assert {(len(row[0]), row[2]) for row in rows} == {(BYTES, None)}
    every = TupleReader(2, tuple(COLUMNS))
    assert [len(row) for part in every.partitions() for row in every.read(part)] == [len(COLUMNS)] * 2


def test_list_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "spark.json"
    assert main(["--list", "--json", str(path)]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [one.name for one in BENCHMARKS]
    assert main(["--only", "nothing-like-this", "--json", str(path)]) == 2
    assert not path.exists()
