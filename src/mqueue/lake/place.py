"""Where a lake is: a directory of this machine, or whatever else a URL means to pyarrow.

Knows how bytes get there for good. Locally a file is synced, and so are the directories that name it; elsewhere the
store answers for that. Does not know what the bytes mean.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from mqueue.model.errors import Refused, Unavailable

_LOOKS = 5
"""How often a directory that changes under the reader is listed before that is an error."""


class Place:
    """The root of a lake. It can be pickled, and is opened where it is used."""

    def __init__(self, url: str) -> None:
        if not url.strip():
            raise Refused(f"lake {url!r:.80} is no place: give a directory or a URL such as s3://bucket/lake")
        parts = urlsplit(url)
        self.local = parts.scheme in ("", "file") or "://" not in url
        if self.local:
            self.root = os.path.abspath(unquote(parts.path) if parts.scheme == "file" else url)
            self.url = self.root
        else:
            self.root = self.url = url.rstrip("/")
        self._files: Any = None

    def __repr__(self) -> str:
        return self.url

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_files": None}

    def path(self, name: str) -> str:
        """As the file system of this place names it."""
        return f"{self._open()[1]}/{name}"

    def uri(self, name: str) -> str:
        """As other programs name it."""
        return f"file://{self.root}/{name}" if self.local else f"{self.url}/{name}"

    def source(self, name: str) -> Any:
        """A file to read from anywhere in it."""
        return self._open()[0].open_input_file(self.path(name))

    def sink(self, name: str) -> Any:
        """A new file to write; its directories are made."""
        files, _ = self._open()
        path = self.path(name)
        if self.local:
            make_directories(os.path.dirname(path))
        return files.open_output_stream(path)

    def size(self, name: str) -> int | None:
        """None: there is no such file."""
        info = self._open()[0].get_file_info(self.path(name))
        return info.size if info.type == fs.FileType.File else None

    def keep(self, names: list[str]) -> None:
        """From here on these files outlast a loss of power."""
        if not self.local:
            return
        for name in names:
            sync(self.path(name))
        for directory in sorted({os.path.dirname(self.path(name)) for name in names}):
            sync(directory)

    def remove(self, name: str) -> None:
        self._open()[0].delete_file(self.path(name))

    def walk(self, below: str = "") -> Iterator[tuple[str, int, int]]:
        """(name, size, milliseconds since 1970 when it was changed) of all files, at any depth."""
        _, root = self._open()
        for info in self._list(f"{root}/{below}" if below else root, recursive=True):
            if info.type == fs.FileType.File:
                yield info.path[len(root) + 1 :], info.size, (info.mtime_ns or 0) // 1_000_000

    def names(self) -> list[str]:
        """What stands directly in the root."""
        return sorted(info.base_name for info in self._list(self._open()[1], recursive=False))

    def _list(self, directory: str, recursive: bool) -> list[Any]:
        """Empty where there is nothing. pyarrow fails if a directory appears while it looks: then it looks again."""
        files, _ = self._open()
        selector = fs.FileSelector(directory, allow_not_found=True, recursive=recursive)
        for _ in range(_LOOKS - 1):
            with suppress(FileNotFoundError):
                return files.get_file_info(selector)  # type: ignore[no-any-return]
        return files.get_file_info(selector)  # type: ignore[no-any-return]

    def _open(self) -> tuple[Any, str]:
        if self._files is None:
            self._files = (fs.LocalFileSystem(), self.root) if self.local else _remote(self.url)
        return self._files  # type: ignore[no-any-return]


def make_directories(path: str) -> None:
    """Directories that outlast a loss of power: each new one is synced into the one above it."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for new in reversed(missing):
        try:
            os.mkdir(new)
        except FileExistsError:  # another writer was faster
            continue
        sync(os.path.dirname(new))


@contextmanager
def locked(directory: str) -> Iterator[None]:
    """Nobody else on this machine is in here at the same time."""
    file = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)  # and with it goes the lock


def sync(path: str) -> None:
    """A file, or the names in a directory."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _remote(url: str) -> tuple[Any, str]:
    try:
        files, root = fs.FileSystem.from_uri(url)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as problem:
        raise Unavailable(f"lake {url} cannot be reached: {problem}", code="lake_unreachable") from problem
    return files, root.rstrip("/")
