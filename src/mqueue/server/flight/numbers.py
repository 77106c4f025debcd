"""Flight calls in numbers, for the page of metrics. Whoever counts holds a lock of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class CallNumbers(Collector):
    def __init__(self) -> None:
        self.under_way = 0
        self.over: Counter[tuple[str, str]] = Counter()
        """By method and outcome, ok or failed."""

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("mqueue_flight_calls_in_flight", "Flight calls under way.", self.under_way)
        calls = CounterMetricFamily("mqueue_flight_calls", "Flight calls ended.", labels=("method", "outcome"))
        for names, count in tuple(self.over.items()):
            calls.add_metric(names, count)
        yield calls
