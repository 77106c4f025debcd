"""How large commits are and how long the disk takes for them. Told by the thread that commits."""

from __future__ import annotations

from time import perf_counter

from prometheus_client import CollectorRegistry, Histogram

_BYTES = tuple(float(1 << power) for power in range(8, 27, 2))
_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


class CommitGauge:
    """A `mqueue.log.segments.writer.Gauge`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._bytes = Histogram("mqueue_commit_bytes", "Bytes of a commit.", buckets=_BYTES, registry=registry)
        self._write = Histogram(
            "mqueue_commit_write_seconds", "Time to pack and write a commit.", buckets=_SECONDS, registry=registry
        )
        self._sync = Histogram(
            "mqueue_commit_sync_seconds", "Time of a sync, shared by all calls of a commit.", buckets=_SECONDS,
            registry=registry,
        )  # fmt: skip

    def begin(self) -> float:
        return perf_counter()

    def wrote(self, since: float, length: int) -> None:
        self._write.observe(perf_counter() - since)
        self._bytes.observe(length)

    def synced(self, since: float) -> None:
        self._sync.observe(perf_counter() - since)
