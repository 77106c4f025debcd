"""Counting all topics keeps nobody waiting."""

from __future__ import annotations

from mqueue import Broker
from mqueue.broker.tallies import tallies


def test_the_lock_is_free_while_somebody_looks_at_what_was_counted() -> None:
    with Broker() as broker:
        for topic in ("a", "b", "c"):
            broker.publish(topic, b"1")
        seen = []
        for some in tallies(broker, 1):
            seen += [one.topic for one in some]
            assert broker._engine.lock.acquire(blocking=False)
            broker._engine.lock.release()
        assert seen == ["a", "b", "c"]
