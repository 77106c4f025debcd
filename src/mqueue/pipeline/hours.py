"""What a report knows, as plain values: numbers per topic and hour, and per topic and group."""

from __future__ import annotations

from msgspec import Struct

PERCENTILES = (0.5, 0.9, 0.99)
COUNTS = ("published", "scheduled", "delivered", "redelivered", "acked", "failed", "timed_out", "dead", "expired")


class Latency(Struct, frozen=True):
    """From publish to ack, in seconds: of so many messages, the percentiles and the longest.

    `first` is the median of the time to the first delivery; `again` the share that was delivered more than once.
    """

    messages: int
    seconds: tuple[float, ...]
    longest: float
    first: float
    again: float


class Hour(Struct, frozen=True):
    """What happened to a topic in an hour. `latency` is that of messages published then; None if none was acked."""

    topic: str
    start_ms: int
    counts: dict[str, int]
    latency: Latency | None


class GroupLatency(Struct, frozen=True):
    topic: str
    group: str
    latency: Latency


class Findings(Struct, frozen=True):
    hours: tuple[Hour, ...]
    groups: tuple[GroupLatency, ...]
    since_ms: int | None
    until_ms: int

    def topics(self) -> list[str]:
        """Those with most messages first."""
        published: dict[str, int] = {}
        for hour in self.hours:
            published[hour.topic] = published.get(hour.topic, 0) + hour.counts["published"]
        return sorted(published, key=lambda topic: (-published[topic], topic))

    def total(self, count: str, topic: str | None = None) -> int:
        return sum(hour.counts[count] for hour in self.hours if topic in (None, hour.topic))
