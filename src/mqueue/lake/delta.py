"""A lake as a Delta table, through delta-rs. Needs no Java.

An app's version is Delta's own `txn` action, in the same commit as the files. The note is in the commit's info, as long
as the log of the table goes back (30 days, unless `delta.logRetentionDuration` says otherwise).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa

from mqueue.lake.files import DataFile
from mqueue.lake.place import Place, make_directories, sync
from mqueue.lake.schema import LAKE, LAKE_PARTITIONS
from mqueue.lake.table import Change, Note, Raced
from mqueue.model.clock import SystemClock
from mqueue.model.errors import Corrupt, NotFound, Refused, Unavailable
from mqueue.model.times import instant, rfc3339

try:
    import deltalake
    from deltalake import CommitProperties, DeltaTable, Transaction
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
    from deltalake.transaction import AddAction, RemoveAction
except ImportError as problem:
    raise Unavailable(
        "a Delta lake needs the package deltalake: pip install 'mqueue[lake]'", code="no_package", retryable=False
    ) from problem

LOG = "_delta_log"
_LAST = "_last_checkpoint"
_NOTE = "mqueue"
_FEATURES = {"appendOnly", "invariants", "v2Checkpoint", "vacuumProtocolCheck", "timestampNtz"}
"""Of a protocol: what changes nothing for one who reads and adds whole files."""


class DeltaLake:
    whole = False

    def __init__(self, place: Place, create: bool) -> None:
        self.place = place
        self._clock = SystemClock()
        if create:
            self._make()
        self._table = self._load()
        _check(self._table, place)

    def refresh(self) -> None:
        self._table = self._load()

    def version(self) -> int:
        return self._table.version()

    def files(self, at_version: int | None = None, at_ms: int | None = None) -> list[DataFile]:
        return _files(self._at(at_version, at_ms), self.place)

    def version_of(self, app: str) -> int | None:
        return self._table.transaction_version(app)

    def note_of(self, app: str) -> Note | None:
        if self.version_of(app) is None:
            return None
        for commit in self._commits():
            told = commit.get(_NOTE)
            if isinstance(told, dict) and told.get("app") == app:
                note: Note = told["note"]
                return note
        return None

    def commit(self, change: Change) -> int:
        before = self._table.version()
        told = {_NOTE: {"app": change.app, "version": change.version, "note": change.note}} if change.app else None
        properties = CommitProperties(
            custom_metadata=told,
            max_commit_retries=0,  # one who is overtaken has to look at the app's version again
            app_transactions=[Transaction(change.app, change.version)] if change.app else None,
        )
        now = self._clock.now()
        adds = [_add(file, now, bool(change.app)) for file in change.add]
        removes = [
            RemoveAction(file.path, False, now, file.size, _values(file))  # the rows are in other files from now on
            for file in change.remove
        ]
        try:
            self._table.create_write_transaction(
                [*adds, *removes], "append", LAKE, list(LAKE_PARTITIONS), commit_properties=properties
            )
        except CommitFailedError as problem:
            raise Raced(str(problem)) from problem
        except DeltaError as problem:
            raise Unavailable(
                f"nobody knows whether the lake {self.place} was changed: {problem}",
                code="lake_unreachable",
                applied=None,
            ) from problem
        self._keep(before + 1)
        return before + 1

    def forget(self, before_ms: int) -> None:
        """Delta shortens its log by its own rule, `delta.logRetentionDuration`, when it makes a checkpoint."""

    def _keep(self, version: int) -> None:
        """delta-rs does not sync its log. A checkpoint, if it made one, takes the place of all changes before it."""
        if not self.place.local:
            return
        points = (f"{number:020d}.checkpoint.parquet" for number in (version - 1, version))
        for name in (f"{version:020d}.json", *points, _LAST, ""):
            with suppress(FileNotFoundError):
                sync(os.path.join(self.place.root, LOG, name))

    def _make(self) -> None:
        try:
            if self.place.local:
                make_directories(self.place.root)
            DeltaTable.create(self.place.url, LAKE, mode="ignore", partition_by=list(LAKE_PARTITIONS))
        except CommitFailedError:
            pass  # somebody else made it
        except (DeltaError, OSError) as problem:
            raise Unavailable(f"no lake can be made at {self.place}: {problem}", code="lake_unreachable") from problem
        self._keep(0)
        if self.place.local:
            sync(self.place.root)

    def _load(self) -> DeltaTable:
        try:
            return DeltaTable(self.place.url)
        except TableNotFoundError as problem:
            raise NotFound(f"there is no Delta lake at {self.place}", code="no_lake") from problem
        except (DeltaError, OSError) as problem:
            raise Corrupt(f"the lake {self.place} cannot be read: {problem}", code="unreadable_lake") from problem

    def _at(self, version: int | None, ms: int | None) -> DeltaTable:
        if version is None and ms is None:
            return self._table
        if ms is not None:
            version = self._version_at(ms)
        table = self._load()
        try:
            table.load_as_version(version or 0)
        except (DeltaError, OSError, ValueError) as problem:
            raise self._forgotten(version, ms) from problem
        return table

    def _version_at(self, ms: int) -> int:
        """By the times in the commits: those of the files change when a lake is copied. 0, the empty table, before."""
        version = 0
        for commit in self._commits():
            version = int(commit["version"])
            if commit["timestamp"] <= ms:
                return version
        if version > 0:
            raise self._forgotten(None, ms)
        return 0

    def _commits(self) -> Iterator[dict[str, Any]]:
        """What the log says of itself, the newest first. Reads further each time: what is asked for is near the end."""
        seen, limit = 0, 16
        while True:
            history = self._table.history(limit)
            yield from history[seen:]
            if len(history) < limit:
                return
            seen, limit = limit, limit * 8

    def _forgotten(self, version: int | None, ms: int | None) -> NotFound:
        asked = f"version {version}" if ms is None else f"history back to {rfc3339(ms)}"
        return NotFound(
            f"the lake {self.place} has no {asked}: it is at version {self.version()}, and its log is kept for"
            " delta.logRetentionDuration, 30 days by default",
            code="no_version",
        )


def _check(table: DeltaTable, place: Place) -> None:
    """Of others' tables: what cannot be read file by file is refused."""
    protocol = table.protocol()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    if strange := features - _FEATURES:
        raise Refused(
            f"the Delta table {place} has {', '.join(sorted(strange))}: a lake of messages is plain files",
            code="not_a_lake",
        )
    if mode := table.metadata().configuration.get("delta.columnMapping.mode", "none").replace("none", ""):
        raise Refused(f"the Delta table {place} maps its columns by {mode}: a lake does not", code="not_a_lake")
    if table.metadata().partition_columns != list(LAKE_PARTITIONS) or table.schema() != deltalake.Schema.from_arrow(
        LAKE
    ):
        raise Refused(
            f"the Delta table {place} has other columns than a lake: {', '.join(LAKE.names)},"
            f" partitioned by {', '.join(LAKE_PARTITIONS)}",
            code="not_a_lake",
        )


def _values(file: DataFile) -> dict[str, str | None]:
    return {"namespace": file.namespace, "topic": file.topic, "date": file.day}


def _add(file: DataFile, now: int, rows_change: bool) -> AddAction:
    low = {"partition": file.partition, "offset": file.first, "timestamp": rfc3339(file.first_ms)}
    high = {"partition": file.partition, "offset": file.last, "timestamp": rfc3339(file.last_ms)}
    stats = {"numRecords": file.rows, "minValues": low, "maxValues": high, "nullCount": dict.fromkeys(low, 0)}
    return AddAction(file.path, file.size, _values(file), now, rows_change, json.dumps(stats))


def _files(table: DeltaTable, place: Place) -> list[DataFile]:
    rows: list[dict[str, Any]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return [_file(row, place) for row in rows]


def _file(row: dict[str, Any], place: Place) -> DataFile:
    low, high = row.get("min.partition"), row.get("max.partition")
    if low is None or low != high or row.get("min.offset") is None:
        raise Refused(
            f"file {row['path']} of the lake {place} was written by others: it does not hold one partition by offset",
            code="not_a_lake",
        )
    return DataFile(
        path=row["path"],
        size=row["size_bytes"],
        rows=row["num_records"],
        namespace=row["partition.namespace"],
        topic=row["partition.topic"],
        day=row["partition.date"].isoformat(),
        partition=low,
        first=row["min.offset"],
        last=row["max.offset"],
        first_ms=instant(row["min.timestamp"]),
        last_ms=instant(row["max.timestamp"]),
    )
