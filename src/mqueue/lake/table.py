"""What a lake asks of a table format: a list of files that changes as a whole, and remembers who changed it.

`Table` is the seam. Delta, Iceberg and plain Parquet files stand behind it; `Lake` is the same for all of them.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from mqueue.lake.files import DataFile
from mqueue.lake.place import Place

Note: TypeAlias = dict[str, Any]
"""What an app wrote beside an append: JSON."""


class Change(Struct, frozen=True):
    """Of a table, all at once. `app` is empty where only the layout changes and the rows stay the same."""

    add: tuple[DataFile, ...]
    remove: tuple[DataFile, ...] = ()
    app: str = ""
    version: int = 0
    note: Note = {}


class Mark(Struct, frozen=True):
    """How far an app has come. `note` is None if the table no longer knows it."""

    version: int
    note: Note | None


class Raced(Exception):
    """Somebody else changed the table since it was looked at; nothing was done."""


class Table(Protocol):
    whole: bool
    """Whether the columns of the path have to be in the files as well."""
    place: Place

    def refresh(self) -> None:
        """Look at the table as it is now: what follows speaks of that."""

    def version(self) -> int:
        """Names the table as it is now, for `at`."""

    def files(self, at_version: int | None = None, at_ms: int | None = None) -> list[DataFile]:
        """As it is, at a version, or at a time; in no particular order."""

    def version_of(self, app: str) -> int | None: ...

    def note_of(self, app: str) -> Note | None: ...

    def commit(self, change: Change) -> int:
        """The table's new version; `Raced` if it is no longer as `refresh` found it."""

    def forget(self, before_ms: int) -> None:
        """How the table was before a time will not be asked again."""
