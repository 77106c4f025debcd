"""Requests in numbers: one tally for each route, of plain integers, because every request passes here.

Counted by the event loop alone, so there are no locks. Does not know what a request was about.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from mqueue.server.metrics.spread import Spread

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the histogram. A receive that waits is long without anything being slow."""
_LABELS = ("method", "route")
_CALLS = {
    "publish": "Time until a publish was answered, as durable as it was asked for.",
    "settle": "Time until a settle call was answered: durable.",
}


class Tally:
    __slots__ = ("answers", "received", "seconds", "sent")

    def __init__(self) -> None:
        self.answers: dict[int, int] = {}
        """How many, by status."""
        self.seconds = Spread(SECONDS)
        self.received = self.sent = 0

    def add(self, status: int, seconds: float, received: int, sent: int) -> None:
        """One request was answered."""
        answers = self.answers
        answers[status] = answers.get(status, 0) + 1
        self.seconds.add(seconds)
        self.received += received
        self.sent += sent


class Requests(Collector):
    """Tallies by method and path of the route; what found no route stands under two empty names."""

    def __init__(self, routes: Iterable[tuple[str, str]]) -> None:
        self.tallies: dict[tuple[str, str], Tally] = {route: Tally() for route in routes}
        self.unrouted = self.tallies.setdefault(("", ""), Tally())
        self.in_flight = 0
        self.calls = {verb: Spread(SECONDS) for verb in _CALLS}
        """Those that went well, whatever their route."""

    def collect(self) -> Iterator[Metric]:
        answers = CounterMetricFamily("mqueue_http_requests", "Requests answered.", labels=(*_LABELS, "status"))
        seconds = HistogramMetricFamily("mqueue_http_request_seconds", "Time until the answer.", labels=_LABELS)
        received = CounterMetricFamily("mqueue_http_received_bytes", "Bytes of bodies received.", labels=_LABELS)
        sent = CounterMetricFamily("mqueue_http_sent_bytes", "Bytes of bodies sent.", labels=_LABELS)
        for names, tally in self.tallies.items():
            if tally.answers:
                for status, count in tuple(tally.answers.items()):  # the loop counts on meanwhile
                    answers.add_metric((*names, str(status)), count)
                seconds.add_metric(names, tally.seconds.cumulative(), tally.seconds.total)
                received.add_metric(names, tally.received)
                sent.add_metric(names, tally.sent)
        yield from (answers, seconds, received, sent)
        yield GaugeMetricFamily("mqueue_http_requests_in_flight", "Requests under way.", self.in_flight)
        for verb, meaning in _CALLS.items():
            spread = self.calls[verb]
            yield HistogramMetricFamily(f"mqueue_{verb}_seconds", meaning, spread.cumulative(), spread.total)
