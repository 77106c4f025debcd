"""The numbers of a snapshot as families of metrics."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mqueue.broker.backstage import DiskNumbers
from mqueue.server.metrics.snapshot import Snapshot, TopicRow

_TOPIC = ("namespace", "topic")
_GROUP = (*_TOPIC, "group")

_COUNTERS = {
    "published": "Messages published, since the topic was made.",
    "delivered": "Messages handed out, to all groups.",
    "acked": "Messages acked, by all groups.",
    "nacked": "Messages nacked since the start.",
    "rejected": "Messages rejected since the start.",
    "released": "Messages released since the start.",
    "timed_out": "Messages whose lease ran out before they were settled, since the start.",
    "expired": "Messages that expired in the slowest group.",
    "cancelled": "Messages that were cancelled.",
    "dead": "Messages that died, in all groups.",
}
_GAUGES = {
    "depth": "What the slowest group has still to do, and what is scheduled.",
    "ready": "Messages that the slowest group could be given now.",
    "waiting": "Messages that wait for their next attempt in the slowest group.",
    "scheduled": "Messages that are not visible yet.",
    "leased": "Messages that consumers of the slowest group hold.",
    "retained": "Messages that are kept.",
    "bytes": "Bytes that the messages of the topic take.",
    "oldest_ready_seconds": "For how long the oldest ready message of the slowest group has been so.",
}


class BrokerCollector(Collector):
    """Tells of the snapshot that it was given last."""

    def __init__(self) -> None:
        self.snapshot = Snapshot([], 0, 0, 0, None)

    def collect(self) -> Iterator[Metric]:
        snapshot = self.snapshot
        yield GaugeMetricFamily("mqueue_ready", "1 while messages are taken.", int(snapshot.ready))
        yield GaugeMetricFamily("mqueue_topics", "Topics there are.", snapshot.topics)
        yield GaugeMetricFamily("mqueue_leases", "Leases that are held.", snapshot.leases)
        yield CounterMetricFamily(
            "mqueue_quota_refused_messages", "Messages that did not fit a quota.", snapshot.quota_refused
        )
        yield from _topics(snapshot.rows)
        yield from _groups(snapshot.rows)
        if snapshot.disk is not None:
            yield from _disk(snapshot.disk)


def _topics(rows: list[TopicRow]) -> Iterator[Metric]:
    for name, meaning in _COUNTERS.items():
        counter = CounterMetricFamily(f"mqueue_topic_{name}", meaning, labels=_TOPIC)
        for row in rows:
            counter.add_metric((row.namespace, row.topic), getattr(row, name))
        yield counter
    for name, meaning in _GAUGES.items():
        gauge = GaugeMetricFamily(f"mqueue_topic_{name}", meaning, labels=_TOPIC)
        for row in rows:
            gauge.add_metric((row.namespace, row.topic), getattr(row, name))
        yield gauge


def _groups(rows: list[TopicRow]) -> Iterator[Metric]:
    lag = GaugeMetricFamily("mqueue_group_lag", "What a group has still to do.", labels=_GROUP)
    oldest = GaugeMetricFamily(
        "mqueue_group_oldest_ready_seconds", "For how long its oldest ready message has been so.", labels=_GROUP
    )
    members = GaugeMetricFamily("mqueue_group_members", "Members of an assigned group.", labels=_GROUP)
    rebalances = CounterMetricFamily(
        "mqueue_group_rebalances", "How often its partitions were divided anew.", labels=_GROUP
    )
    blocked = GaugeMetricFamily(
        "mqueue_group_blocked_keys", "Ordering keys that wait for a message which fails again and again.", labels=_GROUP
    )
    diverted = GaugeMetricFamily(
        "mqueue_group_diverted_keys", "Ordering keys whose messages go to the dead-letter queue.", labels=_GROUP
    )
    for row in rows:
        for group in row.groups:
            labels = (row.namespace, row.topic, group.name)
            lag.add_metric(labels, group.depth)
            oldest.add_metric(labels, group.oldest_ready_seconds)
            blocked.add_metric(labels, group.blocked_keys)
            diverted.add_metric(labels, group.diverted_keys)
            if group.rebalances:
                members.add_metric(labels, group.members)
                rebalances.add_metric(labels, group.rebalances)
    yield from (lag, oldest, blocked, diverted, members, rebalances)


def _disk(disk: DiskNumbers) -> Iterator[Metric]:
    yield GaugeMetricFamily("mqueue_log_bytes", "Bytes that the segments take.", disk.bytes)
    yield GaugeMetricFamily("mqueue_log_segments", "Segments there are.", disk.segments)
    yield CounterMetricFamily("mqueue_log_written_bytes", "Bytes ever written to the log.", disk.position)
    yield GaugeMetricFamily("mqueue_disk_free_bytes", "Bytes that can still be written to the disk.", disk.free_bytes)
    yield GaugeMetricFamily("mqueue_damage_reports", "Damage found in the data directory since the start.", disk.damage)
