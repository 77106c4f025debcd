"""How large commits are and how long the disk takes for them. Told by the threads that commit."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from time import perf_counter

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from mqueue.server.metrics.spread import Spread

_BYTES = tuple(float(1 << power) for power in range(8, 27, 2))
_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


class CommitGauge(Collector):
    """A `mqueue.log.segments.writer.Gauge`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # one writes while another syncs
        self._bytes, self._write, self._sync = Spread(_BYTES), Spread(_SECONDS), Spread(_SECONDS)

    def begin(self) -> float:
        return perf_counter()

    def wrote(self, since: float, length: int) -> None:
        seconds = perf_counter() - since
        with self._lock:
            self._write.add(seconds)
            self._bytes.add(length)

    def synced(self, since: float) -> None:
        seconds = perf_counter() - since
        with self._lock:
            self._sync.add(seconds)

    def collect(self) -> Iterator[Metric]:
        for name, meaning, spread in (
            ("mqueue_commit_bytes", "Bytes of a commit.", self._bytes),
            ("mqueue_commit_write_seconds", "Time to pack and write a commit.", self._write),
            ("mqueue_commit_sync_seconds", "Time of a sync, shared by all calls of a commit.", self._sync),
        ):
            yield HistogramMetricFamily(name, meaning, spread.cumulative(), spread.total)
