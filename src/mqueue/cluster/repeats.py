"""Who publishes something again: that belongs to the trace of the message, which its owner keeps.

Lives in the loop of the estate.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from mqueue.cluster.holding import Holding
from mqueue.cluster.problems import AtOwner
from mqueue.cluster.tenure import Tenure
from mqueue.model.errors import Error
from mqueue.model.events import Duplicated

UNTRACED: ContextVar[bool] = ContextVar("untraced", default=False)
"""Whether who publishes something again is answered though it will not be in its trace."""


class Repeats:
    """`homes`: the virtual shards of topics; `take` gives one that is ours; `ask` has it committed; `begin` begins a
    task that the estate keeps."""

    def __init__(
        self,
        homes: Mapping[int, int],
        tenure: Tenure,
        take: Callable[[int], Awaitable[Holding]],
        ask: Callable[[Holding], None],
        begin: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._homes = homes
        self._tenure = tenure
        self._take = take
        self._ask = ask
        self._begin = begin

    def check(self, topic: int) -> None:
        """Who publishes something again is sent to whoever keeps its trace."""
        vshard = self._homes[topic]
        owner = self._tenure.owners.get(vshard)
        if owner is not None and owner.address and vshard not in self._tenure.mine and not UNTRACED.get():
            raise AtOwner(vshard, must=False)

    def happened(self, topic: int, partition: int, offset: int) -> None:
        """A message was published again: that belongs to its trace, if we keep it."""
        if self._homes.get(topic) in self._tenure.mine:
            self._begin(self._note(topic, partition, offset))

    async def _note(self, topic: int, partition: int, offset: int) -> None:
        with suppress(Error):  # a trace that lacks a line is better than a publish that fails
            holding = await self._take(self._homes[topic])
            if topic in holding.store.state.topics:
                with holding.gate.inside:
                    now = holding.engine.clock.now()
                    holding.store.happen(Duplicated(now, topic, partition, offset), now)
                self._ask(holding)
