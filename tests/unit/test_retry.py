"""Backoff: doubles, stops at the maximum, jitters around it, and falls on a tick."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqueue.policy.retry import JITTER_MAX, backoff_due, tick_up

NOW = 1_768_402_800_000


@pytest.mark.parametrize(
    ("attempt", "delay_ms"),
    [(1, 1000), (2, 2000), (3, 4000), (6, 32_000), (7, 60_000), (8, 60_000), (10**9, 60_000)],
)
def test_it_doubles_up_to_the_maximum(attempt: int, delay_ms: int) -> None:
    assert backoff_due(attempt, NOW, 1000, 60_000, 0.0) == NOW + delay_ms


@pytest.mark.parametrize(("jitter", "delay_ms"), [(-0.2, 48_000), (-0.1, 54_000), (0.1, 66_000), (0.2, 72_000)])
def test_jitter_is_a_share_of_the_delay_also_at_the_maximum(jitter: float, delay_ms: int) -> None:
    assert backoff_due(9, NOW, 1000, 60_000, jitter) == NOW + delay_ms


@pytest.mark.parametrize(("at", "tick"), [(0, 0), (1, 10), (9, 10), (10, 10), (11, 20), (NOW + 1, NOW + 10)])
def test_ticks_round_up(at: int, tick: int) -> None:
    assert tick_up(at) == tick


def test_what_comes_back_is_an_absolute_tick() -> None:
    assert backoff_due(1, NOW + 3, 1000, 60_000, 0.0) == NOW + 1010
    assert backoff_due(1, NOW + 3, 0, 60_000, 0.0) == NOW + 10
    assert backoff_due(1, NOW, 0, 0, 0.2) == NOW


@given(
    st.integers(1, 10**12),
    st.integers(0, NOW),
    st.integers(0, 10**9),
    st.integers(0, 10**12),
    st.floats(-JITTER_MAX, JITTER_MAX),
)
def test_never_before_the_shortest_nor_after_the_longest(
    attempt: int, now: int, backoff_ms: int, backoff_max_ms: int, jitter: float
) -> None:
    due = backoff_due(attempt, now, backoff_ms, backoff_max_ms, jitter)
    plain_ms = min(backoff_ms << min(attempt - 1, 100), backoff_max_ms)
    assert due % 10 == 0
    assert now <= due
    assert now + plain_ms * 0.8 - 1 <= due <= now + plain_ms * 1.2 + 10


@pytest.mark.parametrize(("attempt", "jitter"), [(0, 0.0), (1, 0.21), (1, -0.21), (1, float("nan"))])
def test_what_cannot_happen_is_asserted(attempt: int, jitter: float) -> None:
    with pytest.raises(AssertionError):
        backoff_due(attempt, NOW, 1000, 60_000, jitter)
