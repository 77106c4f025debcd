"""Chunks, names and the pace of runs: arithmetic that a run that goes on relies on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqueue.model.errors import BadName, Refused
from mqueue.pipeline.offsets import Range
from mqueue.pipeline.pace import RATE_MAX, Pace
from mqueue.pipeline.runs import NAME_LENGTH_MAX, chunks, prefix_of, run_name

OFFSETS = st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=4)


@given(OFFSETS, st.integers(1, 20))
def test_chunks_cover_everything_once(bounds: dict[int, tuple[int, int]], size: int) -> None:
    starts = {partition: min(pair) for partition, pair in bounds.items()}
    stops = {partition: max(pair) for partition, pair in bounds.items()}
    found = chunks(starts, stops, "t", size)
    assert list(found) == sorted(found)
    covered = [(piece.partition, offset) for pieces in found.values() for piece in pieces for offset in _offsets(piece)]
    assert sorted(covered) == [(p, offset) for p in sorted(starts) for offset in range(starts[p], stops[p])]


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 20))
def test_a_chunk_stays_the_same_when_the_start_rises(start: int, more: int, size: int) -> None:
    before, after = chunks({0: start}, {0: 200}, "t", size), chunks({0: start + more}, {0: 200}, "t", size)
    for number, pieces in after.items():
        assert before[number][0].stop == pieces[0].stop
    assert list(after.items())[1:] == [item for item in before.items() if item[0] > min(after)]


def _offsets(piece: Range) -> range:
    return range(piece.start, piece.stop)


def test_a_run_is_its_name_and_what_it_was_told() -> None:
    assert prefix_of("replay", "a", {"x": 1, "y": 2}) == prefix_of("replay", "a", {"y": 2, "x": 1})
    assert prefix_of("replay", "a", {"x": 1}) != prefix_of("replay", "a", {"x": 2})
    assert run_name("a") == "a"
    assert run_name("") != run_name("")
    for wrong in ("a/b", "x" * (NAME_LENGTH_MAX + 1)):
        with pytest.raises(BadName, match="run"):
            run_name(wrong)


class Clock:
    """Goes on when somebody waits."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


@given(st.lists(st.tuples(st.integers(0, 500), st.floats(0, 5)), min_size=1, max_size=20))
def test_no_faster_than_the_rate_and_no_slower_than_it_must(steps: list[tuple[int, float]]) -> None:
    clock = Clock()
    pace = Pace(100.0, clock, clock.wait)
    began, done, busy = clock.now, 0, 0.0
    for count, seconds in steps:
        clock.now += seconds
        busy += seconds
        pace.spend(count)
        done += count
    assert done <= 100 * (clock.now - began) + 100 + 1e-6
    assert clock.now - began <= busy + done / 100 + 1e-6


def test_without_a_rate_nobody_waits() -> None:
    clock = Clock()
    Pace(None, clock, clock.wait).spend(10**9)
    assert clock.now == 100.0
    for wrong in (0, -1, RATE_MAX + 1, float("nan")):
        with pytest.raises(Refused, match="messages a second"):
            Pace(wrong)
