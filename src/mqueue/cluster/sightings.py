"""Which timeline the servers of each shard have reached, told among nodes: by the other shards, and by Redis as a hint.

A server that was overtaken would not say so. What is noted with others holds for nodes that start later, too. Whoever
reads here reads its own server only: one in trouble holds up nobody else.
"""

from __future__ import annotations

from collections.abc import Sequence

from mqueue.cluster.redis.line import Line
from mqueue.cluster.redis.timelines import hint
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.seen import Seen, Sight
from mqueue.log.postgres.witness import note_sightings, sightings


class Sightings:
    """`seen`: of each shard, by its number. Asked by the threads of all estates."""

    def __init__(self, seen: Sequence[Seen], line: Line) -> None:
        self._seen = seen
        self._line = line

    def look(self, number: int, link: Link) -> None:
        """Before anything is believed of the server of a shard."""
        hint(self._line, number, self._seen[number])
        self._exchange(number, link)

    def _exchange(self, number: int, link: Link) -> None:
        """Learn what was noted at a server of the others, and note there what is not."""
        if len(self._seen) < 2:
            return
        noted = sightings(link)
        for shard, sight in noted:
            if shard != number and shard < len(self._seen):
                self._seen[shard].learn(sight)
        known = set(noted)
        others = ((shard, seen.sight) for shard, seen in enumerate(self._seen) if shard != number)
        found = [(shard, Sight(sight.system, sight.timeline)) for shard, sight in others if sight is not None]
        note_sightings(link, [one for one in found if one not in known])
