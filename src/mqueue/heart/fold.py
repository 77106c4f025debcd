"""Rebuilding the heart from a log: frames and events in order give the state that wrote them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from mqueue.heart.dedup import Claim
from mqueue.heart.partition import Stretch, cut
from mqueue.heart.schedule import NEVER
from mqueue.heart.state import State
from mqueue.model.events import Event

Appended: TypeAlias = tuple[int, int, list[Stretch], int, list[tuple[bytes, Claim]]]
"""topic, partition, stretches, time, claims on idempotency keys"""
Entry: TypeAlias = Appended | Event


def fold(state: State, entries: Iterable[Entry]) -> State:
    """Apply entries one after the other. What was due before an entry happened before it."""
    for entry in entries:
        if isinstance(entry, Event):
            topic = state.topics.get(entry.topic)
            if topic is not None:
                topic.ripen(entry.at)
            state.apply(entry)
        else:
            number, partition, stretches, at, claims = entry
            topic = state.topics[number]
            fresh = cut(stretches, topic.partitions[partition].next, NEVER)
            if fresh:  # else a checkpoint knows them already
                state.append(topic, partition, fresh, at)
                for key, claim in claims:
                    topic.dedup.add(key, claim, topic.settings)
    return state
