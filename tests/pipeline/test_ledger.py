"""Ledgers, books and comparisons: what they tell apart, and what they do not care about. No Spark, no server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mqueue.broker.bounds import PartitionOffsets
from mqueue.lake.schema import LAKE
from mqueue.pipeline.archiving import plan_round
from mqueue.pipeline.auditing import DIFFERENT, DOUBLED, HOLE, MISSING, Run, Side, compare, judge, side_of
from mqueue.pipeline.book import Book, Gain, Mark
from mqueue.pipeline.ledger import HASHED, Sum, hashes, sum_of

AT = datetime(2026, 1, 14, tzinfo=UTC)
PLAIN: dict[str, Any] = {
    "key": b"k",
    "value": b"v",
    "topic": "orders",
    "partition": 0,
    "timestamp": AT,
    "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": b"2"}],
    "namespace": "default",
    "id": 7,
    "priority": 5,
    "deliver_at": None,
    "expires_at": AT,
    "idempotency_key": "i",
    "fairness_key": None,
    "date": AT.date(),
}


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    given = [{"offset": n, **PLAIN, **row} for n, row in enumerate(rows)]
    return pa.RecordBatch.from_pylist(given, schema=LAKE)


# Hashes

OTHERS: list[dict[str, Any]] = [
    {"key": None},
    {"key": b""},
    {"key": b"v", "value": b"k"},
    {"value": b""},
    {"value": b"v\0"},
    {"partition": 1},
    {"offset": 1},
    {"timestamp": datetime(2026, 1, 14, 0, 0, 0, 1000, UTC)},
    {"id": 8},
    {"priority": 4},
    {"deliver_at": AT},
    {"expires_at": None},
    {"deliver_at": AT, "expires_at": None},
    {"idempotency_key": None, "fairness_key": "i"},
    {"headers": None},
    {"headers": []},
    {"headers": [{"key": "a", "value": b"1"}]},
    {"headers": [{"key": "b", "value": b"2"}, {"key": "a", "value": b"1"}]},
    {"headers": [{"key": "a", "value": b"2"}, {"key": "b", "value": b"1"}]},
    {"headers": [{"key": "1", "value": b"a"}, {"key": "b", "value": b"2"}]},
]


def test_messages_that_differ_in_anything_hash_differently() -> None:
    found = [int(hashes(batch(row))[0]) for row in [{}, *OTHERS]]
    assert len(set(found)) == len(found)
    assert {*HASHED} == {*LAKE.names} - {"namespace", "topic", "date"}


def test_a_hash_does_not_depend_on_the_company() -> None:
    alone = [int(hashes(batch({**row, "offset": n}))[0]) for n, row in enumerate(OTHERS) if "offset" not in row]
    rows = [{**row, "offset": n} for n, row in enumerate(OTHERS) if "offset" not in row]
    together = batch(*rows)
    assert hashes(together).tolist() == alone
    assert hashes(together.slice(3, 9)).tolist() == alone[3:12]
    assert hashes(batch()).tolist() == []


def test_a_hash_stays_what_it_is() -> None:
    """It is kept in lakes: one that changes needs another NAME."""
    assert f"{hashes(batch({}))[0]:016x}" == "6e2050b0538976f3"


def test_sums_do_not_care_for_order_or_pieces_but_for_doubles() -> None:
    rows = batch(*OTHERS)
    whole = sum_of(rows)
    assert sum_of(rows.slice(0, 5)) + sum_of(rows.slice(5)) == whole
    assert sum_of(rows.take(pa.array(range(len(OTHERS) - 1, -1, -1)))) == whole
    doubled = whole + sum_of(rows.slice(2, 1)) + sum_of(rows.slice(2, 1))
    assert doubled.hash != whole.hash
    assert doubled.rows == whole.rows + 2


# The book


def test_a_book_grows_and_comes_back_as_it_was() -> None:
    first = Book().next([Gain("a", 0, 5, 9, Sum(4, 100)), Gain("b", 1, 0, 2, Sum(2, 2**64 - 1))])
    assert first.version == 0
    assert first.marks["a"][0] == Mark(5, 9, 4, f"{100:016x}")
    second = first.next([Gain("b", 1, 2, 5, Sum(1, 3))])
    assert second.version == 1
    assert second.marks["b"][1] == Mark(0, 5, 3, f"{2:016x}")
    assert second.marks["a"] == first.marks["a"]
    assert second.note()["topics"]["b"] == {"1": {"start": 0, "stop": 5, "rows": 3, "hash": f"{2:016x}"}}
    assert Mark(0, 5).joined(9, Sum(4, 1)) == Mark(0, 9)
    third = second.next([Gain("c", 0, 0, 1, Sum(1, 1))], {"c": "2026-01-01T00:00:00.000Z"})
    assert (third.note()["made"], third.next([]).made) == ({"c": "2026-01-01T00:00:00.000Z"}, third.made)
    assert third.is_of("c", None)
    assert third.is_of("a", "2027-01-01T00:00:00.000Z")
    assert not third.is_of("c", "2027-01-01T00:00:00.000Z")


def places(**partitions: tuple[int, int]) -> dict[int, PartitionOffsets]:
    return {int(n[1:]): PartitionOffsets(int(n[1:]), first, next) for n, (first, next) in partitions.items()}


def test_a_round_goes_from_where_the_lake_ends_to_where_the_log_ends() -> None:
    book = Book(3, {"a": {0: Mark(0, 10)}, "gone": {0: Mark(0, 5)}})
    there = {"a": places(p0=(2, 30), p1=(4, 8)), "b": places(p0=(0, 0))}
    until = {"a": {0: 30, 1: 8}, "b": {0: 0}}
    plan = plan_round(book, there, until, 1000)
    assert plan.start == {"a": {0: 10, 1: 4}, "b": {0: 0}}
    assert plan.stop == plan.end == until
    assert plan.exempt == {"a": {1: 4}, "b": {0: 0}}
    assert plan.remade == ()
    less = plan_round(book, there, until, 6)
    assert sum(less.stop["a"][n] - less.start["a"][n] for n in (0, 1)) == 6


def test_a_round_does_not_go_back_nor_mix_topics_of_one_name() -> None:
    book = Book(3, {"a": {0: Mark(0, 10)}})
    assert plan_round(book, {"a": places(p0=(0, 12))}, {"a": {0: 7}}, 100).stop == {"a": {0: 10}}
    remade = plan_round(book, {"a": places(p0=(0, 9))}, {"a": {0: 9}}, 100)
    assert (remade.start, remade.remade) == ({}, ("a",))
    other = {0: PartitionOffsets(0, 0, 99, made_at=datetime(2026, 1, 2, tzinfo=UTC))}
    for made, told in (("2026-01-01T00:00:00.000Z", ("a",)), ("2026-01-02T00:00:00.000Z", ())):
        assert plan_round(Book(3, book.marks, {"a": made}), {"a": other}, {"a": {0: 99}}, 100).remade == told


# Comparing


def side(*offsets: int, changed: tuple[int, ...] = ()) -> Side:
    numbers = np.array(offsets, np.int64)
    marks = np.array([n * 31 + (1 if n in changed else 0) for n in offsets], np.uint64)
    return Side(numbers, numbers + 1000, marks)


@pytest.mark.parametrize(
    ("log", "lake", "runs"),
    [
        (side(0, 1, 2, 3), side(0, 1, 2, 3), []),
        (side(0, 1, 2, 3), side(0, 3), [Run(MISSING, 1, 2, 1001)]),
        (side(0, 1, 2, 3), side(), [Run(MISSING, 0, 3, 1000)]),
        (side(0, 1, 2, 3), side(0, 1, 1, 2, 2, 3, 3), [Run(DOUBLED, 1, 3, 1001)]),
        (side(0, 1, 2, 3), side(0, 1, 2, 3, changed=(2,)), [Run(DIFFERENT, 2, 2, 1002)]),
        (side(2, 3), side(0, 1, 2, 3), []),
        (side(), side(0, 1, 2, 3, 3), [Run(DOUBLED, 3, 3, 1003)]),
        (
            side(0, 1, 2, 3),
            side(1, 1, 3, changed=(3,)),
            [Run(MISSING, 0, 0, 1000), Run(MISSING, 2, 2, 1002), Run(DOUBLED, 1, 1, 1001), Run(DIFFERENT, 3, 3, 1003)],
        ),
    ],
)
def test_a_comparison_names_what_is_wrong_and_where(log: Side, lake: Side, runs: list[Run]) -> None:
    found = compare(log, lake, 0, 4)
    assert found.runs == runs
    assert (found.log.rows, found.lake.rows) == (len(log.offsets), len(lake.offsets))


def test_what_only_the_lake_has_is_no_fault() -> None:
    found = compare(side(3), side(0, 1, 3), 0, 4)
    assert (found.dropped, found.runs, found.holes) == (2, [], [Run(HOLE, 2, 2)])


def mark_of(lake: Side) -> Mark:
    return Mark(0, 4, lake.sum.rows, f"{lake.sum.hash:016x}")


def test_the_ledger_of_the_archive_finds_what_the_log_can_no_longer_tell() -> None:
    whole = side(0, 1, 2, 3)
    archived = mark_of(whole)
    assert judge(archived, [compare(side(), whole, 0, 4)]) == []
    lost = compare(side(3), side(0, 3), 0, 4)
    assert judge(archived, [lost]) == [Run(HOLE, 1, 2)]
    changed = compare(side(3), side(0, 1, 2, 3, changed=(1,)), 0, 4)
    assert judge(archived, [changed]) == [Run(DIFFERENT, 0, 3)]
    assert judge(mark_of(side(0, 3)), [lost]) == []  # the log had dropped it before it was archived
    assert judge(Mark(0, 4), [lost]) == []  # nobody knows


def test_sides_are_made_of_batches() -> None:
    rows = batch(*OTHERS[:4])
    found = side_of([rows.slice(0, 1), rows.slice(1)])
    assert found.offsets.tolist() == [0, 1, 2, 3]
    assert found.sum == sum_of(rows)
    assert len(side_of([]).offsets) == 0
