"""How long messages were ready before somebody got them. Told by the loops that deliver, one for each server."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from mqueue.server.metrics.spread import Spread

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0)


class Waits(Collector):
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spread = Spread(SECONDS)

    def add(self, seconds: float) -> None:
        with self._lock:
            self._spread.add(seconds)

    def collect(self) -> Iterator[Metric]:
        meaning = "For how long the first message of a delivery had been ready; first attempts only."
        yield HistogramMetricFamily("mqueue_deliver_seconds", meaning, self._spread.cumulative(), self._spread.total)
