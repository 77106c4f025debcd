"""Where the calls on an owned virtual shard go in and out: one at a time, and who handed in something waits for it.

It stands where the lock of an engine is. Leaving it never blocks: what is to be waited for is awaited with `committed`.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType

from mqueue.broker.commits import DONE, WAITS
from mqueue.log.postgres.log import PostgresLog
from mqueue.model.errors import Refused
from mqueue.model.message import WAL

IN_LOG, IN_SHARD = 0, 1
LEVELS = {WAL: IN_LOG, "shard": IN_SHARD, "fsync": IN_SHARD, "os": IN_SHARD, "memory": IN_SHARD}
"""How safe a publish may ask to be. Who would be content with less than a shard gets that, and his receipt says so."""


class ShardGate:
    def __init__(self, log: PostgresLog, wait: Callable[[int], Awaitable[None]]) -> None:
        self._log = log
        self._wait = wait
        """Something to await until a batch is durable."""
        self.inside = threading.Lock()
        """For who waits for nothing at the end."""

    @property
    def levels(self) -> Mapping[str, int]:
        return LEVELS

    def __enter__(self) -> None:
        self.inside.acquire()
        self._log.wants = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        wants, number = self._log.wants, self._log.number
        self.inside.release()
        if wants:
            WAITS.open.append((self, number, 1))

    def acquire(self, blocking: bool = True) -> bool:
        return self.inside.acquire(blocking)

    def release(self) -> None:
        self.inside.release()

    def at(self, level: int) -> AbstractContextManager[None]:
        if level == IN_LOG:
            raise Refused(
                "durability 'wal' is not for topics with max_depth or dedup=until_acked, nor for transactions: their"
                " owner has to be asked",
                code="not_for_wal",
            )
        return self

    def confirm(self) -> None:
        self._log.wants = True

    def ticket(self, batch: int, wants: int) -> Awaitable[None]:
        return DONE if self._log.landed >= batch else self._wait(batch)
