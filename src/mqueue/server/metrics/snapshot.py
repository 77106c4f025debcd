"""The broker at one moment, as far as metrics tell of it: so many topics with numbers of their own, the rest added up.

Taken a few topics at a time, so that no call has to wait for a scrape. Does not know how numbers are written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from msgspec import Struct

from mqueue.broker import backstage
from mqueue.broker.backstage import DiskNumbers, TopicNumbers
from mqueue.broker.broker import Broker
from mqueue.broker.numbers import GroupStats

OTHER = "_other"
"""Stands for all that have no series of their own. No name of a topic that is shown can be in its way: it would have
come before the rest."""
GROUPS_MAX = 20
"""Groups of a topic with numbers of their own."""
_TOPICS_AT_ONCE = 16


class GroupRow(Struct):
    """A group, or what is left of them, in numbers."""

    name: str
    depth: int = 0
    oldest_ready_seconds: float = 0.0
    members: int = 0
    rebalances: int = 0
    blocked_keys: int = 0
    diverted_keys: int = 0

    def include(self, row: GroupRow) -> None:
        """Add up with another one, of another group or topic."""
        self.depth += row.depth
        self.oldest_ready_seconds = max(self.oldest_ready_seconds, row.oldest_ready_seconds)
        self.members += row.members
        self.rebalances += row.rebalances
        self.blocked_keys += row.blocked_keys
        self.diverted_keys += row.diverted_keys


class TopicRow(Struct):
    """A topic, or what is left of them, in numbers."""

    namespace: str
    topic: str
    published: int = 0
    delivered: int = 0
    acked: int = 0
    nacked: int = 0
    rejected: int = 0
    released: int = 0
    timed_out: int = 0
    expired: int = 0
    cancelled: int = 0
    dead: int = 0
    depth: int = 0
    ready: int = 0
    waiting: int = 0
    scheduled: int = 0
    leased: int = 0
    retained: int = 0
    bytes: int = 0
    oldest_ready_seconds: float = 0.0
    groups: list[GroupRow] = []

    def add(self, numbers: TopicNumbers) -> None:
        stats, turned = numbers.stats, numbers.turned
        groups = stats.groups.values()
        self.published += stats.published
        self.delivered += sum(group.delivered for group in groups)
        self.acked += sum(group.acked for group in groups)
        self.dead += sum(group.dead for group in groups)
        self.nacked += turned["nack"]
        self.rejected += turned["reject"]
        self.released += turned["release"]
        self.timed_out += turned["expire"]
        self.expired += stats.expired
        self.cancelled += stats.cancelled
        self.depth += stats.depth
        self.ready += stats.ready
        self.waiting += stats.waiting
        self.scheduled += stats.scheduled
        self.leased += stats.leased
        self.retained += stats.retained
        self.bytes += stats.bytes
        self.oldest_ready_seconds = max(self.oldest_ready_seconds, stats.oldest_ready_seconds or 0.0)

    def include(self, row: TopicRow) -> None:
        """Add up with another one; the groups of all are one."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(row, name))
        self.oldest_ready_seconds = max(self.oldest_ready_seconds, row.oldest_ready_seconds)
        self.include_groups(row.groups)

    def include_groups(self, rows: Iterable[GroupRow]) -> None:
        for row in rows:
            if not self.groups:
                self.groups = [GroupRow(OTHER)]
            self.groups[0].include(row)


_SUMS = [
    name for name in TopicRow.__struct_fields__ if name not in ("namespace", "topic", "oldest_ready_seconds", "groups")
]


class Gathered:
    """Topics as they are counted, `topics_max` of them with numbers of their own."""

    def __init__(self, topics_max: int) -> None:
        self._topics_max = topics_max
        self._rows: list[TopicRow] = []
        self._other = TopicRow(OTHER, OTHER)
        self.count = 0

    def add(self, numbers: TopicNumbers) -> None:
        self.count += 1
        if len(self._rows) < self._topics_max:
            row = TopicRow(numbers.namespace, numbers.stats.topic, groups=_groups(numbers.stats.groups))
            self._rows.append(row)
        else:
            row = self._other
            row.include_groups(_row(name, [stats]) for name, stats in numbers.stats.groups.items())
        row.add(numbers)

    async def add_all(self, broker: Broker) -> None:
        for some in backstage.topic_numbers(broker, _TOPICS_AT_ONCE):
            for numbers in some:
                self.add(numbers)
            await asyncio.sleep(0)  # between two calls, not before all of them

    @classmethod
    def joined(cls, topics_max: int, parts: Iterable[Gathered]) -> Gathered:
        """What was counted in several places; none of them counted the same topic."""
        whole = cls(topics_max)
        for part in parts:
            room = topics_max - len(whole._rows)
            whole._rows += part._rows[:room]
            for row in (*part._rows[room:], part._other):
                whole._other.include(row)
            whole.count += part.count
        return whole

    @property
    def rows(self) -> list[TopicRow]:
        return [*self._rows, self._other] if self.count > len(self._rows) else self._rows


class Snapshot(Struct, frozen=True):
    rows: list[TopicRow]
    topics: int
    leases: int
    quota_refused: int
    disk: DiskNumbers | None
    ready: bool = True
    """Whether messages are taken."""


async def take(broker: Broker, topics_max: int) -> Snapshot:
    gathered = Gathered(topics_max)
    await gathered.add_all(broker)
    return Snapshot(
        gathered.rows,
        gathered.count,
        backstage.leases(broker),
        backstage.quota_refusals(broker),
        backstage.disk_numbers(broker),
        not backstage.trouble(broker),
    )


def _groups(groups: Mapping[str, GroupStats]) -> list[GroupRow]:
    shown = [_row(name, [stats]) for name, stats in _first(groups.items())]
    if len(groups) > len(shown):
        shown.append(_row(OTHER, list(groups.values())[len(shown) :]))
    return shown


def _row(name: str, groups: list[GroupStats]) -> GroupRow:
    return GroupRow(
        name,
        sum(stats.depth for stats in groups),
        max(stats.oldest_ready_seconds or 0.0 for stats in groups),
        sum(stats.members for stats in groups),
        sum(stats.rebalances for stats in groups),
        sum(stats.blocked_keys for stats in groups),
        sum(stats.diverted_keys for stats in groups),
    )


def _first(items: Iterable[tuple[str, GroupStats]]) -> list[tuple[str, GroupStats]]:
    return list(items)[:GROUPS_MAX]
