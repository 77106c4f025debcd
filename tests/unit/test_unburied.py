"""The dead whose copy cannot be made when they die: nobody else fails for that, and it is made later."""

from __future__ import annotations

from typing import Any

import pytest

import mqueue
from mqueue.model.errors import Backpressure
from mqueue.store.store import Store
from mqueue.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """While there is something in it, dead-letter queues take nothing."""
    trouble = [1]
    append_rows = Store.append_rows

    def refusing(self: Store, topic: Any, rows: Any, now: int) -> Any:
        if trouble and topic.name.endswith(".dlq"):
            raise Backpressure("no ids")
        return append_rows(self, topic, rows, now)

    monkeypatch.setattr(Store, "append_rows", refusing)
    return trouble


def test_what_is_dropped_is_copied_later(clock: ManualClock, full: list[int]) -> None:
    with mqueue.Broker(clock=clock, max_depth=2, overflow="drop_oldest", dlq_dropped=True) as q:
        for number in range(5):
            q.publish("t", b"%d" % number)
        assert [m.payload for m in q.receive("t", 9)] == [b"3", b"4"]
        assert q.receive("t.dlq", 9) == []
        full.clear()
        clock.advance("1s")
        assert [m.payload for m in q.receive("t.dlq", 9)] == [b"0", b"1", b"2"]
        clock.advance("1h")
        assert q.stats("t.dlq").published == 3


def test_who_is_not_copied_for_long_is_given_up_and_told_of(clock: ManualClock, full: list[int]) -> None:
    with mqueue.Broker(clock=clock) as q:
        q.publish("t", b"x")
        q.receive("t")[0].reject()
        for _ in range(12):
            clock.advance("1m")
            q.stats("t")
        full.clear()
        clock.advance("1m")
        assert q.receive("t.dlq") == []
        assert ["they have no copy in the DLQ" in report for report in q._engine.store.log.reports] == [True]
