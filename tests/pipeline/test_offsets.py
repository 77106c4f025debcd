"""Places in topics: their JSON, ranges between them, tasks, and what a batch of a stream admits."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqueue.model.errors import BadSetting
from mqueue.pipeline.offsets import (
    SPLIT_ROWS_MIN,
    TASK_ROWS,
    Places,
    Range,
    admitted,
    dumped,
    loaded,
    parsed,
    ranges_between,
    rows_between,
    split,
)

PLACES = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.dictionaries(st.integers(0, 20), st.integers(0, 10_000), min_size=1),
    max_size=3,
)


@given(PLACES)
def test_places_survive_sparks_log_and_equal_ones_are_equal_text(places: Places) -> None:
    text = json.dumps(dumped(places))
    backwards = {t: dict(reversed(ps.items())) for t, ps in reversed(places.items())}
    assert json.dumps(dumped(backwards)) == text
    assert json.dumps(dumped(loaded(json.loads(text)))) == text
    assert loaded(json.loads(text)) == places


def test_partitions_are_sorted_as_numbers() -> None:
    assert json.dumps(dumped({"t": {10: 1, 9: 2}})) == '{"t": {"9": 2, "10": 1}}'


@pytest.mark.parametrize(
    "text", ["{}", "[]", "x", '{"a": 1}', '{"a": {"0": "x"}}', '{"a": {"-1": 0}}', '{"a": {"z": 0}}']
)
def test_what_is_no_such_json_is_refused(text: str) -> None:
    with pytest.raises(BadSetting, match=r"startingOffsets .* it takes JSON such as"):
        parsed(text, "startingOffsets")


def test_what_lies_between() -> None:
    start, end = {"a": {0: 5, 1: 9}}, {"a": {0: 7, 1: 9, 2: 3}, "b": {0: 0, 1: 4}}
    assert ranges_between(start, end) == [Range("a", 0, 5, 7), Range("a", 2, 0, 3), Range("b", 1, 0, 4)]
    assert rows_between(start, end) == 9


RANGES = st.lists(st.builds(lambda s, n: (s, n), st.integers(0, 1000), st.integers(0, 5000)), max_size=8).map(
    lambda found: [Range("t", p, start, start + rows) for p, (start, rows) in enumerate(found)]
)


@given(RANGES, st.none() | st.integers(1, 40), st.none() | st.integers(1, 500))
def test_tasks_cover_everything_once(ranges: list[Range], least: int | None, most: int | None) -> None:
    tasks = split(ranges, 2, least, most)
    assert all(len(task) for task in tasks)
    for whole in ranges:
        pieces = [task for task in tasks if task.partition == whole.partition]
        edges = [piece.start for piece in pieces] + [whole.stop]
        assert not len(whole) or edges[0] == whole.start
        assert [piece.stop for piece in pieces] == edges[1:]
    if most is not None:
        assert all(len(task) <= most for task in tasks)
    rows = sum(map(len, ranges))
    if least is not None and rows >= 100 * least:
        assert len(tasks) >= least


def test_one_large_partition_gives_work_to_all_cores() -> None:
    assert len(split([Range("t", 0, 0, SPLIT_ROWS_MIN)], 2, None, None)) == 2
    assert len(split([Range("t", 0, 0, SPLIT_ROWS_MIN - 1)], 2, None, None)) == 1
    assert len(split([Range("t", 0, 0, 5 * TASK_ROWS)], 2, None, None)) == 5
    assert split([Range("t", 0, 0, 10)], 2, 3, None) == [Range("t", 0, 0, 3), Range("t", 0, 3, 6), Range("t", 0, 6, 10)]


def test_large_partitions_get_more_of_the_tasks() -> None:
    tasks = split([Range("t", 0, 0, 1000), Range("t", 1, 0, 10), Range("t", 2, 0, 2000)], 2, 7, None)
    assert [sum(task.partition == p for task in tasks) for p in range(3)] == [2, 1, 4]


@given(PLACES, PLACES, st.integers(1, 20_000))
def test_a_batch_is_as_large_as_it_may_be(start: Places, end: Places, most: int) -> None:
    end = {t: {p: max(o, start.get(t, {}).get(p, 0)) for p, o in ps.items()} for t, ps in end.items()}
    part = admitted(start, end, most)
    assert rows_between(start, part) == min(most, rows_between(start, end))
    assert {t: set(ps) for t, ps in part.items()} == {t: set(ps) for t, ps in end.items()}
    for topic, partitions in part.items():
        for number, offset in partitions.items():
            assert start.get(topic, {}).get(number, 0) <= offset <= end[topic][number]


def test_each_partition_gets_its_share() -> None:
    assert admitted({"t": {0: 0, 1: 0}}, {"t": {0: 300, 1: 100}}, 100) == {"t": {0: 75, 1: 25}}
    assert admitted({}, {"t": {0: 9, 1: 1}}, 1) == {"t": {0: 1, 1: 0}}
