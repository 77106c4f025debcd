"""How deep a topic may get: however many publish at once, through whichever node."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import pytest

import mqueue
from mqueue.config import Cluster, Config, Metrics, Secret
from mqueue.testing.server import RunningServer

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
            first.configure(topic, max_depth=DEPTH_MAX, overflow=overflow)

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
            assert len(second.receive(topic, limit=100)) == DEPTH_MAX
