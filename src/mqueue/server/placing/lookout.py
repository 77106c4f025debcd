"""Looks every second or two for keys and quotas that other nodes have changed.

While they cannot be seen, what is known goes on to hold; that is said once.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from mqueue.model.errors import Error
from mqueue.server.administration import Administrator

LOGGER = logging.getLogger("mqueue.server")
LOOK_SECONDS = 1.5


class Lookout:
    """Made in the loop of the server."""

    def __init__(self, administrator: Administrator) -> None:
        self._administrator = administrator
        self._complaint = ""
        self._over = asyncio.Event()
        self._task = asyncio.ensure_future(self._walk())

    async def run_once(self) -> None:
        try:
            await self._administrator.look()
            self._complaint = ""
        except Error as problem:
            if problem.message != self._complaint:
                LOGGER.warning("keys and quotas stay as they are known here: %s", problem.message)
            self._complaint = problem.message
        except Exception:
            LOGGER.exception("a look at keys and quotas failed")

    async def close(self) -> None:
        """A look that is under way comes to its end."""
        self._over.set()
        await self._task

    async def _walk(self) -> None:
        while not self._over.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._over.wait()
            if not self._over.is_set():
                await self.run_once()
