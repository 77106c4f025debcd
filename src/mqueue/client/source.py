"""Where a consumer of a client gets its messages: one long wait after the other, leases kept alive, lines mended."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from mqueue.broker.given import Topics, names_of
from mqueue.client.envelope import Held, Letter
from mqueue.client.home import Home
from mqueue.client.line import PAUSE_SECONDS, PAUSE_SECONDS_MAX
from mqueue.client.receive import asked
from mqueue.model.errors import Closed, Error
from mqueue.model.times import Duration

M = TypeVar("M", bound=Letter)

LOGGER = logging.getLogger("mqueue")

POLL_SECONDS = 20
"""For so long the server is asked to wait: less than what proxies have patience for."""


class RemoteSource(Generic[M]):
    """For consumers in the loop of the client."""

    def __init__(self, home: Home, topic: Topics, group: str, visibility: Duration | None) -> None:
        asked(1, group, None, visibility)
        self._home = home
        self._holdings = home.holdings
        self._topics = names_of(topic)
        self._group = group
        self._visibility = visibility
        self._leases: list[Held] = []
        self._bell: asyncio.Event | None = None
        self._failures = 0
        self.stopped = False

    def take(self, limit: int) -> list[M]:
        raise NotImplementedError("a source of an event loop is awaited")

    async def take_async(self, limit: int) -> list[M]:
        """The next messages; none only if it was stopped, or after a while. A server that is away is waited for."""
        bell = self._bell = self._bell or asyncio.Event()
        if self.stopped:
            return []
        try:
            found = await self._receive(limit, bell)
        except Error as error:
            if self._holdings.line.closed or not (error.retryable or isinstance(error, Closed)):
                raise
            if not self.stopped:
                await self._pause(error, bell)
            return []
        self._failures = 0
        self._keep(found)
        return found

    async def _receive(self, limit: int, bell: asyncio.Event) -> list[M]:
        found: list[M] = await self._home.receive(
            self._topics, limit, self._group, POLL_SECONDS, self._visibility, stopped=bell
        )
        return found

    async def _pause(self, error: Error, bell: asyncio.Event) -> None:
        if not self._failures:
            LOGGER.warning("nothing can be received for now, it is tried again: %s", error)
        most = min(PAUSE_SECONDS * 2.0**self._failures, PAUSE_SECONDS_MAX)
        self._failures = min(self._failures + 1, 16)
        seconds = max(most * random.uniform(0.5, 1), error.retry_after or 0)  # noqa: S311 - spreads tries, guards nothing
        try:
            async with asyncio.timeout(seconds):
                await bell.wait()
        except TimeoutError:
            pass

    def _keep(self, found: list[M]) -> None:
        fresh = list({id(m._lease): m._lease for m in found if m._lease is not None}.values())
        self._leases = [lease for lease in self._leases if lease.open > 0 and lease.renew_at is not None]
        self._leases += fresh
        self._holdings.keep(fresh)

    def stop(self) -> None:
        """Take no more; whoever waits comes back at once."""
        self.stopped = True
        if self._bell is not None:
            self._bell.set()

    def give_back(self) -> None:
        """Let go of everything that is not settled. It is on its way when this returns."""
        leases, self._leases = self._leases, []
        self._holdings.let_go(leases)


class BlockingSource(Generic[M]):
    """For consumers in threads. `run` waits for something in the loop of the client, `soon` does not."""

    def __init__(
        self,
        source: RemoteSource[M],
        run: Callable[[Coroutine[Any, Any, list[M]]], list[M]],
        soon: Callable[[Callable[[], None]], None],
    ) -> None:
        self._source = source
        self._run = run
        self._soon = soon

    @property
    def stopped(self) -> bool:
        return self._source.stopped

    def take(self, limit: int) -> list[M]:
        return self._run(self._source.take_async(limit))

    async def take_async(self, limit: int) -> list[M]:
        raise NotImplementedError("a source of threads is not awaited")

    def stop(self) -> None:
        self._source.stopped = True
        self._soon(self._source.stop)

    def give_back(self) -> None:
        """The garbage collector may call this in the middle of anything, so it waits for nothing."""
        self._soon(self._source.give_back)
