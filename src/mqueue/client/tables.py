"""A lease of a client whose messages are a table."""

from __future__ import annotations

import pyarrow as pa

from mqueue.broker.deliver import lost_sentence
from mqueue.broker.settle import Settlement
from mqueue.client.envelope import Held
from mqueue.client.home import Home
from mqueue.client.settle import order, settle_lease
from mqueue.model.errors import LeaseLost
from mqueue.model.times import Duration


class AsyncClientLease:
    """A lease whose messages are a table. Settles as a whole."""

    def __init__(self, home: Home, lease: Held | None, table: pa.Table) -> None:
        self._home = home
        self._lease = lease
        self._table = table

    @property
    def table(self) -> pa.Table:
        """The messages, in delivery order."""
        return self._table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    async def ack(self) -> Settlement:
        """Done."""
        return await self._settle("ack")

    async def nack(self, delay: Duration | None = None, error: object = None) -> Settlement:
        """Failed: they come back after a backoff, or after `delay`; dead after the last attempt."""
        return await self._settle("nack", delay, error)

    async def reject(self, error: object = None) -> Settlement:
        """Hopeless: dead at once."""
        return await self._settle("reject", None, error)

    async def release(self) -> Settlement:
        """Not now: ready again at once, the attempt is not counted."""
        return await self._settle("release")

    async def extend(self, visibility: Duration) -> Settlement:
        """Hold them for so long, from now on."""
        return await self._settle("extend", visibility)

    async def _settle(self, verb: str, wait: Duration | None = None, error: object = None) -> Settlement:
        told = order(verb, wait, error, ())
        lease = self._lease
        if lease is None:
            return Settlement(0)
        try:
            done = await settle_lease(self._home.window, verb, lease.token, told)
            if done.settled < len(self):  # it has to be said what was lost
                done = await settle_lease(self._home.window, verb, lease.token, told, self._ids())
        except LeaseLost:
            raise LeaseLost(lost_sentence(verb, self._ids()), lost=tuple(self._ids())) from None
        if verb != "extend":
            lease.open = 0
        return done

    def _ids(self) -> list[int]:
        found: list[int] = self._table.column("id").to_pylist()
        return found
