"""What a server shows of its broker beyond the calls of users: partitions, single groups, namespaces, totals.

Each takes the lock once, for as long as it takes to count. It does not know who asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeVar

from msgspec import Struct

from mqueue.broker.commits import committed, settled
from mqueue.broker.explain import find
from mqueue.broker.loop import LoopBroker
from mqueue.broker.numbers import GroupStats, group_stats, metrics
from mqueue.heart.group import Group, Lease
from mqueue.model.errors import NotFound
from mqueue.model.limits import Limits
from mqueue.model.names import LEDGER, check_name
from mqueue.model.settings import Settings

T = TypeVar("T")


class PartitionSpan(Struct, frozen=True):
    """`start`: the first offset that is kept; `end`: the one that comes next; `messages`: how many are kept."""

    partition: int
    start: int
    end: int
    messages: int


def limits_of(broker: LoopBroker) -> Limits:
    """What a call may carry."""
    return broker._engine.store.limits


def settings_of(broker: LoopBroker, topic: str) -> Settings | None:
    """The settings of a topic; None: it is not there, and is not made either."""
    engine = broker._engine
    with engine.lock:
        found = engine.store.find_topic(broker._namespace, topic)
        return None if found is None else found.settings


async def partitions(broker: LoopBroker, topic: str) -> list[PartitionSpan]:
    engine = broker._engine

    def look(now: int) -> list[PartitionSpan]:
        known = engine.known_topic(broker._namespace, topic).partitions
        return [PartitionSpan(each.number, each.first, each.next, each.retained) for each in known]

    return await _looked(broker, look)


async def groups(broker: LoopBroker, topic: str, after: str, limit: int) -> list[tuple[str, GroupStats]]:
    """The first groups whose names come after `after`, in the order of their names."""
    engine = broker._engine

    def look(now: int) -> list[tuple[str, GroupStats]]:
        known = engine.known_topic(broker._namespace, topic)
        names = sorted(name for name in known.groups if name > after)[:limit]
        return [(name, group_stats(engine, known, known.groups[name], now)) for name in names]

    return await _looked(broker, look)


async def group(broker: LoopBroker, topic: str, name: str) -> GroupStats:
    engine = broker._engine

    def look(now: int) -> GroupStats:
        home = engine.known_topic(broker._namespace, topic)
        known = home.groups.get(check_name(name, "group"))
        if known is None:
            raise NotFound(f"group {name!r} is not there on topic {topic!r}")
        return group_stats(engine, home, known, now)

    return await _looked(broker, look)


class PriorityNumbers(Struct):
    """What a group has of one priority: `ready`, given back and `waiting`, or `leased`."""

    priority: int
    ready: int = 0
    waiting: int = 0
    leased: int = 0


async def priorities(broker: LoopBroker, topic: str, group_name: str) -> list[PriorityNumbers]:
    """The most urgent first. A group that is not there has everything before it."""
    engine = broker._engine

    def look(now: int) -> list[PriorityNumbers]:
        home = engine.known_topic(broker._namespace, topic)
        known = home.groups.get(check_name(group_name, "group"))
        group = known or Group(home.id, group_name, home.partitions, home.firsts, now)
        return _by_priority(engine.store.state.leases, group)

    return await _looked(broker, look)


def _by_priority(leases: Mapping[bytes, Lease], group: Group) -> list[PriorityNumbers]:
    found: dict[int, PriorityNumbers] = {}

    def of(priority: int) -> PriorityNumbers:
        return found.setdefault(priority, PriorityNumbers(priority))

    for reader in group.readers:
        for priority, _, _, _, mask in reader.upcoming():
            of(priority).ready += mask.bit_count()
        for run in reader.parked.values():
            if run.until:
                of(run.priority).waiting += run.count
    for token in group.tokens:
        for run in leases[token].runs:
            of(run.priority).leased += run.count
    return [found[priority] for priority in sorted(found)]


async def topic_of(broker: LoopBroker, id: int) -> str:
    """The topic of a message."""
    return await _looked(broker, lambda now: find(broker._engine, broker._namespace, id)[0].name)


async def namespaces(broker: LoopBroker) -> dict[str, int]:
    """How many topics each namespace has."""
    return await _looked(
        broker,
        lambda now: Counter(space for space, name in broker._engine.store.state.names if not name.startswith(LEDGER)),
    )


async def totals(broker: LoopBroker, namespace: str | None) -> dict[str, int]:
    """A namespace in numbers; None: all of them."""
    return await _looked(broker, lambda now: metrics(broker._engine, now, namespace))


async def _looked(broker: LoopBroker, look: Callable[[int], T]) -> T:
    """What is seen now, answered once it is durable: time passes when somebody looks."""
    engine = broker._engine
    try:
        with engine.lock:
            found = look(engine.tick())
    except BaseException:
        await settled()
        raise
    await committed()
    return found
