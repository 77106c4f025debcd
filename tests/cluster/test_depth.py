"""How deep a topic may get: however many publish at once, through whichever node."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import pytest

import mqueue
from mqueue.config import Cluster, Config, Metrics, Secret
from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer
from tests.cluster.alone import Alone

DEPTH_MAX = 5
PUBLISHERS = 32


@pytest.mark.parametrize("overflow", ["refuse", "drop_oldest"])
def test_many_at_once_do_not_overshoot(database: str, overflow: Literal["refuse", "drop_oldest"]) -> None:
    config = Config(metrics=Metrics(enabled=False), cluster=Cluster((Secret(database),)))
    with (
        RunningServer(config) as one,
        RunningServer(config) as two,
        mqueue.Client(one.url, retry=False) as first,
        mqueue.Client(two.url, retry=False) as second,
    ):
        for topic in ("t0", "t1", "t2"):
            first.configure(topic, max_depth=DEPTH_MAX, overflow=overflow, dlq_dropped=True)

            def publish(number: int, topic: str = topic) -> str:
                try:
                    (first, second)[number % 2].publish(topic, str(number))
                except mqueue.QueueFull:
                    return "full"
                return "done"

            with ThreadPoolExecutor(PUBLISHERS) as publishers:
                told = Counter(publishers.map(publish, range(4 * PUBLISHERS)))
            assert second.stats(topic).depth == DEPTH_MAX
            assert told["done"] == (DEPTH_MAX if overflow == "refuse" else 4 * PUBLISHERS)
            kept = [message.text() for message in second.receive(topic, limit=100)]
            assert len(kept) == DEPTH_MAX
            if overflow == "drop_oldest":  # nothing is lost, however many were on their way
                dead = [message.text() for message in first.receive(f"{topic}.dlq", limit=1000)]
                assert sorted(kept + dead, key=int) == [str(number) for number in range(4 * PUBLISHERS)]


def test_who_takes_over_lets_go_of_what_is_too_much(database: str) -> None:
    """Whoever delivered before was to, and was gone before it was durable."""
    node = Alone(database, ManualClock())
    try:
        node.ask(lambda mouth, owner: mouth.publish_many("t", [str(number) for number in range(2 * DEPTH_MAX)]))
        rules = {"max_depth": DEPTH_MAX, "overflow": "drop_oldest", "dlq_dropped": True}
        node.ask(lambda mouth, owner: owner.configure("t", **rules))
        node.again()
        left = node.ask(lambda mouth, owner: owner.receive("t", limit=100))
        assert [message.text() for message in left] == [str(DEPTH_MAX + number) for number in range(DEPTH_MAX)]
        dead = node.ask(lambda mouth, owner: owner.receive("t.dlq", limit=100))
        assert [message.text() for message in dead] == [str(number) for number in range(DEPTH_MAX)]
    finally:
        node.close()
