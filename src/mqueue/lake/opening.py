"""What a URL and the name of a format stand for. Imports of a format what it needs, and nothing before."""

from __future__ import annotations

from mqueue.lake.lake import Lake
from mqueue.lake.place import Place
from mqueue.lake.table import Table
from mqueue.model.errors import Refused

FORMATS = ("delta", "iceberg", "parquet")


def open_lake(url: str, format: str = "delta", *, create: bool = False) -> Lake:
    """The lake at a directory or URL. `create` makes it if nothing is there."""
    if format not in FORMATS:
        raise Refused(f"format {format!r:.80} is not known: a lake is one of {', '.join(FORMATS)}", code="bad_format")
    return Lake(_table(Place(url), format, create))


def _table(place: Place, format: str, create: bool) -> Table:
    from mqueue.lake.delta import DeltaLake

    return DeltaLake(place, create)
