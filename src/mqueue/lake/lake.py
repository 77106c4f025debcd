"""A lake: archived messages as a table of files, whatever its format.

Writing takes two steps. Any process turns rows into files (`writer`); one call names them (`append`), once for each
version of an app. Between the two nobody sees the files, and if the second never comes `vacuum` removes them. Does not
know who the apps are, nor Spark, nor servers.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from typing import TypeAlias

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import astuple

from mqueue.lake.compacting import bundles, check_same
from mqueue.lake.files import DataFile, in_order, is_ours
from mqueue.lake.reading import check_columns, first_since, read
from mqueue.lake.schema import LAKE
from mqueue.lake.table import Change, Note, Raced, Table
from mqueue.lake.writer import FILE_BYTES, Writer, remove_all
from mqueue.model.clock import SystemClock
from mqueue.model.errors import Conflict, Refused, Unavailable
from mqueue.model.times import Duration, Instant, duration_ms, instant

At: TypeAlias = int | Instant | None
"""A version of a lake, or a time; None is now."""

COMMITS_MAX = 60
"""How often a change is tried while others come first."""
_WAIT_SECONDS, _WAIT_SECONDS_MAX = 0.01, 1.0


class Appended(Struct, frozen=True):
    """`published` is False if this version of the app was there already; `version` is the lake's."""

    published: bool
    version: int


class Compacted(Struct, frozen=True):
    """Files and bytes that were replaced, those that took their place, and how many rows are in them."""

    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rows: int = 0

    def plus(self, other: Compacted) -> Compacted:
        return Compacted(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


class Lake:
    """To be used by one thread; others open their own."""

    def __init__(self, table: Table) -> None:
        self._table = table

    @property
    def url(self) -> str:
        return self._table.place.url

    def writer(self, *, file_bytes: int = FILE_BYTES) -> Writer:
        """Turns rows into files. It can be pickled, and used where this lake is not open."""
        if file_bytes < 1:
            raise Refused(f"file_bytes {file_bytes}: a file has at least 1 byte", code="bad_limit")
        return Writer(self._table.place, whole=self._table.whole, file_bytes=file_bytes)

    def append(self, files: Iterable[DataFile], app: str, version: int, note: Note | None = None) -> Appended:
        """Put files into the lake, all at once, and only if `app` has not come as far as `version` yet.

        Versions of an app have to rise. The note is kept beside its last one.
        """
        if not app or version < 0:
            raise Refused(f"app {app!r:.80} version {version}: give a name and a version of at least 0", code="bad_app")
        change = Change(tuple(files), app=app, version=version, note=note or {})

        def due() -> bool:
            known = self._table.version_of(app)
            return known is None or known < version

        return self._commit(change, due)

    def version(self) -> int:
        """Names the lake as it is now."""
        self._table.refresh()
        return self._table.version()

    def version_of(self, app: str) -> int | None:
        """How far an app has come."""
        self._table.refresh()
        return self._table.version_of(app)

    def note_of(self, app: str) -> Note | None:
        """What it wrote beside its last append; None if there was none, or the table's history is shorter than that."""
        self._table.refresh()
        return self._table.note_of(app)

    def files(self, at: At = None, *, namespace: str | None = None, topic: str | None = None) -> list[DataFile]:
        """Those that are in the lake, or were at a version or a time, in the order of the log."""
        self._table.refresh()
        if at is None:
            found = self._table.files()
        elif isinstance(at, int):
            found = self._table.files(at_version=at)
        else:
            found = self._table.files(at_ms=instant(at, "at"))
        return in_order([f for f in found if namespace in (None, f.namespace) and topic in (None, f.topic)])

    def topics(self, at: At = None) -> list[tuple[str, str]]:
        """(namespace, topic) of all that has messages here."""
        return sorted({(file.namespace, file.topic) for file in self.files(at)})

    def offsets(self, namespace: str, topic: str, at: At = None) -> dict[int, int]:
        """By partition: the offset behind the last message that is here."""
        found: dict[int, int] = {}
        for file in self.files(at, namespace=namespace, topic=topic):
            found[file.partition] = max(found.get(file.partition, 0), file.next)
        return found

    def scan(
        self,
        namespace: str,
        topic: str,
        partition: int | None = None,
        start: int | None = None,
        stop: int | None = None,
        at: At = None,
        columns: Iterable[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Messages in the order (partition, offset), from offset `start` to before `stop`.

        What is read is fixed by the call. Files without such offsets are not opened.
        """
        names = check_columns(columns)
        files = self.files(at, namespace=namespace, topic=topic)
        wanted = sorted({file.partition for file in files if partition in (None, file.partition)})
        place = self._table.place
        return (
            batch
            for number in wanted
            for batch in read(place, [file for file in files if file.partition == number], start, stop, names)
        )

    def offsets_at(self, namespace: str, topic: str, time: Instant) -> dict[int, int]:
        """By partition: the first offset that was published at a time or later; without those that have none."""
        ms = instant(time)
        found: dict[int, int] = {}
        for file in self.files(namespace=namespace, topic=topic):
            if file.last_ms >= ms and file.partition not in found:
                found[file.partition] = first_since(self._table.place, file, ms)
        return found

    def compact(
        self, namespace: str, topic: str, before: date | None = None, target_bytes: int = FILE_BYTES
    ) -> Compacted:
        """Put small files of days before `before` together, a commit for each day. The rows stay as they are.

        Readers go on with the files that they began with, until `vacuum` removes those.
        """
        writer = self.writer(file_bytes=target_bytes)
        told = Compacted()
        for day, chosen in bundles(self.files(namespace=namespace, topic=topic), before, target_bytes).items():
            told = told.plus(self._compact_day(writer, f"{namespace}/{topic} of {day}", chosen))
        return told

    def vacuum(self, older_than: Duration = "7d", *, dry_run: bool = False) -> list[str]:
        """Remove files that nobody appended, or that `compact` has replaced, once they are so old. Their names.

        What was appended as long ago or longer can then be read as it is now, and no more as it was. A file that is
        older than this when it is appended may be gone: the append will say so.
        """
        cutoff = SystemClock().now() - duration_ms(older_than, "older_than")
        place = self._table.place
        old = [name for name, _, changed_ms in place.walk() if changed_ms < cutoff and is_ours(name)]
        kept = {file.path for file in self.files()} | {file.path for file in self._table.files(at_ms=max(cutoff, 0))}
        found = sorted(name for name in old if name not in kept)
        if not dry_run:
            for name in found:
                place.remove(name)
            self._table.forget(max(cutoff, 0))
        return found

    def _compact_day(self, writer: Writer, what: str, chosen: list[list[DataFile]]) -> Compacted:
        old = [file for bundle in chosen for file in bundle]
        new, rows = self._rewrite(writer, what, chosen)
        paths = {file.path for file in old}

        def still_there() -> bool:
            return paths <= {file.path for file in self._table.files()}

        # If this fails nobody knows whether the new files are in the lake: they are left, and `vacuum` will know.
        if not self._commit(Change(tuple(new), tuple(old)), still_there).published:
            remove_all(self._table.place, new)  # somebody else was faster
            return Compacted()
        return Compacted(len(old), len(new), sum(file.size for file in old), sum(file.size for file in new), rows)

    def _rewrite(self, writer: Writer, what: str, chosen: list[list[DataFile]]) -> tuple[list[DataFile], int]:
        """New files in the place of each bundle, and how many rows they have."""
        place, names = self._table.place, list(LAKE.names)
        new: list[DataFile] = []
        rows = 0
        try:
            for bundle in chosen:
                made = writer.write(read(place, bundle, None, None, names))
                new += made
                rows += check_same(read(place, bundle, None, None, names), read(place, made, None, None, names), what)
        except BaseException:
            remove_all(place, new)
            raise
        return new, rows

    def _commit(self, change: Change, due: Callable[[], bool]) -> Appended:
        """Try until nobody comes in between. Each time it is asked again whether there is anything to do."""
        self._check_there(change.add)
        wait = _WAIT_SECONDS
        for _ in range(COMMITS_MAX):
            self._table.refresh()
            if not due():
                return Appended(False, self._table.version())
            try:
                return Appended(True, self._table.commit(change))
            except Raced:
                threading.Event().wait(wait * (0.5 + random.random()))  # noqa: S311 (to part those who collided)
                wait = min(2 * wait, _WAIT_SECONDS_MAX)
        raise Unavailable(f"the lake {self.url} was changed by others {COMMITS_MAX} times in a row", code="lake_busy")

    def _check_there(self, files: Iterable[DataFile]) -> None:
        for file in files:
            size = self._table.place.size(file.path)
            if size != file.size:
                there = "is missing" if size is None else f"has {size} bytes"
                raise Conflict(
                    f"file {file.path}, to be put into the lake {self.url} with {file.size} bytes, {there}",
                    code="file_missing",
                )
