"""Where the calls on an owned virtual shard go in and out: one at a time, and who handed in something waits for it.

It stands where the lock of an engine is. Leaving it never blocks: what is to be waited for is awaited with `committed`.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType

from mqueue.broker.commits import DONE, WAITS
from mqueue.cluster.problems import no_quorum
from mqueue.log.postgres.log import PostgresLog
from mqueue.model.errors import Refused
from mqueue.model.message import QUORUM, WAL

IN_LOG, IN_SHARD, IN_QUORUM = 0, 1, 2
LEVELS = {
    QUORUM: IN_QUORUM,
    WAL: IN_LOG,
    "shard": IN_SHARD,
    "fsync": IN_SHARD,
    "os": IN_SHARD,
    "memory": IN_SHARD,
}
"""How safe a publish may ask to be. Who would be content with less than a shard gets that, and his receipt says so."""


class ShardGate:
    def __init__(self, log: PostgresLog, wait: Callable[[int], Awaitable[None]]) -> None:
        self._log = log
        self._wait = wait
        """Something to await until a batch is durable."""
        self.inside = threading.Lock()
        """For who waits for nothing at the end."""
        self.quorum: Callable[[], bool] = lambda: True
        """Whether a standby confirms what the server commits, as far as we know: so that nobody loses his place here
        because of one who asks in vain. The commit looks again."""

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
        if level == IN_QUORUM:
            if not self.quorum():
                raise no_quorum("synchronous_standby_names is empty")
            return Sure(self, self._log)
        return self

    def confirm(self) -> None:
        self._log.wants = True

    def ticket(self, batch: int, wants: int) -> Awaitable[None]:
        return DONE if self._log.landed >= batch else self._wait(batch)


class Sure:
    """The gate for a call that a standby has to confirm, too."""

    def __init__(self, gate: ShardGate, log: PostgresLog) -> None:
        self._gate = gate
        self._log = log

    def __enter__(self) -> None:
        self._gate.__enter__()
        self._log.batch.sure = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        batch = self._log.batch
        batch.sure = False
        if kind is None:
            self._log.wants = batch.quorum = bool(batch)
        self._gate.__exit__(kind, error, trace)
