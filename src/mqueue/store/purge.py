"""Emptying a topic: of everything, or of what one group has before it. Either ends it for every group, and answers how
many messages that were."""

from __future__ import annotations

from mqueue.heart.topic import Topic
from mqueue.model import events as ev
from mqueue.model.names import check_name
from mqueue.store.store import Store


def purge_all(store: Store, topic: Topic, now: int) -> int:
    """Cancel everything there is. What is leased may still be acked."""
    before = sum(partition.cancelled for partition in topic.partitions)
    store.happen(ev.Purged(now, topic.id, topic.ends), now)
    return sum(partition.cancelled for partition in topic.partitions) - before


def purge_ready(store: Store, topic: Topic, group_name: str, now: int) -> int:
    """Cancel what a group, which is made on first use, has before it. What it has leased stays, and the scheduled."""
    group = topic.groups.get(group_name) or store.group(topic, check_name(group_name, "group"), now)
    count = store.heart.purge_ready(topic, group, now)
    store.commit(now)
    return count
