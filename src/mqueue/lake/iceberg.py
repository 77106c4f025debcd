"""A lake as an Iceberg table, through pyiceberg. Its catalog is a SQLite file in the root of the lake.

An app's version and note are a property of the table, changed in the commit that adds the files. They are in the
summary of the snapshot too, for people. The catalog changes a row only if nobody else did, and pyiceberg is told not to
try again by itself: one who is overtaken has to look at the app's version again.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import date, timedelta
from typing import Any

import msgspec
import pyarrow as pa

from mqueue.lake.files import DataFile
from mqueue.lake.place import Place, locked, make_directories
from mqueue.lake.schema import HEADERS, LAKE, LAKE_PARTITIONS, TIME
from mqueue.lake.table import Change, Mark, Note, Raced
from mqueue.model.errors import Corrupt, NotFound, Refused, Unavailable
from mqueue.model.times import to_datetime

try:
    from pyiceberg import types as ice
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.conversions import from_bytes, to_bytes
    from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
    from pyiceberg.manifest import DataFile as Entry
    from pyiceberg.manifest import DataFileContent, FileFormat
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.typedef import Record
    from sqlalchemy.exc import DatabaseError, OperationalError
except ImportError as problem:
    raise Unavailable(
        "an Iceberg lake needs the package pyiceberg: pip install 'mqueue[lake]'", code="no_package", retryable=False
    ) from problem

CATALOG = "catalog.db"
NAME = ("mqueue", "messages")
_APP = "mqueue.app."
_HEADER = ice.StructType(
    ice.NestedField(17, "key", ice.StringType(), required=False),
    ice.NestedField(18, "value", ice.BinaryType(), required=False),
)
_TYPES: dict[pa.DataType, ice.IcebergType] = {
    pa.binary(): ice.BinaryType(),
    pa.string(): ice.StringType(),
    pa.int32(): ice.IntegerType(),
    pa.int64(): ice.LongType(),
    TIME: ice.TimestamptzType(),
    pa.date32(): ice.DateType(),
    HEADERS: ice.ListType(16, _HEADER, element_required=False),
}
_IDS = {name: number for number, name in enumerate(LAKE.names, 1)}
_SCHEMA = Schema(*(ice.NestedField(_IDS[field.name], field.name, _TYPES[field.type], required=False) for field in LAKE))
_SPEC = PartitionSpec(
    *(PartitionField(_IDS[name], 1000 + row, IdentityTransform(), name) for row, name in enumerate(LAKE_PARTITIONS))
)
_PROPERTIES = {
    "commit.retry.num-retries": "0",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "schema.name-mapping.default": _SCHEMA.name_mapping.model_dump_json(),  # our files carry names, not Iceberg's ids
}
_EPOCH = date(1970, 1, 1)


class IcebergLake:
    whole = True

    def __init__(self, place: Place, create: bool) -> None:
        if not place.local:
            raise Refused(
                f"lake {place}: an Iceberg lake is a directory of this machine; take delta elsewhere", code="bad_format"
            )
        self.place = place
        if not create and not os.path.exists(os.path.join(place.root, CATALOG)):
            raise self._nothing()
        if create:
            make_directories(place.root)
            with locked(place.root):
                self._make()
        self._catalog = self._open()
        self._table = self._load()
        _check(self._table, place)

    def refresh(self) -> None:
        self._table = self._load()

    def version(self) -> int:
        snapshot = self._table.current_snapshot()
        return 0 if snapshot is None else snapshot.snapshot_id

    def files(self, at_version: int | None = None, at_ms: int | None = None) -> list[DataFile]:
        if at_ms is not None:
            snapshot = self._table.snapshot_as_of_timestamp(at_ms)
            at_version = 0 if snapshot is None else snapshot.snapshot_id
        elif at_version is None:
            at_version = self.version()
        if at_version == 0:
            return []
        if self._table.snapshot_by_id(at_version) is None:
            raise NotFound(
                f"the lake {self.place} has no version {at_version}: it is at {self.version()}", code="no_version"
            )
        tasks = self._table.scan(snapshot_id=at_version).plan_files()
        return [self._file(task.file, bool(task.delete_files)) for task in tasks]

    def version_of(self, app: str) -> int | None:
        mark = self._mark(app)
        return None if mark is None else mark.version

    def note_of(self, app: str) -> Note | None:
        mark = self._mark(app)
        return None if mark is None else mark.note

    def commit(self, change: Change) -> int:
        told = {}
        if change.app:
            told[_APP + change.app] = msgspec.json.encode(Mark(change.version, change.note)).decode()
        transaction = self._table.transaction()
        try:
            if told:
                transaction.set_properties(told)
            update = transaction.update_snapshot(snapshot_properties=told)
            with update.overwrite() if change.remove else update.merge_append() as snapshot:
                for file in change.add:
                    snapshot.append_data_file(self._entry(file))
                for file in change.remove:
                    snapshot.delete_data_file(self._entry(file))
            self._table = transaction.commit_transaction()
        except CommitFailedException as problem:
            raise Raced(str(problem)) from problem
        except OperationalError as problem:
            if "locked" not in str(problem):
                raise
            raise Raced(str(problem)) from problem
        return self.version()

    def forget(self, before_ms: int) -> None:
        """The metadata lists every snapshot and is written anew with each one: it must not grow for ever."""
        oldest = self._table.snapshot_as_of_timestamp(before_ms)
        if oldest is None:
            return
        with suppress(CommitFailedException):  # the next time will do
            self._table.maintenance.expire_snapshots().older_than(to_datetime(oldest.timestamp_ms)).commit()

    def _open(self) -> SqlCatalog:
        path = os.path.join(self.place.root, CATALOG)
        properties = {
            "uri": f"sqlite:///{path}",
            "warehouse": f"file://{self.place.root}",
            "py-io-impl": "mqueue.lake.durable.DurableIO",
        }
        try:
            return SqlCatalog("mqueue", **properties)
        except DatabaseError as problem:
            raise Corrupt(f"{path} is no catalog of a lake: {problem.orig}", code="unreadable_lake") from problem

    def _make(self) -> None:
        """Under a lock: pyiceberg makes its catalog in steps, and stumbles over one that is half made."""
        catalog = self._open()
        if not catalog.table_exists(NAME):
            catalog.create_namespace_if_not_exists(NAME[:1])
            location = f"file://{self.place.root}"
            catalog.create_table(NAME, _SCHEMA, location, _SPEC, properties=_PROPERTIES)

    def _load(self) -> Table:
        try:
            return self._catalog.load_table(NAME)
        except NoSuchTableError as problem:
            raise self._nothing() from problem
        except (OSError, ValueError) as problem:
            raise Corrupt(f"the lake {self.place} cannot be read: {problem}", code="unreadable_lake") from problem

    def _nothing(self) -> NotFound:
        return NotFound(f"there is no Iceberg lake at {self.place}", code="no_lake")

    def _mark(self, app: str) -> Mark | None:
        told = self._table.properties.get(_APP + app)
        return None if told is None else msgspec.json.decode(told, type=Mark)

    def _entry(self, file: DataFile) -> Entry:
        """As Iceberg lists it: partition values and bounds are ours, so no file is opened for it."""
        every = dict.fromkeys((_IDS["partition"], _IDS["offset"], _IDS["timestamp"]), file.rows)
        entry = Entry.from_args(
            content=DataFileContent.DATA,
            file_path=self.place.uri(file.path),
            file_format=FileFormat.PARQUET,
            partition=Record(file.namespace, file.topic, (date.fromisoformat(file.day) - _EPOCH).days),
            record_count=file.rows,
            file_size_in_bytes=file.size,
            column_sizes={},
            value_counts=every,
            null_value_counts=dict.fromkeys(every, 0),
            nan_value_counts={},
            lower_bounds=_bounds(file.partition, file.first, file.first_ms),
            upper_bounds=_bounds(file.partition, file.last, file.last_ms),
            key_metadata=None,
            split_offsets=None,
            equality_ids=None,
            sort_order_id=None,
        )
        entry.spec_id = self._table.spec().spec_id
        return entry

    def _file(self, entry: Entry, deletes: bool) -> DataFile:
        root = self.place.uri("")
        low, high = _told(entry.lower_bounds), _told(entry.upper_bounds)
        if deletes or low is None or high is None or low[0] != high[0] or not entry.file_path.startswith(root):
            raise Refused(
                f"file {entry.file_path} of the lake {self.place} was written by others: it does not hold one partition"
                " by offset",
                code="not_a_lake",
            )
        namespace, topic, day = (entry.partition[row] for row in range(3))
        return DataFile(
            path=entry.file_path[len(root) :],
            size=entry.file_size_in_bytes,
            rows=entry.record_count,
            namespace=namespace,
            topic=topic,
            day=(day if isinstance(day, date) else _EPOCH + timedelta(days=day)).isoformat(),
            partition=low[0],
            first=low[1],
            last=high[1],
            first_ms=low[2],
            last_ms=high[2],
        )


def _bounds(partition: int, offset: int, ms: int) -> dict[int, bytes]:
    return {
        _IDS["partition"]: to_bytes(ice.IntegerType(), partition),
        _IDS["offset"]: to_bytes(ice.LongType(), offset),
        _IDS["timestamp"]: to_bytes(ice.TimestamptzType(), ms * 1000),
    }


def _told(bounds: dict[int, bytes] | None) -> tuple[int, int, int] | None:
    """Partition, offset and time of a bound; None if it does not tell them."""
    found: list[Any] = [(bounds or {}).get(_IDS[name]) for name in ("partition", "offset", "timestamp")]
    if None in found:
        return None
    kinds = (ice.IntegerType(), ice.LongType(), ice.TimestamptzType())
    numbers: list[Any] = [from_bytes(kind, value) for kind, value in zip(kinds, found, strict=True)]
    return numbers[0], numbers[1], numbers[2] // 1000


def _check(table: Table, place: Place) -> None:
    columns = [(field.name, field.field_type) for field in table.schema().fields]
    parts = [(field.name, field.transform) for field in table.spec().fields]
    expected = [(field.name, field.transform) for field in _SPEC.fields]
    if columns != [(field.name, field.field_type) for field in _SCHEMA.fields] or parts != expected:
        raise Refused(
            f"the Iceberg table {place} has other columns than a lake: {', '.join(LAKE.names)},"
            f" partitioned by {', '.join(LAKE_PARTITIONS)}",
            code="not_a_lake",
        )
