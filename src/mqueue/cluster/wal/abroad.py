"""Frames in the log of a node whose virtual shards have moved to another server meanwhile: they go there.

The log goes on to be flushed where it always was. So what is brought elsewhere has no position there, and is asked for
by its first ids: it may be brought twice, and is stored once. Blocking: for the thread of a flusher.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mqueue.cluster.atlas import Atlas
from mqueue.log.postgres.appends import Appended, Sheet
from mqueue.log.postgres.batch import Arrival
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.seen import Seen
from mqueue.model.errors import ShardDown


class Abroad:
    """`urls`: of all servers, by place; `seen`: what is known of those that hold them. `told` hears what was brought to
    one, from this thread."""

    def __init__(
        self, atlas: Atlas, urls: Sequence[str], seen: Sequence[Seen], told: Callable[[int, list[Arrival]], None]
    ) -> None:
        self._atlas = atlas
        self._urls = urls
        self._seen = seen
        self._told = told
        self._links: dict[int, Link] = {}

    def sorted_out(self, sheets: Sequence[Sheet]) -> dict[int, list[int]]:
        """The numbers of sheets by the place where they belong now. Raises ShardDown if that is not known yet."""
        found: dict[int, list[int]] = {}
        for number, sheet in enumerate(sheets):
            place = self._atlas.map.homes.get(sheet.vshard)
            if place is None:
                self._atlas.stir()
                raise ShardDown(f"virtual shard {sheet.vshard} of what lies in the log of the node is not found now")
            found.setdefault(place, []).append(number)
        return found

    def link(self, place: int) -> Link:
        if place not in self._links:
            self._links[place] = Link(self._urls[place], f"shard{place}:abroad", seen=self._seen[place])
        return self._links[place]

    def brought(self, place: int, sheets: Sequence[Sheet], places: Sequence[Appended]) -> None:
        self._told(place, [arrival_of(*one) for one in zip(sheets, places, strict=True) if one[1].base >= 0])

    def close(self) -> None:
        for link in self._links.values():
            link.close()


def arrival_of(sheet: Sheet, place: Appended) -> Arrival:
    return Arrival(
        sheet.topic, sheet.partition, place.base, sheet.count, sheet.base_id, place.at, sheet.size, sheet.head
    )
