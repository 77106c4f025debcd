"""Topics in a dozen plain numbers each, cheap enough to count thousands of them every other second.

What `numbers` tells of one topic to who asks for it, this tells of all of them to who watches: no struct for each
group, no sizes from the log. Takes the lock for some topics at a time. Does not know who looks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from mqueue.broker.broker import Broker
from mqueue.heart.group import Group
from mqueue.heart.topic import Topic

_LOOKS_MAX = 1000
"""Of what was given back so many runs of a partition are looked at: they lie in the order they came, near enough."""


class Tally(Struct, frozen=True, gc=False):
    """`ready` is of the group that is furthest behind; `waiting`, `leased`, `acked` and `dead` of all together.

    `published`, `delivered` and `acked` only rise, but for a seek. `oldest_at`: since when the message that is ready
    longest is visible, in milliseconds; 0: nothing is ready. `by_group`: (name, `acked`, `oldest_at`) of each.
    """

    namespace: str
    topic: str
    made_at: int
    published: int
    delivered: int
    acked: int
    ready: int
    waiting: int
    leased: int
    scheduled: int
    dead: int
    oldest_at: int
    groups: int
    cursors: int
    by_group: tuple[tuple[str, int, int], ...]


def tallies(broker: Broker, at_once: int) -> Iterator[Sequence[Tally]]:
    """All topics of all namespaces, `at_once` of them for each time the lock is taken; in the order they were made."""
    engine = broker._engine
    with engine.lock:
        numbers = list(engine.store.state.topics)
    for first in range(0, len(numbers), at_once):
        with engine.lock:  # to look is no reason to let time pass: that would have to be written down
            topics = map(engine.store.state.topics.get, numbers[first : first + at_once])
            found = [tally(topic) for topic in topics if topic is not None and not topic.hidden]
        yield found  # with the lock let go: who gets it may do whatever they like before they come back


def tally(topic: Topic) -> Tally:
    """Call it with the lock held."""
    published = scheduled = 0
    for partition in topic.partitions:
        published += partition.next
        scheduled += partition.scheduled
    delivered = acked = dead = leased = ready = waiting = oldest = 0
    deepest = -1
    by_group = []
    for group in topic.groups.values():
        delivered += group.delivered
        acked += group.acked
        dead += group.dead
        leased += group.in_flight
        here, away = _before(group)
        waiting += away
        if here + away + group.in_flight > deepest:
            deepest, ready = here + away + group.in_flight, here
        since = 0
        if here:
            since = _oldest(group)
            oldest = min(oldest, since) if oldest else since
        by_group.append((group.name, group.acked, since))
    if deepest < 0:
        ready, oldest = _unread(topic)
    return Tally(
        topic.namespace,
        topic.name,
        topic.made_at,
        published,
        delivered,
        acked,
        ready,
        waiting,
        leased,
        scheduled,
        dead,
        oldest,
        len(topic.groups),
        len(topic.pins),
        tuple(by_group),
    )


def _before(group: Group) -> tuple[int, int]:
    """What a group has before it: how much of that is ready, and how much waits for its retry."""
    ready = waiting = 0
    for reader in group.readers:
        ready += reader.partition.visible - reader.consumed + reader.ready_back
        waiting += reader.waiting
    return ready, waiting


def _oldest(group: Group) -> int:
    looked = (reader.oldest_ready(_LOOKS_MAX) for reader in group.readers)
    return min((since for since in looked if since is not None), default=0)


def _unread(topic: Topic) -> tuple[int, int]:
    """Of a topic that no group reads: how much is there, and since when. Bare loops: most topics of many are such."""
    ready = oldest = 0
    for partition in topic.partitions:
        if not partition.open:
            continue
        ready += partition.open
        if partition.void:  # some of it has ended: it is looked at as a group would
            return sum(each.open for each in topic.partitions), _oldest(
                Group(topic.id, "", topic.partitions, topic.firsts, 0)
            )
        for lane in partition.lanes.values():
            if lane.at and (not oldest or lane.at[0] < oldest):
                oldest = lane.at[0]
    return ready, oldest
