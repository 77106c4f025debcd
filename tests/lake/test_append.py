"""What is put into a lake is there once, whole, whoever else writes and whoever dies."""

from __future__ import annotations

import pickle
import random
import string
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from mqueue.lake import Lake, open_lake
from mqueue.lake.table import Change, Raced
from mqueue.model.errors import BadFrame, BadName, Conflict, Refused, Unavailable
from mqueue.model.limits import NAME_LENGTH_MAX
from tests.lake.rows import DAY_MS, batch, offsets, put, table

ROOT = Path(__file__).resolve().parents[2]
LETTERS = string.ascii_letters + string.digits + "._-"


def test_what_comes_out_is_what_went_in(lake: Lake, opened: Callable[[], Lake]) -> None:
    topics = [
        LETTERS,
        LETTERS[::-1] * 3,
        "t" * NAME_LENGTH_MAX,
        "1",
        "2026-01-01",
        "true",
        "__HIVE_DEFAULT_PARTITION__",
    ]
    batches = {topic: batch(topic, range(100), partition=row) for row, topic in enumerate(topics)}
    lake.append(lake.writer().write(batches.values()), "test", 1)
    for topic, rows in batches.items():
        assert table(opened().scan("default", topic)).equals(table([rows]))
    assert lake.topics() == sorted(("default", topic) for topic in topics)


def test_namespaces_stand_for_themselves(lake: Lake) -> None:
    mine, yours = batch("t", range(5), namespace="mine"), batch("t", range(9), namespace="n" * 245)
    put(lake, "test", 1, mine, yours)
    assert table(lake.scan("mine", "t")).equals(table([mine]))
    assert table(lake.scan("n" * 245, "t")).equals(table([yours]))
    assert table(lake.scan("other", "t")).num_rows == 0


def test_a_version_is_appended_once(lake: Lake, opened: Callable[[], Lake]) -> None:
    files = lake.writer().write([batch("t", range(10))])
    note = {"offsets": {"t": {"0": 10}}, "text": "ä"}
    first = lake.append(files, "archive", 7, note)
    assert first.published
    again = lake.writer().write([batch("t", range(10))])
    for version in (7, 6, 0):
        told = opened().append(again, "archive", version, {"lost": True})
        assert (told.published, told.version) == (False, first.version)
    assert len(table(lake.scan("default", "t"))) == 10
    assert (lake.version_of("archive"), lake.note_of("archive")) == (7, note)
    assert (lake.version_of("other"), lake.note_of("other")) == (None, None)
    assert lake.append(again, "other", 0).published
    assert (lake.version_of("archive"), lake.note_of("archive")) == (7, note)


def test_an_append_of_nothing_moves_the_app_on(lake: Lake, opened: Callable[[], Lake]) -> None:
    assert lake.append([], "archive", 0, {"at": 1}).published
    assert not opened().append([], "archive", 0).published
    assert opened().append([], "archive", 1, {"at": 2}).published
    assert (lake.version_of("archive"), lake.note_of("archive"), lake.files()) == (1, {"at": 2}, [])


@pytest.mark.parametrize("format", ["delta", "parquet"], indirect=True)
def test_a_note_is_found_behind_many_others(lake: Lake) -> None:
    lake.append([], "quiet", 3, {"n": 1})
    for version in range(70):
        lake.append([], "busy", version)
    assert (lake.version_of("quiet"), lake.note_of("quiet")) == (3, {"n": 1})
    assert lake.version_of("busy") == 69


def test_those_who_race_lose_nothing(opened: Callable[[], Lake]) -> None:
    """Each has an app of his own, and all of them race for the versions of one that they share."""
    writers, versions = 4, 5
    opened()
    published: list[int] = []
    failed: list[BaseException] = []

    def work(row: int) -> None:
        try:
            lake = opened()
            for version in range(versions):
                mine = lake.writer().write([batch(f"own-{row}", range(version * 10, version * 10 + 10))])
                assert lake.append(mine, f"app-{row}", version).published
                shared = lake.writer().write([batch("shared", range(version * 10, version * 10 + 10))])
                if lake.append(shared, "shared", version).published:
                    published.append(version)
        except BaseException as problem:
            failed.append(problem)

    threads = [threading.Thread(target=work, args=(row,)) for row in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert not failed, failed
    lake = opened()
    everything = [(0, offset) for offset in range(versions * 10)]
    for topic in [*(f"own-{row}" for row in range(writers)), "shared"]:
        assert offsets(lake.scan("default", topic, columns=["partition", "offset"])) == everything
    assert len(published) == len(set(published))
    assert lake.version_of("shared") == versions - 1


CHILD = """
import os, sys
from mqueue.lake import open_lake
from tests.lake.rows import batch
url, format, death = sys.argv[1:]
lake = open_lake(url, format, create=True)
files = lake.writer().write([batch("t", range(100)), batch("u", range(100))])
if death == "before":
    lake._table.commit = lambda change: os._exit(9)
elif death == "after":
    commit = lake._table.commit
    lake._table.commit = lambda change: (commit(change), os._exit(9))
lake.append(files, "archive", 1, {"n": 1})
"""


def start(lake: Lake, format: str, death: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", CHILD, lake.url, format, death]
    return subprocess.Popen(command, cwd=ROOT)


@pytest.mark.parametrize("death", ["before", "after"])
def test_a_death_loses_nothing_and_doubles_nothing(lake: Lake, format: str, death: str) -> None:
    """A process dies between its files and the commit, or right behind the commit; then it is all done again."""
    assert start(lake, format, death).wait(240) == 9
    assert len(table(lake.scan("default", "t"))) == (0 if death == "before" else 100)
    orphans = lake.vacuum(0, dry_run=True)
    assert len(orphans) == (2 if death == "before" else 0)
    files = lake.writer().write([batch("t", range(100)), batch("u", range(100))])
    assert lake.append(files, "archive", 1, {"n": 1}).published is (death == "before")
    assert lake.version_of("archive") == 1
    for topic in "tu":
        assert table(lake.scan("default", topic)).equals(table([batch(topic, range(100))]))
    assert len(lake.vacuum(0)) == 2
    assert table(lake.scan("default", "t")).equals(table([batch("t", range(100))]))


def test_processes_race_for_one_version(lake: Lake, format: str) -> None:
    children = [start(lake, format, "never") for _ in range(2)]
    assert [child.wait(240) for child in children] == [0, 0]
    assert table(lake.scan("default", "t")).equals(table([batch("t", range(100))]))
    assert (lake.version_of("archive"), lake.note_of("archive")) == (1, {"n": 1})


def test_a_file_is_one_partition_of_one_day_in_order(lake: Lake) -> None:
    """However the rows come, and wherever the writer was pickled to."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    numbers = list(range(300))
    random.Random(seed).shuffle(numbers)
    rows = [batch("t", numbers[i : i + 50], partition=i % 3, step_ms=DAY_MS // 100) for i in range(0, 300, 50)]
    writer = pickle.loads(pickle.dumps(lake.writer()))
    files = writer.write(rows)
    assert sum(file.rows for file in files) == 300
    lake.append(files, "test", 1)
    assert {(file.partition, file.day) for file in files} == {
        (part, day) for part in range(3) for day in ("2026-01-01", "2026-01-02", "2026-01-03")
    }
    expected = sorted((i % 3, number) for i in range(0, 300, 50) for number in numbers[i : i + 50])
    assert offsets(lake.scan("default", "t", columns=["partition", "offset"])) == expected
    assert [file for file in lake.files() if file.last_ms - file.first_ms >= DAY_MS] == []
    assert lake.files() == sorted(files, key=lambda file: (file.partition, file.first))


def test_files_are_bounded(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqueue.lake.writer.GROUP_ROWS", 100)
    monkeypatch.setattr("mqueue.lake.writer.HELD_BYTES", 1)
    monkeypatch.setattr("mqueue.lake.writer.OPEN_FILES", 2)
    rows = [batch(f"t{n % 4}", range(n * 60, n * 60 + 60)) for n in range(20)]
    files = lake.writer(file_bytes=20_000).write(rows)
    assert len(files) > 8
    assert max(file.size for file in files) < 60_000
    lake.append(files, "test", 1)
    for topic in range(4):
        wanted = table(part for n, part in enumerate(rows) if n % 4 == topic)
        assert table(lake.scan("default", f"t{topic}")).equals(wanted)


def test_a_writer_that_fails_leaves_nothing(lake: Lake) -> None:
    def rows():
        yield batch("t", range(10))
        raise RuntimeError("the log is gone")

    with pytest.raises(RuntimeError):
        lake.writer().write(rows())
    assert lake.vacuum(0, dry_run=True) == []


def test_rows_that_do_not_fit_are_refused(lake: Lake) -> None:
    rows = batch("t", range(3))
    write = lake.writer().write
    with pytest.raises(BadFrame, match="column 'offset' is missing"):
        write([rows.drop_columns(["offset"])])
    with pytest.raises(BadFrame, match="column 'extra' has no place"):
        write([rows.append_column("extra", rows.column("id"))])
    with pytest.raises(BadFrame, match="column 'id' is binary: a lake keeps it as int64"):
        write([rows.set_column(rows.schema.get_field_index("id"), "id", pa.array([b"x", b"y", b"z"]))])
    with pytest.raises(BadName, match="does not match"):
        write([batch("a/b", range(3))])
    with pytest.raises(BadName, match="at most 245"):
        write([batch("t", range(3), namespace="n" * 246)])
    assert lake.vacuum(0, dry_run=True) == []


def test_a_date_may_be_left_out(lake: Lake) -> None:
    rows = batch("t", range(3), step_ms=DAY_MS)
    lake.append(lake.writer().write([rows.drop_columns(["date"])]), "test", 1)
    assert table(lake.scan("default", "t")).equals(table([rows]))


def test_a_file_that_is_gone_is_not_appended(lake: Lake) -> None:
    files = lake.writer().write([batch("t", range(3))])
    Path(lake.url, files[0].path).unlink()
    with pytest.raises(Conflict, match="is missing") as told:
        lake.append(files, "test", 1)
    assert told.value.code == "file_missing"
    assert lake.version_of("test") is None


def test_who_is_always_overtaken_gives_up(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqueue.lake.lake.COMMITS_MAX", 3)
    tries = []

    def overtaken(change: Change) -> int:
        tries.append(change.version)
        raise Raced("somebody was faster")

    monkeypatch.setattr(lake._table, "commit", overtaken)
    with pytest.raises(Unavailable, match="was changed by others 3 times in a row") as told:
        lake.append([], "test", 5)
    assert (told.value.code, told.value.retryable, tries) == ("lake_busy", True, [5, 5, 5])


def test_an_append_needs_a_name_and_a_version(lake: Lake) -> None:
    for app, version in (("", 1), ("x", -1)):
        with pytest.raises(Refused) as told:
            lake.append([], app, version)
        assert told.value.code == "bad_app"


def test_a_lake_is_found_again_by_its_url(tmp_path: Path, format: str) -> None:
    place = tmp_path / "a b"
    put(open_lake(f"file://{str(place).replace(' ', '%20')}", format, create=True), "test", 1, batch("t", range(3)))
    assert len(table(open_lake(str(place), format).scan("default", "t"))) == 3
