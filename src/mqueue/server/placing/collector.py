"""The numbers of a node as families of metrics: what it owns, writes and holds back at each server, what it forwards.

Read by the thread that writes the page, while others count on: every number is true of a moment, not all of the same.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mqueue.cluster.atlas import Atlas
from mqueue.cluster.estate import Estate
from mqueue.cluster.redis.outpost import Outpost

_COUNTERS = {
    "appends": "Statements that appended what was published here.",
    "append_rows": "Messages that they appended.",
    "append_seconds": "Time that they took.",
    "append_failures": "Those of them that failed.",
    "in_doubt": "Those of them that were sent and not answered.",
    "in_doubt_left": "Those of them of which nobody could tell what became of them.",
    "commits": "Statements that wrote down what is delivered here.",
    "commit_rows": "Rows of journals and messages that they wrote.",
    "commit_seconds": "Time that they took.",
    "commit_failures": "Those of them that failed.",
    "takeovers": "Virtual shards that were taken over.",
    "takeover_seconds": "Time that it took.",
    "doubts": "Times that everything owned was forgotten.",
    "refused": "Calls that were refused because too much waits.",
    "breaker_opened": "Times that the breaker opened.",
    "flushed": "Messages of logs of nodes that reached the server.",
    "flush_failures": "Attempts to bring them there that failed.",
    "flush_dropped": "Messages of such logs whose topics were deleted meanwhile.",
}
_GAUGES = {
    "buffered_messages": "Messages that wait here to be written.",
    "buffered_bytes": "What they weigh.",
}
_BREAKER = {"closed": 0, "half_open": 1, "open": 2}
_SHARD = ("shard",)


class Node(Protocol):
    """`mqueue.cluster.node.Node` is one."""

    estates: list[Estate]
    outpost: Outpost
    atlas: Atlas

    def others(self) -> Sequence[str]: ...


class NodeCollector(Collector):
    """`forwards`: how many requests were handed to other nodes, by how that ended."""

    def __init__(self, node: Node, forwards: Mapping[str, int]) -> None:
        self._node = node
        self._forwards = forwards

    def collect(self) -> Iterator[Metric]:
        estates = list(self._node.estates)
        yield GaugeMetricFamily(
            "mqueue_nodes", "Nodes that deliver something, this one included.", self._nodes(estates)
        )
        forwards = CounterMetricFamily("mqueue_forwards", "Requests handed to other nodes.", labels=("result",))
        for result, count in tuple(self._forwards.items()):
            forwards.add_metric((result,), count)
        yield forwards
        yield from _map(self._node.atlas)
        yield from _meters(estates)
        yield from _state(estates)
        if self._node.outpost.line.configured:
            yield from _redis(self._node.outpost, estates)

    def _nodes(self, estates: Sequence[Estate]) -> int:
        return len(self._node.others()) + any(estate.owned for estate in estates)


def _map(atlas: Atlas) -> Iterator[Metric]:
    moving = GaugeMetricFamily("mqueue_vshards_moving", "Virtual shards on their way to another server.")
    moving.add_metric((), len(atlas.map.moves))
    troubles = GaugeMetricFamily(
        "mqueue_map_conflicts", "Virtual shards about which servers contradict each other.", labels=("kind",)
    )
    for kind, count in Counter(trouble.code for trouble in atlas.troubles()).items():
        troubles.add_metric((kind,), count)
    yield from (moving, troubles)


def _meters(estates: Sequence[Estate]) -> Iterator[Metric]:
    """What is told as it was counted."""
    for name, meaning in _COUNTERS.items():
        counter = CounterMetricFamily(f"mqueue_shard_{name}", meaning, labels=_SHARD)
        for estate in estates:
            counter.add_metric((estate.name,), getattr(estate.meters, name))
        yield counter
    for name, meaning in _GAUGES.items():
        gauge = GaugeMetricFamily(f"mqueue_shard_{name}", meaning, labels=_SHARD)
        for estate in estates:
            gauge.add_metric((estate.name,), getattr(estate.meters, name))
        yield gauge


def _state(estates: Sequence[Estate]) -> Iterator[Metric]:
    owned = GaugeMetricFamily("mqueue_shard_owned", "Virtual shards that are delivered here.", labels=_SHARD)
    free = GaugeMetricFamily("mqueue_shard_unowned", "Virtual shards that nobody delivers from.", labels=_SHARD)
    up = GaugeMetricFamily("mqueue_shard_up", "1 while messages are taken.", labels=_SHARD)
    beat = GaugeMetricFamily("mqueue_shard_beat_age_seconds", "How long ago a beat got through.", labels=_SHARD)
    breaker = GaugeMetricFamily("mqueue_shard_breaker", "0 closed, 1 half open, 2 open.", labels=_SHARD)
    timeline = GaugeMetricFamily("mqueue_shard_timeline", "Rises by one with every promotion.", labels=_SHARD)
    lag = GaugeMetricFamily("mqueue_shard_flush_lag_seconds", "Age of the oldest message in the log.", labels=_SHARD)
    for estate in estates:
        label, meters = (estate.name,), estate.meters
        owned.add_metric(label, estate.owned)
        free.add_metric(label, sum(not owner.address for owner in list(estate.owners.values())))
        up.add_metric(label, int(estate.takes))
        if meters.beaten_at:
            beat.add_metric(label, time.monotonic() - meters.beaten_at)
        breaker.add_metric(label, _BREAKER[meters.breaker])
        lag.add_metric(label, meters.flush_lag_ms / 1000)
        timeline.add_metric(label, estate.seen.timeline)
    yield from (owned, free, up, beat, breaker, lag, timeline)


def _redis(outpost: Outpost, estates: Sequence[Estate]) -> Iterator[Metric]:
    found = CounterMetricFamily("mqueue_redis_frames_found", "Frames found in Redis.", labels=_SHARD)
    missed = CounterMetricFamily("mqueue_redis_frames_missed", "Frames looked for and not found.", labels=_SHARD)
    for estate in estates:
        found.add_metric((estate.name,), estate.annex.found)
        missed.add_metric((estate.name,), estate.annex.missed)
    yield from (found, missed)
    yield GaugeMetricFamily("mqueue_redis_away", "1 while Redis cannot be reached.", int(outpost.line.is_away))
    yield CounterMetricFamily("mqueue_redis_copies_sent", "Copies of frames sent to Redis.", outpost.outbox.sent)
    yield CounterMetricFamily("mqueue_redis_copies_dropped", "Times that copies were not sent.", outpost.outbox.dropped)
