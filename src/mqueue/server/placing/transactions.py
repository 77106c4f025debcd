"""Where a transaction is staged, and so who commits it: in the virtual shard of the topic that came first.

Several nodes may begin one at once, for several topics. All have to choose the same place, or the commit of one would
leave out what lies in the other: so the choice is written down, at the one server that the transaction's name leads to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from mqueue.cluster.estate import Estate
from mqueue.cluster.node import Node
from mqueue.log.postgres import catalog, transactions
from mqueue.model.errors import BadName
from mqueue.model.names import check_name, check_transaction
from mqueue.policy.routing import virtual_shard

First = Callable[[Callable[[Estate], int | None]], Awaitable[int | None]]


class TransactionHomes:
    """`first` is what one of the servers has. What is wrong with a name is for the handler to say."""

    def __init__(self, node: Node, first: First) -> None:
        self._node = node
        self._first = first

    async def find(self, namespace: str, transaction: str) -> int | None:
        """Where it was begun; None: nowhere, or that is forgotten."""
        with suppress(BadName):
            check_transaction(transaction)
            estate = self._registry(namespace, transaction)
            found = await asyncio.to_thread(transactions.home, estate.reader, namespace, transaction)
            return await self._lying(namespace, transaction) if found is None else found
        return None

    async def begin(self, namespace: str, transaction: str, topic: str) -> int | None:
        """Where it was begun, or is to be begun by who stages something for a topic."""
        found = await self.find(namespace, transaction)
        if found is not None:
            return found
        with suppress(BadName):
            vshard = virtual_shard(namespace, check_name(topic, "topic"))
            estate = self._registry(namespace, check_transaction(transaction))
            now = estate.clock.now()
            return await asyncio.to_thread(transactions.settle_home, estate.reader, namespace, transaction, vshard, now)
        return None

    def _registry(self, namespace: str, transaction: str) -> Estate:
        return self._node.home(virtual_shard(namespace, transaction)).estate

    async def _lying(self, namespace: str, transaction: str) -> int | None:
        """By what is staged, or was."""
        return await self._first(lambda estate: catalog.transaction_home(estate.reader, namespace, transaction))
