"""A file of a lake, and where it lies: what a table needs to know of it to find messages without opening it.

A file holds messages of one partition of one topic and one day, in the order of their offsets. So the first and the
last offset say all that a reader has to know, and every table format can keep them as the statistics of a column.
Does not know how a table keeps its list of files.
"""

from __future__ import annotations

from msgspec import Struct

from mqueue.lake.schema import LAKE, LAKE_PARTITIONS

SUFFIX = ".parquet"

_IN_PATH = {*LAKE_PARTITIONS}
STORED = tuple(name for name in LAKE.names if name not in _IN_PATH)
"""The columns that are in a file and not in its path."""


class DataFile(Struct, frozen=True):
    """`path` is relative to the lake. It has offsets from `first` to `last`, and times from `first_ms` to `last_ms`."""

    path: str
    size: int
    rows: int
    namespace: str
    topic: str
    day: str
    partition: int
    first: int
    last: int
    first_ms: int
    last_ms: int

    @property
    def next(self) -> int:
        """The offset behind the last one."""
        return self.last + 1

    def reaches(self, start: int | None, stop: int | None) -> bool:
        """Whether it may have offsets from `start` to before `stop`."""
        return (start is None or self.last >= start) and (stop is None or self.first < stop)


def directory(namespace: str, topic: str, day: str) -> str:
    """As Hive lays out partitions. Names of ours need no escapes: they are made of letters, digits, `.`, `_`, `-`."""
    return f"namespace={namespace}/topic={topic}/date={day}"


def is_ours(path: str) -> bool:
    """Whether a file may be one of messages; a table keeps others beside them."""
    return path.startswith("namespace=") and path.endswith(SUFFIX)


def in_order(files: list[DataFile]) -> list[DataFile]:
    """By place in the log."""
    return sorted(files, key=lambda file: (file.namespace, file.topic, file.partition, file.first, file.last))
