"""Archived messages as tables of files: Delta, Iceberg or plain Parquet. Knows neither Spark nor servers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mqueue.lake.files import DataFile
    from mqueue.lake.lake import Appended, At, Compacted, Lake
    from mqueue.lake.opening import FORMATS, open_lake
    from mqueue.lake.writer import Writer

__all__ = ["FORMATS", "Appended", "At", "Compacted", "DataFile", "Lake", "Writer", "open_lake"]

_HOMES = {
    "FORMATS": "opening",
    "Appended": "lake",
    "At": "lake",
    "Compacted": "lake",
    "DataFile": "files",
    "Lake": "lake",
    "Writer": "writer",
    "open_lake": "opening",
}


if not TYPE_CHECKING:  # a type checker would take it for leave to use any name

    def __getattr__(name: str) -> Any:
        """Whoever wants only the columns of messages does not wait for Parquet to be loaded."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        return found
