"""Redrive at a rate, in steps: how fast, how it is interrupted, what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import mqueue
from mqueue.testing import ManualClock
from tests.conformance.steps import die, payloads, refused

pytestmark = pytest.mark.usefixtures("embedded")


class ObligingClock(ManualClock):
    """Whoever wants to sleep has slept already."""

    def timeout(self, ms: int) -> float | None:
        self.advance(ms / 1000)
        return 0.0


@pytest.fixture
def clock() -> ManualClock:
    return ObligingClock()


def dead(q: Any, count: int) -> None:
    q.publish_many("t", [b"%d" % n for n in range(count)])
    for _ in range(count):
        die(q, "t")


def timed(clock: ManualClock) -> tuple[list[int], Callable[[object], bool]]:
    """A filter that lets everything pass, and when it was asked."""
    start = clock.now()
    times: list[int] = []

    def note(message: object) -> bool:
        times.append(clock.now() - start)
        return True

    return times, note


@pytest.mark.parametrize(("rate", "step"), [(10, 1), (2.5, 1), (100, 10), (45, 4)])
def test_no_faster_than_the_rate(q, clock, rate: float, step: int) -> None:
    dead(q, 30)
    times, note = timed(clock)
    done = q.dlq("t").redrive(rate=rate, filter=note)
    assert (done.matched, done.redriven) == (30, 30)
    assert all(at >= number // step * step * 1000 / rate for number, at in enumerate(times))
    assert times[-1] <= 30 * 1000 / rate + 1000
    assert payloads(q.receive("t", limit=100)) == [b"%d" % n for n in range(30)]


def test_without_a_rate_time_stands_still(q, clock) -> None:
    dead(q, 30)
    times, note = timed(clock)
    assert q.dlq("t").redrive(filter=note).redriven == 30
    assert set(times) == {0}


def test_a_dry_run_does_not_wait(q, clock) -> None:
    dead(q, 30)
    start = clock.now()
    done = q.dlq("t").redrive(rate=1, dry_run=True)
    assert (done.matched, done.redriven, clock.now()) == (30, 0, start)


def test_a_limit_with_a_rate(q) -> None:
    dead(q, 10)
    assert q.dlq("t").redrive(rate=20, limit=7).redriven == 7
    assert payloads(q.dlq("t").messages()) == [b"7", b"8", b"9"]


def test_what_was_interrupted_goes_on(q) -> None:
    dead(q, 10)
    seen: list[bytes] = []

    def stop_half_way(message: mqueue.DeadMessage) -> bool:
        if len(seen) == 5:
            raise RuntimeError("enough")
        seen.append(message.payload)
        return True

    with pytest.raises(RuntimeError, match="enough"):
        q.dlq("t").redrive(rate=10, filter=stop_half_way)
    assert len(q.dlq("t")) == 5
    assert q.dlq("t").redrive(rate=10).redriven == 5
    assert payloads(q.receive("t", limit=100)) == [b"%d" % n for n in range(10)]


@pytest.mark.parametrize("rate", [0, -1, 1_000_001, float("nan"), float("inf"), True, "10"])
def test_a_bad_rate_is_refused(q, rate: Any) -> None:
    dead(q, 1)
    with refused(mqueue.Refused, code="bad_rate"):
        q.dlq("t").redrive(rate=rate)
    assert len(q.dlq("t")) == 1
