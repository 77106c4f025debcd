"""Quotas: exact to the millisecond, never more than the bucket and the rate allow, never less."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqueue.model.errors import BadSetting, QuotaExceeded
from mqueue.policy.quota import Quotas

NOW = 1_768_402_800_000


def refused(quotas: Quotas, count: int, now: int, namespace: str = "a") -> QuotaExceeded | None:
    try:
        quotas.admit(namespace, count, now)
    except QuotaExceeded as error:
        return error
    return None


def admitted(quotas: Quotas, count: int, now: int, namespace: str = "a") -> bool:
    return refused(quotas, count, now, namespace) is None


def test_without_a_limit_nothing_is_counted() -> None:
    quotas = Quotas()
    assert quotas.unlimited
    quotas.admit("a", 10**9, NOW)
    assert quotas.level("a", NOW) is None


def test_a_bucket_starts_full_and_is_refilled_by_the_second() -> None:
    quotas = Quotas({"a": 60})
    assert not quotas.unlimited
    quotas.admit("a", 60, NOW)
    assert quotas.level("a", NOW + 999) == 0
    assert quotas.level("a", NOW + 1000) == 1
    assert quotas.level("a", NOW + 3_600_000) == 60


def test_a_refusal_names_the_exact_wait_and_takes_nothing() -> None:
    quotas = Quotas({"a": 60})
    quotas.admit("a", 55, NOW)
    error = refused(quotas, 10, NOW)
    assert error is not None
    assert error.retryable
    assert (error.code, error.status, error.retry_after) == ("quota_exceeded", 429, 5.0)
    assert "60 messages a minute: 10 asked, 5 left" in error.message
    assert not admitted(quotas, 10, NOW + 4999)
    assert admitted(quotas, 10, NOW + 5000)


def test_a_call_larger_than_the_bucket_is_refused_for_good() -> None:
    quotas = Quotas({"a": 60, "none": 0})
    error = refused(quotas, 61, NOW)
    assert error is not None
    assert (error.code, error.retryable, error.retry_after) == ("quota_too_small", False, None)
    assert "61 messages" in error.message
    assert "60 a minute" in error.message
    assert admitted(quotas, 60, NOW)
    assert not admitted(quotas, 1, NOW, "none")
    assert admitted(quotas, 0, NOW, "none")


def test_the_default_is_a_bucket_for_each_namespace() -> None:
    quotas = Quotas({"a": 100}, default=10)
    assert admitted(quotas, 100, NOW, "a")
    assert admitted(quotas, 10, NOW, "b")
    assert admitted(quotas, 10, NOW, "c")
    assert not admitted(quotas, 1, NOW, "b")


def test_a_limit_can_be_changed_and_what_was_spent_stays_spent() -> None:
    quotas = Quotas({"a": 60})
    quotas.admit("a", 50, NOW)
    quotas.set("a", 600)
    assert quotas.level("a", NOW) == 10
    assert quotas.level("a", NOW + 1000) == 20
    quotas.set("a", 5)
    assert quotas.level("a", NOW) == 5
    quotas.set("a", None)
    assert quotas.unlimited
    quotas.set("b", 1)
    assert not quotas.unlimited
    assert quotas.level("a", NOW) is None


def test_no_limit_of_its_own_means_the_default() -> None:
    quotas = Quotas({"a": 60}, default=10)
    quotas.set("a", None)
    assert quotas.level("a", NOW) == 10


def test_full_buckets_are_forgotten() -> None:
    quotas = Quotas(default=60)
    for n in range(5000):
        quotas.admit(f"n{n}", 1, NOW + n * 1000)
    assert len(quotas._buckets) <= 1025
    quotas.admit("busy", 60, NOW)
    for n in range(5000):
        quotas.admit(f"m{n}", 1, NOW)
    assert not admitted(quotas, 1, NOW, "busy")


@pytest.mark.parametrize("bad", [-1, True])
def test_a_limit_that_is_no_count_is_refused(bad: int) -> None:
    for make in (lambda: Quotas({"a": bad}), lambda: Quotas(default=bad), lambda: Quotas().set("a", bad)):
        with pytest.raises(BadSetting, match=f"{bad!r} messages a minute"):
            make()


CALLS = st.lists(st.tuples(st.integers(0, 50), st.integers(-3000, 5000)), max_size=60)


@given(st.integers(1, 50), CALLS)
def test_no_window_exceeds_the_burst_and_the_rate(limit: int, calls: list[tuple[int, int]]) -> None:
    """Under a clock that may fall: windows are measured by the latest time at which anything was taken."""
    quotas = Quotas({"a": limit})
    now, latest = NOW, 0
    taken: list[tuple[int, int]] = []
    for count, step in calls:
        now += step
        if admitted(quotas, count, now):
            latest = max(latest, now)
            taken.append((latest, count))
    for first, (start, _) in enumerate(taken):
        total = 0
        for at, count in taken[first:]:
            total += count
            assert total * 60_000 <= limit * 60_000 + limit * (at - start)


@given(st.integers(1, 50), CALLS, st.integers(1, 50))
def test_who_waits_as_told_is_admitted_and_not_a_millisecond_earlier(
    limit: int, calls: list[tuple[int, int]], count: int
) -> None:
    quotas = Quotas({"a": limit})
    now = NOW
    for some, step in calls:
        now += step
        admitted(quotas, some, now)
    error = refused(quotas, count, now)
    if error is None:
        return
    assert error.retryable == (count <= limit)
    if error.retry_after is not None:
        wait_ms = round(error.retry_after * 1000)
        assert wait_ms > 0
        assert not admitted(quotas, count, now + wait_ms - 1)
        assert admitted(quotas, count, now + wait_ms)


@given(st.integers(1, 1000), st.lists(st.integers(1, 400), min_size=1, max_size=50))
def test_nothing_drifts_however_finely_time_is_cut(limit: int, steps: list[int]) -> None:
    coarse, fine = Quotas({"a": limit}), Quotas({"a": limit})
    coarse.admit("a", limit, NOW)
    fine.admit("a", limit, NOW)
    now = NOW
    for step in steps:
        now += step
        fine.admit("a", 0, now)
    assert fine.level("a", now) == coarse.level("a", now) == min(limit, limit * (now - NOW) // 60_000)
