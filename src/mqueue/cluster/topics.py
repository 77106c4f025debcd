"""What became of the topics that an estate knows: other nodes change and delete them, and tell nobody.

Lives in the loop of the estate. What is gone is forgotten everywhere, so that what is remembered of topics is no more
than there are: transactions alone make some for each of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from mqueue.cluster.holding import Holding
from mqueue.cluster.mouth import Mouth
from mqueue.log.postgres import catalog
from mqueue.log.postgres.link import Link

_SWEEP_LOOKS = 10
"""After so many looks, the topics that are only heard of are asked for as well."""
_HEARD_AT_ONCE = 10_000


class Topics:
    """`holdings` are delivered here, `homes` are the virtual shards of the topics that we heard of."""

    def __init__(
        self, holdings: Mapping[int, Holding], homes: dict[int, int], link: Link, errand: Callable[..., Awaitable[Any]]
    ) -> None:
        self._holdings = holdings
        self._homes = homes
        self._link = link
        self._errand = errand
        self._looks = 0
        self._asked_to = 0
        """Topics up to this number were asked for, of those that are only heard of."""
        self._gone: set[int] = set()
        """Seen to be gone: forgotten the next time, when nobody is still busy with them."""

    async def look(self, mouth: Mouth) -> None:
        """Forget what has changed or is gone of what we publish to; now and then, what is gone of all the others."""
        known = dict(mouth.store.state.topics)  # others may be made while we ask
        rows = {row.id: row for row in await self._rows(list(known))}
        for topic in known.values():
            row = rows.get(topic.id)
            if row is None or row.settings != msgspec.msgpack.encode(topic.settings):
                mouth.forget(topic.id)
        self._looks += 1
        if self._looks % _SWEEP_LOOKS == 0:
            await self.sweep(mouth)

    async def sweep(self, mouth: Mouth) -> None:
        stores = [mouth.store, *(holding.store for holding in self._holdings.values())]
        for store in stores:
            for topic in store.counted.keys() - store.state.topics.keys():
                del store.counted[topic]
        known = _published(mouth).union(*(store.state.topics for store in stores))
        heard = sorted(topic for topic in self._homes.keys() - known if topic > self._asked_to)
        page = heard[:_HEARD_AT_ONCE]
        self._asked_to = page[-1] if len(page) < len(heard) else 0
        there = {row.id for row in await self._rows(page)}
        gone = {topic for topic in page if topic not in there}
        for topic in gone & self._gone:
            self._homes.pop(topic, None)
        self._gone = (self._gone | gone) & self._homes.keys()

    async def _rows(self, topics: list[int]) -> list[catalog.TopicRow]:
        found: list[catalog.TopicRow] = await self._errand(catalog.rows_of, self._link, topics) if topics else []
        return found


def _published(mouth: Mouth) -> set[int]:
    """The topics of what is on its way to the shard."""
    batches = (mouth.log.batch, *mouth.log.flying)
    return {promise.frame.topic for batch in batches for promise in batch.promises}
