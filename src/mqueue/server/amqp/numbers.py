"""What is counted of AMQP, as families of metrics: written by the loop, read by the thread that writes the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class Counts(Struct):
    """Since the start. `unrouted`: messages that no queue wanted."""

    published: int = 0
    refused: int = 0
    unrouted: int = 0
    delivered: int = 0
    faults: int = 0
    """Channels and connections that ended with an error of the client, or ours."""


class AmqpCollector(Collector):
    def __init__(self, connections: Callable[[], int], counts: Counts) -> None:
        self._connections = connections
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("mqueue_amqp_connections", "Connections of AMQP that are open.", self._connections())
        messages = CounterMetricFamily("mqueue_amqp_messages", "Messages, by what became of them.", labels=("event",))
        for event in ("published", "refused", "unrouted", "delivered"):
            messages.add_metric((event,), getattr(self._counts, event))
        yield messages
        yield CounterMetricFamily(
            "mqueue_amqp_faults", "Channels and connections ended by an error.", self._counts.faults
        )
