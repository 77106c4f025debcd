"""A lease of a client whose messages are a table."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from time import monotonic

import pyarrow as pa

from mqueue.broker.deliver import lost_sentence
from mqueue.broker.given import check_ids
from mqueue.broker.settle import Settlement
from mqueue.client.envelope import Held
from mqueue.client.home import Home
from mqueue.client.settle import order, settle_lease
from mqueue.model.errors import LeaseLost
from mqueue.model.times import Duration, duration_ms
from mqueue.wire.json import SettleIn


class AsyncClientLease:
    """A lease whose messages are a table. Settles as a whole, or what is left of it; or the messages with some ids."""

    def __init__(self, home: Home, lease: Held | None, table: pa.Table, topic: str) -> None:
        self._home = home
        self._topic = topic
        self._lease = lease
        self._table = table
        self._settled: set[int] = set()
        """The ids of those that were settled apart from the rest."""

    @property
    def table(self) -> pa.Table:
        """The messages, in delivery order."""
        return self._table

    @property
    def token(self) -> str:
        """What proves the right to settle, also elsewhere; empty if nothing was handed out."""
        return "" if self._lease is None else self._lease.token

    @property
    def remaining_ms(self) -> int:
        """For how long it is held."""
        return 0 if self._lease is None else max(0, round(1000 * (self._lease.until - monotonic())))

    def __len__(self) -> int:
        return int(self._table.num_rows)

    async def ack(self, *, ids: Iterable[int] | None = None) -> Settlement:
        """Done."""
        return await self._settle("ack", ids=ids)

    async def nack(
        self, delay: Duration | None = None, error: object = None, *, ids: Iterable[int] | None = None
    ) -> Settlement:
        """Failed: they come back after a backoff, or after `delay`; dead after the last attempt."""
        return await self._settle("nack", delay, error, ids)

    async def reject(self, error: object = None, *, ids: Iterable[int] | None = None) -> Settlement:
        """Hopeless: dead at once."""
        return await self._settle("reject", None, error, ids)

    async def release(self, *, ids: Iterable[int] | None = None) -> Settlement:
        """Not now: ready again at once, the attempt is not counted."""
        return await self._settle("release", ids=ids)

    async def extend(self, visibility: Duration, *, ids: Iterable[int] | None = None) -> Settlement:
        """Hold them for so long, from now on."""
        return await self._settle("extend", visibility, ids=ids)

    async def _settle(
        self, verb: str, wait: Duration | None = None, error: object = None, ids: Iterable[int] | None = None
    ) -> Settlement:
        told = order(verb, wait, error, ())
        lease = self._lease
        if lease is None:
            return Settlement(0)
        with self._told(verb):
            if ids is None and not self._settled:
                return await self._settle_all(lease, verb, told, wait)
            left = set(self._ids()) - self._settled if ids is None else ids
            return await self._settle_some(lease, verb, told, left)

    async def _settle_all(self, lease: Held, verb: str, told: SettleIn, wait: Duration | None) -> Settlement:
        sent_at = monotonic()
        try:
            done = await settle_lease(self._home.window, verb, lease.token, told)
            if done.settled < len(self):  # it has to be said what was lost
                done = await settle_lease(self._home.window, verb, lease.token, told, self._ids())
        except LeaseLost:
            raise LeaseLost(lost_sentence(verb, self._ids()), lost=tuple(self._ids())) from None
        if verb == "extend":
            lease.until = sent_at + duration_ms(wait or 0, "visibility") / 1000
        else:
            lease.open = 0
        return done

    def _told(self, verb: str) -> AbstractContextManager[None]:
        window = self._home.window
        if window.spans is None:
            return nullcontext()
        return window.spans.settling_table(verb, window.namespace, self._topic, self._table)

    async def _settle_some(self, lease: Held, verb: str, told: SettleIn, ids: Iterable[int]) -> Settlement:
        """The messages with these ids. Those that never were in the table are lost, too."""
        chosen = check_ids(ids)
        if not chosen:
            return Settlement(0)
        done = await settle_lease(self._home.window, verb, lease.token, told, sorted(chosen))
        if verb != "extend":
            self._settled |= chosen.difference(done.lost)
            lease.open = len(self) - len(self._settled)
        return done

    def _ids(self) -> list[int]:
        found: list[int] = self._table.column("id").to_pylist()
        return found
