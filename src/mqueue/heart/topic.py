"""One topic: its settings, partitions, groups, cursors and idempotency keys."""

from __future__ import annotations

from collections.abc import Iterator

from mqueue.heart.dedup import Claim, Dedup
from mqueue.heart.group import Group
from mqueue.heart.outlet import Outlet
from mqueue.heart.partition import Partition
from mqueue.heart.reader import Reader
from mqueue.heart.schedule import NEVER
from mqueue.heart.staging import Ledger, Staging
from mqueue.model.events import Pinned, Planned
from mqueue.model.names import LEDGER, transaction_of
from mqueue.model.settings import Settings
from mqueue.policy.trickle import Trickle


class Topic:
    __slots__ = (
        "dedup",
        "dropped",
        "generation",
        "groups",
        "id",
        "ledger",
        "made_at",
        "name",
        "namespace",
        "nobody",
        "outlet",
        "partitions",
        "pins",
        "plain",
        "robin",
        "schedules",
        "settings",
        "staging",
    )

    def __init__(self, id: int, namespace: str, name: str, settings: Settings, now: int) -> None:
        self.id = id
        self.namespace = namespace
        self.name = name
        self.settings = settings
        self.made_at = now
        self.partitions = [Partition(number) for number in range(settings.partitions)]
        self.outlet: Outlet | None = None
        """Decides what of the scheduled messages becomes visible, where not all may that are due."""
        if settings.due_rate is not None:
            self._pace(settings, now)
        self.groups: dict[str, Group] = {}
        self.generation = 0
        """No member of a group that is gone had a higher one: whoever joins a new one of its name gets one above."""
        self.pins: dict[str, Pinned] = {}
        """What users' cursors hold back, by their names; also those that have expired and were not cleared away."""
        self.schedules: dict[str, Planned] = {}
        """What is published by the calendar, as it stands now."""
        self.ledger = Ledger() if name == LEDGER else None
        self.staging = Staging() if transaction_of(name) else None
        """Of a topic that stands for the transactions of a namespace, or for one of them. Users never see these."""
        self.dedup = Dedup()
        self.dropped = False
        self.robin = 0
        """Whose turn it is to get what has no key."""
        self.plain = _is_plain(settings)
        """Whether a message of nothing but bytes can be appended as it is."""
        self.nobody: Group | None = None
        """Stands for the groups while there are none, to find what would be dropped first."""

    def configure(self, settings: Settings, now: int) -> None:
        """Other settings. What was due by now is visible, or has to wait."""
        if settings.due_rate != self.settings.due_rate:
            self._pace(settings, now)
        self.settings = settings
        self.plain = _is_plain(settings)
        self.nobody = None
        for number in range(len(self.partitions), settings.partitions):
            partition = Partition(number)
            self.partitions.append(partition)
            if self.outlet is not None:
                partition.upto, partition.gate = (now, NEVER), self.outlet.gate
            for group in self.groups.values():
                group.add_reader(Reader(partition, 0))
        for group in self.groups.values():
            group.arrange(settings)
            if group.crew is not None:
                group.crew.grow(len(self.partitions))

    def _pace(self, settings: Settings, now: int) -> None:
        if self.outlet is None:
            self.outlet = Outlet(Trickle(None), now)
            for partition in self.partitions:
                partition.upto = now, NEVER
        self.outlet.change(settings.due_rate, now)
        for partition in self.partitions:
            partition.gate = self.outlet.gate

    @property
    def hidden(self) -> bool:
        return self.staging is not None or self.ledger is not None

    def ripen(self, now: int) -> None:
        """What is due becomes visible, as far as it may."""
        outlet = self.outlet
        for partition, shown in self._let_out(now) if outlet is None else outlet.let_out(self.partitions, now):
            for group in self.groups.values():
                group.shown(partition.number, shown)

    def _let_out(self, now: int) -> Iterator[tuple[Partition, list[tuple[int, int]]]]:
        for partition in self.partitions:
            if now >= partition.schedule.next_at:
                yield partition, partition.ripen(now)

    @property
    def scheduled(self) -> int:
        return sum(partition.scheduled for partition in self.partitions)

    @property
    def depth(self) -> int:
        """What the slowest group is owed, or all there is while no group reads; what is scheduled comes on top."""
        if self.groups:
            return self.scheduled + max(group.owed for group in self.groups.values())
        return self.scheduled + sum(partition.open for partition in self.partitions)

    @property
    def filled(self) -> int:
        """What counts against `max_depth`: the depth, or only what can be dropped."""
        if self.settings.overflow != "drop_ready":
            return self.depth
        if self.groups:
            return max(group.unheld for group in self.groups.values())
        return sum(partition.open for partition in self.partitions)

    @property
    def filled_min(self) -> int:
        """What is left of that when all that is visible and not leased is dropped."""
        if self.settings.overflow == "drop_ready":
            return 0
        return self.scheduled + max((group.in_flight for group in self.groups.values()), default=0)

    def room(self, promised: int) -> int:
        """How many messages more it takes, while so many are handed in that its depth does not count yet."""
        depth_max = self.settings.max_depth
        if depth_max is None:
            return NEVER
        room = depth_max - self.filled - promised
        return room if self.settings.overflow == "refuse" else max(room, depth_max - self.filled_min)

    @property
    def ends(self) -> tuple[int, ...]:
        return tuple(partition.next for partition in self.partitions)

    @property
    def floors(self) -> tuple[int, ...]:
        return tuple(partition.floor for partition in self.partitions)

    @property
    def firsts(self) -> tuple[int, ...]:
        """Where a group begins that wants everything: at the first offset that is alive, of each partition."""
        return tuple(partition.first for partition in self.partitions)

    def settled_by_all(self, claim: Claim, leased: bool, now: int) -> bool:
        """Whether every group has settled a message that is `leased` by none of them or by some."""
        partition = self.partitions[claim.partition]
        if not partition.is_alive(claim.offset) or claim.offset in partition.void:
            return True
        at = abs(partition.due.get(claim.offset, claim.at))
        if at > claim.made_at:
            at = partition.time_of(at, claim.offset)
        if at > now or leased or not self.groups:
            return False
        stop = claim.offset + 1
        for group in self.groups.values():
            reader = group.readers[claim.partition]
            if reader.passed(claim.priority, at, claim.offset, stop) < stop or reader.holds(claim.offset):
                return False
        return True


def _is_plain(settings: Settings) -> bool:
    return settings.default_ttl_ms is None and settings.max_depth is None
