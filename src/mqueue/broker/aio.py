"""`mqueue.AsyncBroker`: the calls of `Broker`, awaited; see `twin` for how they are made and `loop` for how they wait.

    async with mqueue.AsyncBroker() as q:
        await q.publish("orders", {"n": 1}, priority="high")
        async for m in q.consume("orders"):
            async with m:
                print(m.json())

Calls that hand out something to go on with are not awaited: `namespace`, `dlq`, `schedules`, `subscribe`, `consume`,
`scan`, `scan_arrow`, `scan_frames`, `events`. Type checkers read `aio.pyi` instead of this file;
`tools/async_stub.py` makes it from the sync classes.
"""

from __future__ import annotations

import functools
from types import TracebackType
from typing import Any

import pyarrow as pa

from mqueue.broker.broker import Broker
from mqueue.broker.dlq import Dlq
from mqueue.broker.loop import LoopBroker, LoopDlq
from mqueue.broker.schedules import Schedules
from mqueue.broker.tables import ArrowLease
from mqueue.broker.twin import Twin, awaited


@awaited(ArrowLease)
class AsyncArrowLease(Twin):
    """A lease whose messages are a table. Settles as a whole, or what is left of it; or the messages with some ids."""

    @property
    def table(self) -> pa.Table:
        """The messages, in delivery order."""
        return self._sync.table

    @property
    def token(self) -> str:
        """What proves the right to settle, also elsewhere; empty if nothing was handed out."""
        token: str = self._sync.token
        return token

    @property
    def remaining_ms(self) -> int:
        """For how long it is held."""
        remaining_ms: int = self._sync.remaining_ms
        return remaining_ms

    def __len__(self) -> int:
        return len(self._sync)

    def __bool__(self) -> bool:
        return bool(self._sync)


@awaited(Dlq, behind=LoopDlq)
class AsyncDlq(Twin):
    """The dead-letter queue of a topic."""


@awaited(Schedules)
class AsyncSchedules(Twin):
    """The schedules of a topic, or of all topics of a namespace: these can be listed."""


@awaited(Broker, behind=LoopBroker)
class AsyncBroker(Twin):
    """A broker inside this process, for event loops. Safe to use from many tasks and many loops."""

    @functools.wraps(Broker.__init__, assigned=())  # takes what a `Broker` takes
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._sync = LoopBroker(*args, **kwargs)

    async def __aenter__(self) -> AsyncBroker:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
