"""What a client holds: leases of all its receive calls, kept alive for those who consume, given back in the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from mqueue.client.envelope import Held
from mqueue.client.line import Line
from mqueue.client.settle import settle_lease
from mqueue.client.window import Window, path_of
from mqueue.model.errors import Closed, Error, LeaseLost
from mqueue.wire.json import SettleIn

LOGGER = logging.getLogger("mqueue")

RETRY_SECONDS = 1.0
AT_ONCE_MAX = 64
"""So many leases are extended or given back at the same time."""
_SLACK = 1024


class Holdings:
    """Shared by all views of a client. It does not know messages: those know their lease."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self._leases: dict[str, tuple[Window, Held]] = {}
        self._sweep_at = _SLACK
        self._news: asyncio.Event | None = None
        self.ending: asyncio.Task[None] | None = None
        """What closes it, if nobody did."""

    def take(self, window: Window, token: str, count: int, sent_at: float, lasting_ms: int) -> Held:
        """Note what a receive gave. Its time counts from when the request went out: then it was not held yet."""
        lease = Held(token, count, sent_at + lasting_ms / 1000, lasting_ms, count)
        if len(self._leases) >= self._sweep_at:
            self._sweep(sent_at)
        self._leases[token] = window, lease
        return lease

    def _sweep(self, now: float) -> None:
        """Forget what is settled or over."""
        self._leases = {
            token: (window, lease)
            for token, (window, lease) in self._leases.items()
            if lease.open > 0 and (lease.until > now or lease.renew_at is not None)
        }
        self._sweep_at = 2 * len(self._leases) + _SLACK

    # Keep

    def keep(self, leases: Iterable[Held]) -> None:
        """Extend these, again and again, until they are settled or given back."""
        for lease in leases:
            lease.renew_at = lease.until - lease.lasting_ms / 2000
        if self._news is None:
            self._news = asyncio.Event()
            self.line.attend(self._keep_on(self._news))
        self._news.set()

    async def _keep_on(self, news: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = await self.run_once(loop.time())
            try:
                async with asyncio.timeout_at(due):
                    await news.wait()
            except TimeoutError:
                pass
            news.clear()

    async def run_once(self, now: float) -> float | None:
        """Extend what is due; when to come again, None: when there is something new."""
        kept = [(window, lease) for window, lease in self._leases.values() if lease.renew_at is not None]
        for _, lease in kept:
            if lease.open <= 0:
                self._drop(lease)
        due = [one for one in kept if one[1].renew_at is not None and one[1].renew_at <= now]
        for start in range(0, len(due), AT_ONCE_MAX):
            await asyncio.gather(*(self._renew(window, lease) for window, lease in due[start : start + AT_ONCE_MAX]))
        return min((lease.renew_at for _, lease in kept if lease.renew_at is not None), default=None)

    async def _renew(self, window: Window, lease: Held) -> None:
        loop = asyncio.get_running_loop()
        sent_at = loop.time()
        try:
            await settle_lease(window, "extend", lease.token, SettleIn(visibility=f"{lease.lasting_ms}ms"))
        except LeaseLost:
            self._drop(lease)
        except Closed:
            lease.renew_at = None
        except Error as error:
            LOGGER.warning("a lease could not be extended, it is tried again: %s", error)
            lease.renew_at = loop.time() + min(RETRY_SECONDS, lease.lasting_ms / 4000)
        else:
            lease.until = sent_at + lease.lasting_ms / 1000
            if lease.renew_at is not None:
                lease.renew_at = sent_at + lease.lasting_ms / 2000

    def _drop(self, lease: Held) -> None:
        lease.renew_at = None
        self._leases.pop(lease.token, None)

    # Let go

    def let_go(self, leases: Iterable[Held]) -> None:
        """Give back what is left of these. Whoever asks for something next asks after that."""
        left = []
        for lease in leases:
            window, _ = self._leases.pop(lease.token, (None, lease))
            lease.renew_at = None
            if window is not None and lease.open > 0:
                left.append((window, lease))
        if left:
            self.line.farewell(self._give_back(left))

    def let_go_untaken(self, leases: Iterable[Held | None]) -> None:
        """The same of what came for somebody who waits no more. While the line is closed what is held goes anyway."""
        if not self.line.closed:
            self.let_go(lease for lease in leases if lease is not None)

    async def _give_back(self, left: list[tuple[Window, Held]]) -> None:
        for start in range(0, len(left), AT_ONCE_MAX):
            await asyncio.gather(*(self._release(window, lease) for window, lease in left[start : start + AT_ONCE_MAX]))

    async def _release(self, window: Window, lease: Held) -> None:
        """One try: what cannot be given back now comes back by itself when its time is over."""
        request = window.request("POST", path_of("leases", lease.token, "release"), repeatable=True)
        try:
            await self.line.send_last(request)
        except Error as error:
            LOGGER.warning("a lease could not be given back, it ends by itself: %s", error)

    async def close(self) -> None:
        """Hand out nothing more, give back what is held."""

        async def last() -> None:
            self._sweep(asyncio.get_running_loop().time())
            await self._give_back(list(self._leases.values()))
            self._leases = {}

        await self.line.close(last)
