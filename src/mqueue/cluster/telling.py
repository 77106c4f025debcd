"""What was appended to a shard reaches whoever delivers it: in this node, or at another, which is woken.

A node tells others of what it has published, over Redis or by a request of its own; and hears what they tell. What is
lost on the way is found by the look that every node has once a second.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from mqueue.cluster.arriving import Arriving
from mqueue.cluster.holding import Holding
from mqueue.cluster.redis.annex import Annex
from mqueue.cluster.redis.wake import Wake
from mqueue.cluster.tenure import Tenure
from mqueue.heart.topic import Topic
from mqueue.log.postgres.batch import Arrival
from mqueue.model.errors import Error


class Telling:
    """`homes`: of each topic that we heard of, its virtual shard. `poke` tells another node, by its address, that
    something was appended to a topic of a namespace."""

    def __init__(
        self,
        arriving: Arriving,
        holdings: Mapping[int, Holding],
        homes: Mapping[int, int],
        tenure: Tenure,
        annex: Annex,
        poke: Callable[[str, str, str], None],
    ) -> None:
        self._arriving = arriving
        self._holdings = holdings
        self._homes = homes
        self._tenure = tenure
        self._annex = annex
        self._poke = poke
        self.topics: Mapping[int, Topic] = {}
        """Those that are published to here."""
        self._unseen: dict[tuple[int, int], int] = {}
        """Ends of partitions that we were told of and have not looked at."""
        self._looking = False

    async def tell(self, arrivals: list[Arrival]) -> None:
        """What was published here goes to whoever delivers it."""
        self._arriving.take(arrivals)
        elsewhere: dict[int, list[Arrival]] = {}
        for arrival in arrivals:
            vshard = self._homes[arrival.topic]
            if vshard not in self._tenure.mine and self._tenure.owners[vshard].address:
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
                await self._arriving.catch_up(holding)

    def _poke_about(self, vshard: int, topics: set[int]) -> None:
        """The other way to wake whoever delivers. May be called by any thread."""
        owner = self._tenure.owners.get(vshard)
        for topic in [self.topics.get(number) for number in topics]:
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
