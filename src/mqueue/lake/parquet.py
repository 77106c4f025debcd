"""A lake as plain Parquet files and a list of them: needs no package but pyarrow, and a directory of this machine.

    _manifest/00000000000000000000.json         what the columns are
    _manifest/00000000000000000001.json         one change: files added, files removed, the app, its version, its note
    _manifest/00000000000000000064.checkpoint   all that is true at version 64

A change is written beside its place, synced, and linked there: the link fails if somebody else has taken the number,
and before it nobody sees anything. Numbers have no gaps, so a reader asks for the next one until there is none. Changes
are never deleted. A checkpoint only saves reading; it follows from the changes, and whoever writes it writes the same.
"""

from __future__ import annotations

import os
import uuid
from contextlib import suppress

import msgspec
from msgspec import Struct

from mqueue.lake.files import DataFile
from mqueue.lake.place import Place, make_directories, sync
from mqueue.lake.schema import LAKE
from mqueue.lake.table import Change, Mark, Note, Raced
from mqueue.model.clock import SystemClock
from mqueue.model.errors import Corrupt, NotFound, Refused

MANIFEST = "_manifest"
CHECKPOINT_EVERY = 64
_DRAFT = ".draft"
_COLUMNS = [f"{field.name} {field.type}" for field in LAKE]


class _Entry(Struct, frozen=True, omit_defaults=True):
    """One change. `at_ms` never falls; `columns` is in the first one only."""

    at_ms: int
    add: tuple[DataFile, ...] = ()
    remove: tuple[str, ...] = ()
    app: str = ""
    version: int = 0
    note: Note = {}
    columns: list[str] = []


class _State(Struct):
    """All that is true at a version."""

    version: int
    at_ms: int
    files: dict[str, DataFile]
    apps: dict[str, Mark]

    def follow(self, entry: _Entry) -> None:
        self.version += 1
        self.at_ms = entry.at_ms
        for path in entry.remove:
            self.files.pop(path, None)
        self.files.update({file.path: file for file in entry.add})
        if entry.app:
            self.apps[entry.app] = Mark(entry.version, entry.note)


class ParquetLake:
    whole = False

    def __init__(self, place: Place, create: bool) -> None:
        if not place.local:
            raise Refused(
                f"lake {place}: a lake of plain Parquet files is a directory of this machine; take delta elsewhere",
                code="bad_format",
            )
        self.place = place
        self._directory = os.path.join(place.root, MANIFEST)
        self._clock = SystemClock()
        if create:
            self._make()
        first = self._entry(0)
        if first is None:
            raise NotFound(f"there is no lake of Parquet files at {place}", code="no_lake")
        if first.columns != _COLUMNS:
            raise Refused(f"{place} has other columns than a lake: {', '.join(LAKE.names)}", code="not_a_lake")
        self._state = self._begin(None)
        self.refresh()

    def refresh(self) -> None:
        self._advance(self._state, None)

    def version(self) -> int:
        return self._state.version

    def files(self, at_version: int | None = None, at_ms: int | None = None) -> list[DataFile]:
        if at_ms is not None:
            at_version = self._version_at(at_ms)
            if at_version is None:
                return []
        if at_version is None:
            return list(self._state.files.values())
        if not 0 <= at_version <= self.version():
            raise NotFound(
                f"the lake {self.place} has no version {at_version}: it is at {self.version()}", code="no_version"
            )
        state = self._begin(at_version)
        self._advance(state, at_version)
        return list(state.files.values())

    def version_of(self, app: str) -> int | None:
        mark = self._state.apps.get(app)
        return None if mark is None else mark.version

    def note_of(self, app: str) -> Note | None:
        mark = self._state.apps.get(app)
        return None if mark is None else mark.note

    def commit(self, change: Change) -> int:
        state = self._state
        entry = _Entry(
            at_ms=max(self._clock.now(), state.at_ms),
            add=change.add,
            remove=tuple(file.path for file in change.remove),
            app=change.app,
            version=change.version,
            note=change.note,
        )
        self._put(state.version + 1, entry)
        self._advance(state, state.version + 1)
        if state.version % CHECKPOINT_EVERY == 0:
            self._write(self._checkpoint(state.version), msgspec.json.encode(state))
        return state.version

    def forget(self, before_ms: int) -> None:
        """Changes are small, and all are kept. Drafts of those who died are not."""
        with os.scandir(self._directory) as found:
            drafts = [entry for entry in found if entry.name.endswith(_DRAFT)]
        for entry in drafts:
            with suppress(FileNotFoundError):
                if entry.stat().st_mtime_ns // 1_000_000 < before_ms:
                    os.unlink(entry.path)

    def _make(self) -> None:
        make_directories(self._directory)
        if self._entry(0) is None:
            with suppress(Raced):  # somebody else made it
                self._put(0, _Entry(at_ms=self._clock.now(), columns=_COLUMNS))

    def _put(self, version: int, entry: _Entry) -> None:
        """All of it, or nothing, and nobody else's."""
        draft = self._draft(msgspec.json.encode(entry))
        try:
            os.link(draft, self._change(version))
        except FileExistsError as problem:
            raise Raced(f"version {version} is taken") from problem
        finally:
            os.unlink(draft)
        sync(self._directory)

    def _write(self, path: str, data: bytes) -> None:
        os.replace(self._draft(data), path)
        sync(self._directory)

    def _draft(self, data: bytes) -> str:
        path = os.path.join(self._directory, f".{uuid.uuid4().hex}{_DRAFT}")
        with open(path, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return path

    def _begin(self, at: int | None) -> _State:
        """The newest checkpoint, not behind `at`; or nothing, from which all changes follow."""
        names = sorted(name for name in os.listdir(self._directory) if name.endswith(".checkpoint"))
        numbers = [int(name.split(".")[0]) for name in names]
        fit = [number for number in numbers if at is None or number <= at]
        if not fit:
            return _State(-1, 0, {}, {})
        try:
            with open(self._checkpoint(fit[-1]), "rb") as file:
                return msgspec.json.decode(file.read(), type=_State)
        except msgspec.DecodeError as problem:
            raise self._damaged(self._checkpoint(fit[-1]), problem) from problem

    def _advance(self, state: _State, until: int | None) -> None:
        while until is None or state.version < until:
            entry = self._entry(state.version + 1)
            if entry is None:
                return
            state.follow(entry)

    def _version_at(self, ms: int) -> int | None:
        """The last version not after a time; None if the lake is younger. Times never fall, so it can be halved."""
        low, high = -1, self.version()
        while low < high:
            middle = (low + high + 1) // 2
            entry = self._entry(middle)
            if entry is None:
                raise Corrupt(f"version {middle} of the lake {self.place} is missing", code="unreadable_lake")
            low, high = (middle, high) if entry.at_ms <= ms else (low, middle - 1)
        return low if low >= 0 else None

    def _entry(self, version: int) -> _Entry | None:
        try:
            with open(self._change(version), "rb") as file:
                return msgspec.json.decode(file.read(), type=_Entry)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as problem:
            raise self._damaged(self._change(version), problem) from problem

    def _damaged(self, path: str, problem: Exception) -> Corrupt:
        return Corrupt(f"{path} of the lake {self.place} is damaged: {problem}", code="unreadable_lake")

    def _change(self, version: int) -> str:
        return os.path.join(self._directory, f"{version:020d}.json")

    def _checkpoint(self, version: int) -> str:
        return os.path.join(self._directory, f"{version:020d}.checkpoint")
