"""What was appended to a shard reaches whoever delivers it: in this node, or at another, which is woken.

A node tells others of what it has published, over Redis or by a request of its own; and hears what they tell. What is
lost on the way is found by the look that every node has once a second.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from mqueue.cluster.arriving import Arriving
from mqueue.cluster.holding import Holding
from mqueue.cluster.mouth import Mouth
from mqueue.cluster.redis.annex import Annex
from mqueue.cluster.redis.wake import Wake
from mqueue.cluster.tenure import Tenure
from mqueue.log.postgres import catalog
from mqueue.log.postgres.batch import Arrival
from mqueue.log.postgres.link import Link
from mqueue.model.errors import Error, Unavailable

LOGGER = logging.getLogger("mqueue.cluster")


class Telling:
    """`homes`: of each topic that we heard of, its virtual shard. `poke` tells another node, by its address, that
    something was appended to a topic of a namespace. `errand` does something in a thread, with `link`."""

    def __init__(
        self,
        arriving: Arriving,
        holdings: Mapping[int, Holding],
        homes: Mapping[int, int],
        tenure: Tenure,
        annex: Annex,
        poke: Callable[[str, str, str], None],
        link: Link,
        errand: Callable[..., Awaitable[Any]],
    ) -> None:
        self._arriving = arriving
        self._holdings = holdings
        self._homes = homes
        self._tenure = tenure
        self._annex = annex
        self._poke = poke
        self._link = link
        self._errand = errand
        self._unseen: dict[tuple[int, int], int] = {}
        """Ends of partitions that we were told of and have not looked at."""
        self._looking = False

    mouth: Mouth
    """Whoever makes it says so: it knows the topics that are published to here."""

    async def tell(self, arrivals: list[Arrival]) -> None:
        """What was published here goes to whoever delivers it."""
        self._arriving.take(arrivals)
        elsewhere: dict[int, list[Arrival]] = {}
        for arrival in arrivals:
            vshard = self._homes[arrival.topic]
            owner = self._tenure.owners.get(vshard)
            if vshard not in self._tenure.mine and owner is not None and owner.address:
                elsewhere.setdefault(vshard, []).append(arrival)
        for vshard, theirs in elsewhere.items():
            topics = {arrival.topic for arrival in theirs}
            self._annex.keep(theirs)
            self._annex.wake(vshard, theirs, partial(self._poke_about, vshard, topics))

    async def tell_late(self, arrivals: list[Arrival], topics: set[int]) -> None:
        """The same for what is older than news: whoever delivers these topics looks for it."""
        await self.tell([arrival for arrival in arrivals if arrival.topic in self._homes])
        for vshard in {self._homes[topic] for topic in topics if topic in self._homes}:
            holding = self._holdings.get(vshard)
            if holding is not None:
                try:
                    await self._arriving.catch_up(holding)
                except Unavailable as problem:
                    if problem.code != "not_owner":  # else whoever owns it now finds it there
                        raise

    async def tell_unknown(self, arrivals: list[Arrival], topics: set[int]) -> None:
        """What is older than news, or came in a way that we do not know, is looked for."""
        store = self.mouth.store
        unknown = topics - store.state.topics.keys()
        for row in await self._errand(catalog.rows_of, self._link, sorted(unknown)) if unknown else ():
            with self.mouth.gate.inside:
                store.learn(row)
        await self.tell_late(arrivals, topics)

    async def tell_brought(self, arrivals: list[Arrival]) -> None:
        """What the log of this node at another server had for topics that live here now."""
        try:
            await self.tell_unknown(arrivals, {arrival.topic for arrival in arrivals})
        except Error as problem:
            LOGGER.warning("what was brought here is looked for later: %s", problem)

    def _poke_about(self, vshard: int, topics: set[int]) -> None:
        """The other way to wake whoever delivers. May be called by any thread."""
        owner = self._tenure.owners.get(vshard)
        for topic in [self.mouth.store.state.topics.get(number) for number in topics]:
            if topic is not None and owner is not None and owner.address:
                self._poke(owner.address, topic.namespace, topic.name)

    def hear(self, wake: Wake, begin: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        """What is not delivered here is none of our business. One look at a time; it is for all that was heard."""
        if wake.vshard not in self._holdings:
            return
        for topic, partition, end in wake.news:
            self._unseen[topic, partition] = max(end, self._unseen.get((topic, partition), 0))
        if not self._looking:
            self._looking = True
            begin(self._look_closer())

    async def _look_closer(self) -> None:
        try:
            while self._unseen:
                unseen, self._unseen = self._unseen, {}
                with suppress(Error):  # there is a look every second
                    await self._arriving.follow([(*place, end) for place, end in unseen.items()])
        finally:
            self._looking = False
