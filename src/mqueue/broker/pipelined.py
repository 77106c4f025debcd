"""The calls of a broker that pipelines make: cursors that hold back retention, and transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from mqueue.broker import cursors, transact
from mqueue.broker.engine import Engine
from mqueue.broker.given import parts_of
from mqueue.model.times import Duration


class Pipelined:
    """What a `Broker` has besides the calls of producers and consumers."""

    _engine: Engine
    _namespace: str
    _commit: Callable[[Engine, str, str, list[str] | None], transact.Transaction]

    def set_cursor(
        self, topic: str, name: str, offsets: Mapping[int, int] | None = None, *, ttl: Duration = "7d"
    ) -> cursors.Cursor:
        """Let retention drop nothing from these offsets on, until `ttl` is over. No offsets: as it stands, or all."""
        return cursors.set_cursor(self._engine, self._namespace, topic, name, offsets, ttl)

    def cursors(self, topic: str) -> list[cursors.Cursor]:
        return cursors.cursors(self._engine, self._namespace, topic)

    def delete_cursor(self, topic: str, name: str) -> None:
        cursors.delete_cursor(self._engine, self._namespace, topic, name)

    def stage(
        self,
        transaction: str,
        topic: str,
        messages: pa.Table | pa.RecordBatch | Iterable[Any],
        *,
        part: str = "",
        ttl: Duration = "24h",
    ) -> transact.StagedPart:
        """Put messages aside until `commit` publishes them. The same part once more takes the place of the first."""
        return transact.stage(self._engine, self._namespace, transaction, topic, messages, part, ttl)

    def commit(self, transaction: str, parts: Iterable[str] | None = None) -> transact.Transaction:
        """Publish what was staged, all or these parts only: once, however often it is called."""
        return self._commit(self._engine, self._namespace, transaction, parts_of(parts))

    def abort(self, transaction: str) -> transact.Transaction:
        """Drop what was staged; Conflict if it is committed."""
        return transact.abort(self._engine, self._namespace, transaction)

    def forget(self, transaction: str) -> None:
        """How a transaction ended need not be remembered any more."""
        transact.forget(self._engine, self._namespace, transaction)

    def transaction(self, transaction: str) -> transact.Transaction:
        """How it stands with a transaction."""
        return transact.look_up(self._engine, self._namespace, transaction)
