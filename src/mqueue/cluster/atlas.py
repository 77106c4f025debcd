"""The map of the cluster as one node knows it: what its estates saw when they last looked, put together.

Estates look one after the other, so for a moment they may contradict each other. What is refused because of that is
refused at once; it is called trouble only if it stays. Used by all threads of a node.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from mqueue.cluster.map import Map, Trouble, judge, told
from mqueue.log.postgres.moving import Row
from mqueue.model.errors import ShardDown, Unavailable

LOGGER = logging.getLogger("mqueue.cluster")
STAYS_SECONDS = 5.0
"""A contradiction that lasts so long is not one of two looks at different times."""


class Atlas:
    """`servers`: how many this node knows, in places from 0 on."""

    def __init__(self, servers: int = 1, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.servers = servers
        self.map = Map({}, (), (), {})
        self._monotonic = monotonic
        self._said: dict[int, tuple[Mapping[int, int], Sequence[Row]]] = {}
        self._begun: dict[int, float] = {}
        self._since: dict[Trouble, float] = {}
        """When a trouble was first seen, of those that are there."""
        self._complained = ""
        self._lock = threading.Lock()
        self._kicks: list[Callable[[], None]] = []

    def tell(self, place: int, epochs: Mapping[int, int], away: Sequence[Row], begun: float) -> frozenset[int]:
        """A server says what lives there, by map epoch, and what comes or went. Which of the first are not believed.

        `begun`: when it was asked. Of two answers the one counts that was asked for later.
        """
        with self._lock:
            older = begun < self._begun.get(place, 0.0)
            self._begun[place] = max(begun, self._begun.get(place, 0.0))
            if not older and self._said.get(place) != (epochs, away):
                self._said[place] = epochs, away
                rows = {
                    place: [
                        *away,
                        *(Row(vshard, "active", epoch, 0, None, None, "none") for vshard, epoch in known.items()),
                    ]
                    for place, (known, away) in self._said.items()
                }
                self.map = judge(rows, self.servers)
                now = self._monotonic()
                self._since = {trouble: self._since.get(trouble, now) for trouble in self.map.troubles}
            return frozenset(one.vshard for one in self.map.troubles if one.place in (place, None))

    def troubles(self) -> list[Trouble]:
        """Those that stay."""
        before = self._monotonic() - STAYS_SECONDS
        with self._lock:
            return [trouble for trouble, since in self._since.items() if since <= before]

    def complain(self) -> None:
        """Say what is wrong, once, loudly; and when it is over."""
        found = told(self.troubles())
        if found and found != self._complained:
            LOGGER.error("the servers contradict each other: %s", found)
        elif self._complained and not found:
            LOGGER.warning("the servers agree again about where virtual shards are")
        self._complained = found

    def unfinished(self) -> set[tuple[int, int]]:
        """(source, target) of virtual shards that have left, and of which the source does not know that they came."""
        with self._lock:
            return {
                (place, row.to)
                for place, (_, away) in self._said.items()
                for row in away
                if row.state == "moved" and row.remains == "needed" and row.to in self._said
            }

    def littered(self) -> list[int]:
        """Servers where something lies that is free to go."""
        with self._lock:
            return [place for place, (_, away) in self._said.items() if any(row.remains == "free" for row in away)]

    def missing(self, vshard: int) -> Unavailable:
        """Why a virtual shard that has no home cannot be served."""
        target = self.map.targets.get(vshard)
        wrong = [trouble for trouble in self.troubles() if trouble.vshard == vshard]
        if wrong:
            return ShardDown(f"virtual shard {vshard} is not served: {wrong[0].why}", code="map_conflict")
        if target is not None and target >= self.servers:
            return ShardDown(
                f"virtual shard {vshard} has gone to server {target}, which this node does not know: it has "
                f"{self.servers} DATABASE_URLS; start it again with all of them"
            )
        if target is not None and target not in self._said:
            return ShardDown(f"virtual shard {vshard} has gone to server {target}, which cannot be reached")
        if target is not None or any(one.vshard == vshard for one in self.map.troubles):
            return Unavailable(f"virtual shard {vshard} is moving; try again", code="not_owner", retry_after=1)
        return ShardDown(f"virtual shard {vshard} is at none of the servers that can be reached")

    def on_stir(self, kick: Callable[[], None]) -> None:
        self._kicks.append(kick)

    def stir(self) -> None:
        """Something is not where it was: everybody looks soon."""
        for kick in self._kicks:
            kick()
