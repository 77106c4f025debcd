"""What has to be done and could not be: it is tried again until it is done. Nobody waits for it.

A lease that is held here renews itself for as long as it is not settled, and a queue that is to go stays until somebody
deletes it: one call that fails must not be the last.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from mqueue.model.errors import Error

LOGGER = logging.getLogger("mqueue.amqp")

Debt = Callable[[], Awaitable[None]]
"""It may be made more than once: it looks whether it still has to be done."""


class Debts:
    def __init__(self) -> None:
        self._open: list[Debt] = []

    def __bool__(self) -> bool:
        return bool(self._open)

    async def settle(self, debt: Debt) -> None:
        """Now, or else later."""
        try:
            await debt()
        except Error as error:
            LOGGER.warning("it is tried again: %s", error)
            self._open.append(debt)

    async def run_once(self) -> None:
        """Try what is left once more, all of it at a time: one may take long to fail."""
        left, self._open = self._open, []
        await asyncio.gather(*(self._try(debt) for debt in left))

    async def _try(self, debt: Debt) -> None:
        try:
            await debt()
        except Error as error:
            if error.retryable:
                self._open.append(debt)
            else:
                LOGGER.warning("it is given up: %s", error)
