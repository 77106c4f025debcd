"""The page of metrics of one server: its own registry, so that several servers in a process do not mix.

A snapshot is taken when somebody asks, unless there is a young one. Writing the page is work for a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from msgspec.structs import replace
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from mqueue.broker.broker import Broker
from mqueue.model.clock import Clock
from mqueue.model.errors import Unavailable
from mqueue.server.metrics.broker import BrokerCollector
from mqueue.server.metrics.commits import CommitGauge
from mqueue.server.metrics.requests import Requests
from mqueue.server.metrics.snapshot import Snapshot, take
from mqueue.server.metrics.waits import Waits
from mqueue.server.security.gatekeeper import Refusals

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Vitals(Collector):
    """What is true of a server as a whole; looked up when asked for."""

    def __init__(
        self,
        version: str,
        node: str,
        started_at: int,
        connections: Callable[[], int],
        connections_max: int,
        refusals: Refusals,
    ) -> None:
        self._build = {"version": version, "node": node}
        self._started_at = started_at
        self._connections = connections
        self._connections_max = connections_max
        self._refusals = refusals

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("mqueue_build", "What is running, and what it calls itself.", self._build)
        yield GaugeMetricFamily("mqueue_start_time_seconds", "When it was started.", self._started_at / 1000)
        yield GaugeMetricFamily("mqueue_http_connections", "Connections that are open.", self._connections())
        yield GaugeMetricFamily("mqueue_http_connections_max", "So many may be.", self._connections_max)
        refusals = CounterMetricFamily("mqueue_refusals", "Calls turned away at the door.", labels=("reason",))
        for reason in ("unauthorized", "forbidden", "rate_limited"):
            refusals.add_metric((reason,), getattr(self._refusals, reason))
        yield refusals


class Page:
    """`take`: of whom a snapshot is taken. A node of a cluster has another one than the broker that it began with."""

    def __init__(
        self, broker: Broker, clock: Clock, requests: Requests, vitals: Vitals, topics_max: int, interval_ms: int
    ) -> None:
        self.registry = CollectorRegistry()
        self.take: Callable[[int], Awaitable[Snapshot]] = partial(take, broker)
        self._clock = clock
        self._topics_max, self._interval_ms = topics_max, interval_ms
        self._numbers = BrokerCollector()
        self._taken_at: int | None = None
        self._turn = asyncio.Lock()
        self.requests, self.commits, self.waits = requests, CommitGauge(), Waits()
        for collector in (vitals, requests, self._numbers, self.commits, self.waits):
            self.registry.register(collector)
        ProcessCollector(registry=self.registry)

    async def text(self) -> bytes:
        async with self._turn:
            await self._refresh()
            return await asyncio.to_thread(generate_latest, self.registry)

    async def _refresh(self) -> None:
        now = self._clock.now()
        if self._taken_at is None or now - self._taken_at >= self._interval_ms:
            try:
                self._numbers.snapshot = await self.take(self._topics_max)
            except Unavailable:  # the disk failed: what was known last is told, and that nothing is taken any more
                self._numbers.snapshot = replace(self._numbers.snapshot, ready=False)
            self._taken_at = now
