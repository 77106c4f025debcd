"""Rows of Spark as tables of messages: columns, types, time zones, topics, pieces. Needs no Spark."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest

import mqueue
from mqueue.pipeline.rows import BYTES_MAX, ROWS_MAX, Pieces, by_topic, check_columns

BERLIN = "Europe/Berlin"
NOON = datetime(2031, 7, 1, 12, tzinfo=timezone(timedelta(hours=2)))


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize(
    ("columns", "topic"),
    [
        ({"value": "binary"}, "t"),
        ({"value": "string", "topic": "string"}, None),
        ({"value": "binary", "key": "string", "priority": "smallint", "deliver_at": "timestamp"}, "t"),
        ({"value": "binary", "headers": "array<struct<key:string,value:binary>>", "fairness_key": "string"}, "t"),
        ({"value": "binary", "offset": "bigint", "partition": "int", "timestampType": "int", "id": "bigint"}, "t"),
    ],
)
def test_columns_that_are_taken(columns, topic) -> None:
    check_columns(columns, topic)


@pytest.mark.parametrize(
    ("columns", "topic", "code", "why"),
    [
        ({}, "t", "bad_column", "column value is missing; there are: none"),
        ({"key": "binary"}, "t", "bad_column", "column value is missing; there are: key"),
        ({"value": "binary"}, None, "no_topic", "give the option topic, or a column of that name"),
        ({"value": "double"}, "t", "bad_column", "column value is of type double; it takes binary or string"),
        ({"value": "binary", "deliver_at": "timestamp_ntz"}, "t", "bad_column", "timestamp_ntz; it takes timestamp"),
        ({"value": "binary", "vaule": "int"}, "t", "bad_column", "column 'vaule' is unknown to a sink; it takes value"),
        ({"value": "binary", "idempotency_key": "string"}, "t", "bad_column", "a sink takes none"),
    ],
)
def test_columns_that_are_not(columns, topic, code, why) -> None:
    with pytest.raises(mqueue.Refused, match=why) as refused:
        check_columns(columns, topic)
    assert refused.value.code == code
    assert "\n" not in str(refused.value)


def test_columns_take_their_names_in_a_queue_and_their_types() -> None:
    given = batch(
        value=pa.array(["a", "b"], pa.large_string()),
        key=pa.array(["k", None]),
        headers=pa.array([[("h", "1")], None], pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))),
        priority=pa.array([0, None], pa.int16()),
        deliver_at=pa.array([NOON, None], pa.timestamp("us", BERLIN)),
        fairness_key=pa.array([None, None], pa.string()),
        offset=pa.array([7, 8]),
    )
    [(topic, rows)] = by_topic(given, "t")
    assert topic == "t"
    assert rows.schema.names == ["payload", "key", "headers", "priority", "deliver_at"]
    assert rows.column("payload").to_pylist() == [b"a", b"b"]
    assert rows.column("key").to_pylist() == [b"k", None]
    assert rows.column("headers").to_pylist() == [[{"key": "h", "value": b"1"}], None]
    assert rows.schema.field("deliver_at").type == pa.timestamp("us", "UTC")
    assert rows.column("deliver_at").to_pylist() == [NOON, None]


def test_rows_go_to_their_topics_in_their_order() -> None:
    names = ["b", "a", "b", "c", "a", "b"]
    given = batch(value=pa.array([b"%d" % n for n in range(6)]), topic=pa.array(names))
    found = {topic: rows.column("payload").to_pylist() for topic, rows in by_topic(given, None)}
    assert found == {"b": [b"0", b"2", b"5"], "a": [b"1", b"4"], "c": [b"3"]}


def test_the_option_wins_over_the_column() -> None:
    given = batch(value=pa.array([b"1", b"2"]), topic=pa.array(["a", None]))
    assert [(topic, rows.num_rows) for topic, rows in by_topic(given, "t")] == [("t", 2)]


@pytest.mark.parametrize(
    ("columns", "code"),
    [
        ({"value": [b"1", None], "topic": ["a", "a"]}, "no_value"),
        ({"value": [b"1", b"2"], "topic": ["a", None]}, "no_topic"),
        ({"value": [b"1", b"2"], "topic": ["a", "no such/name"]}, "bad_name"),
    ],
)
def test_rows_that_are_no_messages(columns, code) -> None:
    with pytest.raises(mqueue.Refused) as refused:
        list(by_topic(batch(**{name: pa.array(values) for name, values in columns.items()}), None))
    assert refused.value.code == code


def test_no_rows_are_no_pieces() -> None:
    pieces = Pieces("t")
    assert list(pieces.add(batch(value=pa.array([], pa.binary())))) == []
    assert list(pieces.rest()) == []


def test_small_batches_become_whole_pieces_and_large_ones_are_cut() -> None:
    values = [b"%d" % n for n in range(2 * ROWS_MAX + 17)]
    sizes = [3, 2000, 2000, 4000, 5000, 12000]
    pieces, out, start = Pieces("t"), [], 0
    for size in sizes:
        out += pieces.add(batch(value=pa.array(values[start : start + size])))
        start += size
    out += pieces.rest()
    assert [row for _, table in out for row in table.column("payload").to_pylist()] == values[: sum(sizes)]
    assert max(table.num_rows for _, table in out) <= ROWS_MAX
    assert len(out) <= 4


def test_pieces_are_cut_by_bytes_and_one_row_always_fits() -> None:
    values = [b"x" * (BYTES_MAX // 4)] * 9 + [b"y" * (BYTES_MAX + 1)] + [b"z"] * 3
    pieces = Pieces("t")
    out = [table for _, table in [*pieces.add(batch(value=pa.array(values))), *pieces.rest()]]
    assert [len(row) for table in out for row in table.column("payload").to_pylist()] == [len(v) for v in values]
    assert max(table.nbytes for table in out if table.num_rows > 1) <= BYTES_MAX + 1024


def test_columns_that_some_batches_lack_are_null_there() -> None:
    pieces = Pieces("t")
    assert list(pieces.add(batch(value=pa.array([b"1"]), key=pa.array([None], pa.binary())))) == []
    assert list(pieces.add(batch(value=pa.array([b"2"]), key=pa.array([b"k"])))) == []
    [(_, table)] = pieces.rest()
    assert table.column("key").to_pylist() == [None, b"k"]
