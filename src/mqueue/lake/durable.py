"""How pyiceberg writes its own files in a lake of this machine: what is closed outlasts a loss of power.

Its catalog would otherwise name metadata that the disk has not seen yet.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from mqueue.lake.place import sync


class DurableIO(PyArrowFileIO):
    """Named to the catalog, which makes it."""

    def new_output(self, location: str) -> PyArrowFile:
        plain = super().new_output(location)
        return _Output(plain.location, plain._path, plain._filesystem, plain._buffer_size)


class _Output(PyArrowFile):
    def create(self, overwrite: bool = False) -> Any:
        return _Stream(super().create(overwrite), self._path)


class _Stream:
    def __init__(self, stream: Any, path: str) -> None:
        self._stream = stream
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> _Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if not self._stream.closed:
            self._stream.close()
            sync(self._path)
            sync(os.path.dirname(self._path))
