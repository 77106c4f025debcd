"""A subscription: a named cursor on the server for each topic of a stream, which holds retention back.

Spark asks a new query for its first offsets again when its first batch is tried again. The cursor gives the same answer
then, and what lies behind it is still there. It moves when Spark says that a batch is done, one batch late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from mqueue.model.errors import NotFound
from mqueue.pipeline.horizon import Reach
from mqueue.pipeline.offsets import Places

if TYPE_CHECKING:
    from mqueue.broker.bounds import PartitionOffsets
    from mqueue.client.sync import Client

TTL = "7d"
"""For how long a subscription holds retention back after its stream was last heard of."""
RENEW_SECONDS = 3600.0


Shape: TypeAlias = "tuple[int, datetime | None]"
"""Of a topic: how many partitions it has, and when it was made."""


def shape_of(partitions: Mapping[int, PartitionOffsets]) -> Shape:
    return len(partitions), next((place.made_at for place in partitions.values()), None)


class Subscription:
    """`now` tells seconds that only go on."""

    def __init__(self, name: str, now: Callable[[], float]) -> None:
        self.name = name
        self._now = now
        self._renewed: dict[str, float] = {}
        self._shapes: dict[str, Shape] = {}

    def begin(self, client: Client, reach: Reach, start: Callable[[], Places]) -> Places:
        """Where the subscription stands; where it is new, `start`, from which it holds now."""
        stands: Places = {}
        for topic, partitions in reach.items():
            cursor = next((each for each in client.cursors(topic) if each.name == self.name), None)
            if cursor is not None:
                stands[topic] = {n: cursor.offsets[n] for n in partitions}
        if missing := reach.keys() - stands.keys():
            wanted = start()
            for topic in missing:
                self._set(client, topic, wanted[topic])
                stands[topic] = wanted[topic]
        return stands

    def renew(self, client: Client, reach: Reach) -> None:
        """Keep it alive; a topic or a partition that has come to the read, or a topic that was made anew, is held from
        its beginning on."""
        for topic, partitions in reach.items():
            due = self._renewed.get(topic, -RENEW_SECONDS) + RENEW_SECONDS
            if self._now() >= due or self._shapes.get(topic) != shape_of(partitions):
                self._set(client, topic, None)
                self._shapes[topic] = shape_of(partitions)

    def advance(self, client: Client, done: Places) -> None:
        """Everything before these offsets may go."""
        for topic, partitions in done.items():
            with suppress(NotFound):  # the topic is gone, or the cursor had expired and retention went on
                self._set(client, topic, partitions)

    def _set(self, client: Client, topic: str, offsets: dict[int, int] | None) -> None:
        client.set_cursor(topic, self.name, offsets, ttl=TTL)
        self._renewed[topic] = self._now()
