"""Frames as the columns of a view: every value, every type, and nothing that was not asked for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql.pandas.types import from_arrow_type

from mqueue.model.priority import HIGH, NORMAL
from mqueue.pipeline.columns import BATCH_ROWS, Columns
from mqueue.pipeline.schema import VIEWS, arrow_schema, spark_types
from mqueue.wire.frame import Frame
from mqueue.wire.pack import pack, unpack
from mqueue.wire.rows import Rows

ALL = list(VIEWS["messages"])
NOW = 1_700_000_000_000


def frame_of(rows: Rows, base: int, id: int, at: int) -> Frame:
    """A frame as a reader gets it: out of its bytes."""
    made = Frame.of_rows(1, 3, rows)
    made.stamp(base, id, at)
    made.chill()
    return unpack(pack(made))


def plain(base: int, count: int) -> Frame:
    return frame_of(Rows([b"%d" % n for n in range(base, base + count)]), base, 1000 + base, NOW + base)


def full() -> Frame:
    return frame_of(
        Rows(
            [b"a", b"", b"c" * 300],
            key=[b"k", None, b""],
            headers=[{"h": "text", "b": b"\xff"}, None, {"h": "again"}],
            priority=[HIGH, NORMAL, -7],
            deliver_at=[0, NOW + 5, 0],
            expires_at=[NOW + 9, 0, 0],
            idempotency_key=["i", None, "j"],
            fairness_key=[None, "f", None],
        ),
        20,
        5000,
        NOW,
    )


def rows_of(frames: list[Frame], names: list[str] = ALL, **kwargs: Any) -> list[dict[str, Any]]:
    batches = list(Columns("messages", names, "space", "orders", 3).batches(frames, **kwargs))
    for batch in batches:
        assert batch.schema == arrow_schema("messages", names)
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


def time_of(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def test_all_columns_of_a_frame_that_has_them_all() -> None:
    first, second, third = rows_of([full()])
    assert first == {
        "key": b"k",
        "value": b"a",
        "topic": "orders",
        "partition": 3,
        "offset": 20,
        "timestamp": time_of(NOW),
        "timestampType": 1,
        "headers": [{"key": "h", "value": b"text"}, {"key": "b", "value": b"\xff"}],
        "namespace": "space",
        "id": 5000,
        "priority": HIGH,
        "deliver_at": None,
        "expires_at": time_of(NOW + 9),
        "idempotency_key": "i",
        "fairness_key": None,
    }
    assert (second["key"], second["value"], second["headers"], second["id"]) == (None, b"", None, 5001)
    assert (second["deliver_at"], second["expires_at"], second["fairness_key"]) == (time_of(NOW + 5), None, "f")
    assert (third["key"], third["priority"], third["offset"], third["value"]) == (b"", -7, 22, b"c" * 300)


def test_columns_that_nobody_uses_are_null() -> None:
    (row,) = rows_of([plain(7, 1)])
    unused = {"key", "headers", "deliver_at", "expires_at", "idempotency_key", "fairness_key"}
    assert {name for name, value in row.items() if value is None} == unused
    assert row["priority"] == NORMAL


def test_only_what_is_asked_for_in_that_order() -> None:
    rows = rows_of([plain(0, 2), full()], ["offset", "value"])
    assert [list(row) for row in rows] == [["offset", "value"]] * 5
    assert [row["offset"] for row in rows] == [0, 1, 20, 21, 22]


def test_frames_that_differ_become_one_batch() -> None:
    batches = list(Columns("messages", ALL, "s", "t", 3).batches([plain(0, 5), full(), plain(30, 2)]))
    assert [batch.num_rows for batch in batches] == [10]
    assert batches[0].column("offset").to_pylist() == [0, 1, 2, 3, 4, 20, 21, 22, 30, 31]
    assert batches[0].column("key").to_pylist() == [None] * 5 + [b"k", None, b""] + [None] * 2


def test_ids_and_times_of_messages_that_came_one_by_one() -> None:
    frame = Frame.opened(1, 3, 100)
    for n, (id, at) in enumerate([(10, NOW), (11, NOW), (50, NOW), (51, NOW + 1), (90, NOW + 1)]):
        frame.add(b"%d" % n, None, id, at)
    frame.seal()
    rows = rows_of([unpack(pack(frame))], ["offset", "id", "timestamp", "value"])
    assert [row["id"] for row in rows] == [10, 11, 50, 51, 90]
    assert [row["timestamp"] for row in rows] == [time_of(NOW)] * 3 + [time_of(NOW + 1)] * 2
    assert [row["offset"] for row in rows] == [100, 101, 102, 103, 104]
    assert rows == rows_of([unpack(pack(frame)).slice(0, 2), unpack(pack(frame)).slice(2, 5)], list(rows[0]))


def test_small_frames_are_put_together_and_large_ones_go_alone() -> None:
    columns = Columns("messages", ["offset"], "s", "t", 3)
    small = [batch.num_rows for batch in columns.batches(plain(n * 10, 10) for n in range(3 * BATCH_ROWS // 10 + 1))]
    assert small == [BATCH_ROWS] * 3 + [10]
    wide = [frame_of(Rows([bytes(5 << 20)]), n, n, NOW) for n in range(3)]
    assert [batch.num_rows for batch in columns.batches(wide)] == [2, 1]
    assert list(columns.batches([])) == []


def test_priorities_choose_rows_and_whole_frames() -> None:
    frames = [plain(0, 3), full()]
    assert [row["offset"] for row in rows_of(frames, ["offset"], priorities=(NORMAL,))] == [0, 1, 2, 21]
    assert [row["value"] for row in rows_of(frames, ["value"], priorities=(-7, HIGH))] == [b"a", b"c" * 300]
    assert rows_of(frames, ["value"], priorities=(1,)) == []


def test_the_story_of_the_dead() -> None:
    story = {"x-origin-topic": "orders", "x-group": "g", "x-attempts": "4", "x-reason": "failed", "x-error": "boom"}
    frames = [frame_of(Rows([b"x", b"y"], headers=[{**story, "own": "1"}, None]), 0, 1, NOW), plain(2, 1)]
    names = ["offset", "source_topic", "group", "attempts", "reason", "error"]
    (batch,) = Columns("dlq", names, "s", "orders.dlq", 3).batches(frames)
    assert batch.schema == arrow_schema("dlq", names)
    assert batch.to_pylist()[0] == dict(zip(names, [0, "orders", "g", 4, "failed", "boom"], strict=True))
    assert [row["attempts"] for row in batch.to_pylist()[1:]] == [None, None]


@pytest.mark.parametrize("view", list(VIEWS))
def test_arrow_agrees_with_spark_on_every_type(view: str) -> None:
    for name, type in VIEWS[view].items():
        assert from_arrow_type(type).simpleString() == spark_types(view)[name]
