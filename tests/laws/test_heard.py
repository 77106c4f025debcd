"""A group that asks for messages is heard of, also after a restart, and that costs next to nothing."""

from __future__ import annotations

from mqueue import Broker
from mqueue.model.events import Heard
from mqueue.store.recover import recover
from mqueue.testing import ManualClock


def heard(q: Broker) -> list[int]:
    store = q._engine.store
    store.flush()
    return [event.at for event in list(store.log.entries()) if isinstance(event, Heard)]


def test_asking_in_vain_is_told_once_an_hour() -> None:
    clock = ManualClock()
    q = Broker(clock=clock)
    start = clock.now()
    for _ in range(10 * 60 + 1):
        assert q.receive("t") == []
        clock.advance("1m")
    assert [(at - start) / 3_600_000 for at in heard(q)] == list(range(1, 11))
    group = recover(q._engine.store.log).names["default", "t"].groups["default"]
    assert clock.now() - group.heard_at < 3_600_000


def test_what_is_handed_out_needs_no_telling() -> None:
    clock = ManualClock()
    q = Broker(clock=clock)
    for _ in range(30):
        clock.advance("59m")
        q.publish("t", b"x")
        q.ack(q.receive("t"))
        assert q.receive("t") == []
    assert heard(q) == []
