"""Ids: unique, contiguous and rising under any clock; what the bits mean; when the source says no."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqueue.model.errors import Backpressure, BadSetting, Unavailable
from mqueue.model.ident import EPOCH_MS, IdSource, instant_of, node_of
from mqueue.model.limits import ID_AHEAD_MS_MAX
from mqueue.model.times import rfc3339

NOW = EPOCH_MS + 65_000_000_000
COUNTS = st.one_of(st.integers(1, 4096), st.sampled_from([1, 2, 4095, 4096]))
# Steps of a clock that stands, walks, jumps and falls.
STEPS = st.one_of(st.just(0), st.integers(-5, 5), st.integers(-100_000, 100_000))


def taken(source: IdSource, count: int, now: int) -> range | None:
    """The ids given out, or None where the source asked to wait."""
    try:
        first = source.take(count, now)
    except Backpressure:
        return None
    return range(first, first + count)


def test_the_epoch_is_2024() -> None:
    assert rfc3339(EPOCH_MS) == "2024-01-01T00:00:00.000Z"


def test_the_bits_are_slot_node_and_sequence() -> None:
    first = IdSource(node=5).take(3, NOW)
    assert first == (NOW - EPOCH_MS) << 22 | 5 << 12
    assert instant_of(first) == NOW
    assert node_of(first + 2) == 5


@given(st.integers(0, 1023), st.lists(st.tuples(COUNTS, STEPS), max_size=60))
def test_ids_rise_and_stay_in_one_slot_under_any_clock(node: int, calls: list[tuple[int, int]]) -> None:
    source = IdSource(node)
    now, last = NOW, -1
    for count, step in calls:
        now += step
        ids = taken(source, count, now)
        if ids is None:
            assert instant_of(last) > now + ID_AHEAD_MS_MAX - 1
            continue
        assert ids[0] > last
        assert instant_of(ids[0]) == instant_of(ids[-1]) <= now + ID_AHEAD_MS_MAX
        assert node_of(ids[0]) == node_of(ids[-1]) == node
        last = ids[-1]


@given(st.integers(0, 1023), st.integers(0, 1023), st.lists(COUNTS, max_size=8), STEPS, COUNTS)
def test_a_new_source_goes_on_behind_the_last_id(a: int, b: int, counts: list[int], step: int, count: int) -> None:
    old, new = IdSource(a), IdSource(b)
    last = max((old.take(n, NOW) + n - 1 for n in counts), default=0)
    new.resume(last)
    ids = taken(new, count, NOW + step)
    assert ids is None or ids[0] > last


def test_resuming_behind_an_older_id_changes_nothing() -> None:
    source = IdSource()
    first = source.take(10, NOW)
    source.resume(first + 3)
    source.resume(0)
    assert source.take(1, NOW) == first + 10


def test_resuming_in_the_same_slot_leaves_no_gap() -> None:
    source = IdSource()
    source.resume(IdSource().take(10, NOW) + 9)
    assert source.take(1, NOW) & 4095 == 10


def test_what_does_not_fit_goes_to_the_next_slot() -> None:
    source = IdSource()
    source.take(4000, NOW)
    assert instant_of(source.take(97, NOW)) == NOW + 1
    assert instant_of(source.take(3999, NOW)) == NOW + 1
    assert instant_of(source.take(1, NOW)) == NOW + 2


def test_too_far_ahead_asks_to_wait_exactly_long_enough() -> None:
    source = IdSource()
    for ahead in range(ID_AHEAD_MS_MAX + 1):
        assert instant_of(source.take(4096, NOW)) == NOW + ahead
    with pytest.raises(Backpressure, match=r"60001 ms ahead .* at most 60000") as caught:
        source.take(1, NOW)
    assert caught.value.code == "id_clock_ahead"
    assert caught.value.retryable
    assert caught.value.retry_after == 0.001
    assert instant_of(source.take(1, NOW + 1)) == NOW + 1 + ID_AHEAD_MS_MAX


def test_a_refusal_takes_nothing() -> None:
    source = IdSource()
    first = source.take(1, NOW)
    with pytest.raises(Backpressure) as caught:
        source.take(1, NOW - ID_AHEAD_MS_MAX - 250)
    assert caught.value.retry_after == 0.25
    assert source.take(1, NOW) == first + 1


def test_a_clock_before_2024_counts_as_2024() -> None:
    source = IdSource()
    assert source.take(4096, 0) == 0
    assert instant_of(source.take(1, 0)) == EPOCH_MS + 1


def test_ids_end_with_the_41_bits() -> None:
    end = EPOCH_MS + (1 << 41)
    source = IdSource(1023)
    assert source.take(4096, end - 1) + 4095 == (1 << 63) - 1
    for now in (end - 1, end):
        with pytest.raises(Unavailable) as caught:
            source.take(1, now)
        assert (caught.value.code, caught.value.retryable) == ("id_clock_end", False)


@pytest.mark.parametrize("node", [-1, 1024])
def test_a_node_out_of_range_is_refused(node: int) -> None:
    with pytest.raises(BadSetting, match=f"node {node} .* between 0 and 1023"):
        IdSource(node)


@pytest.mark.parametrize("count", [-1, 0, 4097])
def test_a_count_out_of_range_cannot_happen(count: int) -> None:
    with pytest.raises(AssertionError):
        IdSource().take(count, NOW)
