"""What a server shows of its broker beyond the calls of users: partitions, single groups, namespaces, totals.

Each takes the lock once, for as long as it takes to count. It does not know who asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

from mqueue.broker.commits import committed, settled
from mqueue.broker.explain import find
from mqueue.broker.loop import LoopBroker
from mqueue.broker.numbers import GroupStats, group_stats, metrics
from mqueue.model.errors import NotFound
from mqueue.model.limits import Limits
from mqueue.model.names import LEDGER, check_name

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
        known = engine.known_topic(broker._namespace, topic).groups
        names = sorted(name for name in known if name > after)[:limit]
        return [(name, group_stats(known[name], now)) for name in names]

    return await _looked(broker, look)


async def group(broker: LoopBroker, topic: str, name: str) -> GroupStats:
    engine = broker._engine

    def look(now: int) -> GroupStats:
        known = engine.known_topic(broker._namespace, topic).groups.get(check_name(name, "group"))
        if known is None:
            raise NotFound(f"group {name!r} is not there on topic {topic!r}")
        return group_stats(known, now)

    return await _looked(broker, look)


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
