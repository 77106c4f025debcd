"""What is no lake, or none of this kind, is refused in a sentence, and left as it was."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from mqueue.lake import FORMATS, Lake, open_lake
from mqueue.lake.schema import LAKE, LAKE_PARTITIONS
from mqueue.model.errors import Corrupt, NotFound, Refused
from tests.lake.rows import batch, put


def test_a_lake_that_is_not_there(tmp_path: Path, format: str) -> None:
    for place in (tmp_path / "none", tmp_path):
        with pytest.raises(NotFound, match="there is no") as told:
            open_lake(str(place), format)
        assert told.value.code == "no_lake"
    assert list(tmp_path.iterdir()) == []


def test_a_format_that_is_not_known(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="format 'orc' is not known: a lake is one of delta, iceberg, parquet") as told:
        open_lake(str(tmp_path), "orc", create=True)
    assert told.value.code == "bad_format"
    with pytest.raises(Refused, match="is no place"):
        open_lake(" ")


def test_a_lake_of_another_format(lake: Lake, format: str) -> None:
    other = next(name for name in FORMATS if name != format)
    with pytest.raises(Refused, match=f"is {format}, not {other}"):
        open_lake(lake.url, other, create=True)


def test_a_directory_of_somebody_else(tmp_path: Path, format: str) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"")
    with pytest.raises(Refused, match="holds other files") as told:
        open_lake(str(tmp_path), format, create=True)
    assert told.value.code == "not_a_lake"
    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]


@pytest.mark.parametrize("format", ["iceberg", "parquet"], indirect=True)
def test_only_delta_is_elsewhere(format: str) -> None:
    with pytest.raises(Refused, match="a directory of this machine"):
        open_lake("mock://bucket/lake", format)


def test_a_delta_table_with_other_columns(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "a"), pa.table({"x": [1]}))
    DeltaTable.create(str(tmp_path / "b"), LAKE, partition_by=["topic"])
    for name in "ab":
        with pytest.raises(Refused, match="has other columns than a lake") as told:
            open_lake(str(tmp_path / name))
        assert told.value.code == "not_a_lake"


@pytest.mark.parametrize("feature", ["deletionVectors", "columnMapping"])
def test_a_delta_table_that_is_not_plain_files(tmp_path: Path, feature: str) -> None:
    table = DeltaTable.create(str(tmp_path), LAKE, partition_by=list(LAKE_PARTITIONS))
    version = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [feature], "writerFeatures": [feature]}
    change = tmp_path / "_delta_log" / f"{table.version() + 1:020d}.json"
    change.write_text(json.dumps({"protocol": version}) + "\n")
    with pytest.raises(Refused, match=feature) as told:
        open_lake(str(tmp_path))
    assert told.value.code == "not_a_lake"


def test_what_a_delta_table_needs_outlasts_a_loss_of_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """delta-rs leaves its log to the cache of the machine: a checkpoint that is torn would hide all that is there."""
    from mqueue.lake import delta, place

    synced: set[Path] = set()
    monkeypatch.setattr(delta, "sync", lambda path: synced.add(Path(path)))
    monkeypatch.setattr(place, "sync", lambda path: synced.add(Path(path)))
    root = tmp_path / "new" / "lake"
    lake = open_lake(str(root), "delta", create=True)
    for version in range(101):
        lake.append([], "app", version)
    made = {*(root / "_delta_log").iterdir()}
    assert any("checkpoint.parquet" in path.name for path in made)
    assert made | {root / "_delta_log", root, root.parent, tmp_path} <= synced


def test_a_delta_file_that_others_wrote(tmp_path: Path) -> None:
    """Another engine put files of several partitions together: they no longer say what they hold."""
    lake = open_lake(str(tmp_path / "lake"), create=True)
    put(lake, "test", 1, batch("t", range(10)), batch("t", range(10), partition=1))
    DeltaTable(lake.url).optimize.compact()
    with pytest.raises(Refused, match="was written by others") as told:
        lake.files()
    assert told.value.code == "not_a_lake"


def test_a_history_that_is_shorter(tmp_path: Path) -> None:
    """Delta forgets old commits when it makes a checkpoint: what was then is told, not guessed."""
    lake = open_lake(str(tmp_path / "lake"), create=True)
    put(lake, "test", 1, batch("t", range(10)))
    put(lake, "test", 2, batch("t", range(10, 20)))
    DeltaTable(lake.url).create_checkpoint()
    for version in (0, 1):
        Path(lake.url, f"_delta_log/{version:020d}.json").unlink()
    put(lake, "other", 1, batch("t", range(20, 30)))
    assert lake.offsets("default", "t") == {0: 30}
    assert lake.version_of("test") == 2
    for at in (1, "2020-01-01"):
        with pytest.raises(NotFound, match="its log is kept for") as told:
            lake.files(at)
        assert told.value.code == "no_version"
    with pytest.raises(NotFound, match="no history back to"):
        lake.vacuum("365d")
    Path(lake.url, "_delta_log/00000000000000000002.json").unlink()
    assert (lake.version_of("test"), lake.note_of("test")) == (2, None)


def test_an_iceberg_table_with_other_columns(tmp_path: Path) -> None:
    catalog = SqlCatalog("mqueue", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("mqueue")
    with pytest.raises(NotFound, match="there is no Iceberg lake"):
        open_lake(str(tmp_path), "iceberg")
    catalog.create_table("mqueue.messages", pa.schema([("x", pa.int64())]))
    with pytest.raises(Refused, match="has other columns than a lake"):
        open_lake(str(tmp_path), "iceberg")


def test_a_catalog_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_bytes(b"not a database, and long enough to be read as one" * 40)
    with pytest.raises(Corrupt, match="is no catalog of a lake"):
        open_lake(str(tmp_path), "iceberg")


@pytest.mark.parametrize(
    ("format", "name"),
    [("delta", "_delta_log/00000000000000000001.json"), ("parquet", "_manifest/00000000000000000001.json")],
    indirect=["format"],
)
def test_a_list_that_is_damaged(lake: Lake, format: str, name: str) -> None:
    put(lake, "test", 1, batch("t", range(3)))
    Path(lake.url, name).write_bytes(b"{\xff")
    with pytest.raises(Corrupt) as told:
        open_lake(lake.url, format)
    assert told.value.code == "unreadable_lake"


def test_a_manifest_of_other_columns(tmp_path: Path) -> None:
    lake = open_lake(str(tmp_path), "parquet", create=True)
    Path(lake.url, "_manifest/00000000000000000000.json").write_text('{"at_ms": 1, "columns": ["x int64"]}')
    with pytest.raises(Refused, match="has other columns"):
        open_lake(lake.url, "parquet")


@pytest.mark.parametrize(("format", "package"), [("delta", "deltalake"), ("iceberg", "pyiceberg")], indirect=["format"])
def test_a_package_that_is_missing(tmp_path: Path, format: str, package: str) -> None:
    script = f"""
import sys
import threading
sys.modules[{package!r}] = None
from mqueue.lake import open_lake
from mqueue.model.errors import Unavailable
try:
    open_lake({str(tmp_path)!r}, {format!r}, create=True)
except Unavailable as problem:
    assert problem.code == "no_package" and not problem.retryable
    print(problem)
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert f"needs the package {package}: pip install 'mqueue[lake]'" in told.stdout


def test_many_make_a_lake_at_once(tmp_path: Path, format: str) -> None:
    failed: list[BaseException] = []
    begin = threading.Barrier(4)

    def work(row: int) -> None:
        try:
            begin.wait(60)
            lake = open_lake(str(tmp_path / "lake"), format, create=True)
            put(lake, f"app-{row}", 1, batch("t", range(row * 10, row * 10 + 10)))
        except BaseException as problem:
            failed.append(problem)

    threads = [threading.Thread(target=work, args=(row,)) for row in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failed, failed
    assert open_lake(str(tmp_path / "lake"), format).offsets("default", "t") == {0: 40}


def test_other_engines_see_the_same(lake: Lake, format: str) -> None:
    """A table is what its format says: those who know the format, and not us, read the same rows."""
    rows = batch("t", range(50))
    put(lake, "test", 1, rows)
    if format == "delta":
        found = DeltaTable(lake.url).to_pyarrow_table()
    elif format == "iceberg":
        url = f"sqlite:///{lake.url}/catalog.db"
        found = SqlCatalog("mqueue", uri=url).load_table("mqueue.messages").scan().to_arrow()
    else:
        found = pq.read_table(lake.url, schema=LAKE, partitioning="hive")
    found = found.cast(pa.schema([LAKE.field(name) for name in found.schema.names])).sort_by("offset")
    for name in LAKE.names:
        values = found[name].to_pylist(), rows.column(name).to_pylist()
        if (format, name) == ("iceberg", "headers"):  # pyiceberg takes a list that is null for an empty one
            values = tuple([value or [] for value in column] for column in values)
        assert values[0] == values[1], name
