"""Where a transaction is staged, and so who commits it: in the virtual shard of the topic that came first.

Several nodes may begin one at once, for several topics. All have to choose the same place, or the commit of one would
leave out what lies in the other: so the choice is written down, at the one server that the transaction's name leads to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from mqueue.cluster.estate import Estate
from mqueue.cluster.node import Home, Node
from mqueue.log.postgres import catalog, transactions
from mqueue.log.postgres.problems import Moved
from mqueue.model.errors import BadName, Unavailable
from mqueue.model.names import check_name, check_transaction
from mqueue.policy.routing import virtual_shard
from mqueue.server.placing.asking import Asking

_LOOKS, _LOOK_SECONDS = 100, 0.1


class TransactionHomes:
    """`home` finds a virtual shard. What is wrong with a name is for the handler to say."""

    def __init__(self, node: Node, asking: Asking, home: Callable[[int], Awaitable[Home]]) -> None:
        self._node = node
        self._asking = asking
        self._home = home

    async def find(self, namespace: str, transaction: str) -> int | None:
        """Where it was begun; None: nowhere, or that is forgotten."""
        with suppress(BadName):
            check_transaction(transaction)
            estate = await self._registry(namespace, transaction)
            found = await self._asking.one(
                estate, lambda estate: transactions.home(estate.reader, namespace, transaction)
            )
            return await self._lying(namespace, transaction) if found is None else found
        return None

    async def begin(self, namespace: str, transaction: str, topic: str) -> int | None:
        """Where it was begun, or is to be begun by who stages something for a topic."""
        found = await self.find(namespace, transaction)
        if found is not None:
            return found
        with suppress(BadName):
            vshard = virtual_shard(namespace, check_name(topic, "topic"))
            return await self._settle(namespace, check_transaction(transaction), vshard)
        return None

    async def _settle(self, namespace: str, transaction: str, vshard: int) -> int:
        """What keeps it may be moving to another server: then there, once that is known."""
        for _ in range(_LOOKS):
            estate = await self._registry(namespace, transaction)
            now = estate.clock.now()
            settle = partial(_settled, namespace, transaction, vshard, now)
            try:
                return await self._asking.one(estate, settle)
            except Moved:
                self._node.atlas.stir()
                await asyncio.sleep(_LOOK_SECONDS)
        raise Unavailable(f"where transaction {transaction!r:.80} is kept is moving; try again", code="not_owner")

    async def _registry(self, namespace: str, transaction: str) -> Estate:
        return (await self._home(virtual_shard(namespace, transaction))).estate

    async def _lying(self, namespace: str, transaction: str) -> int | None:
        """By what is staged, or was."""
        return await self._asking.first(lambda estate: catalog.transaction_home(estate.reader, namespace, transaction))


def _settled(namespace: str, transaction: str, vshard: int, now: int, estate: Estate) -> int:
    return transactions.settle_home(estate.reader, namespace, transaction, vshard, now)
