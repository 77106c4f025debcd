"""What a URL and the name of a format stand for. Imports of a format what it needs, and nothing before."""

from __future__ import annotations

from mqueue.lake.lake import Lake
from mqueue.lake.place import Place
from mqueue.lake.table import Table
from mqueue.model.errors import Refused

_MARKS = {"delta": "_delta_log", "iceberg": "catalog.db", "parquet": "_manifest"}
"""What stands in the root of a lake, by its format."""
FORMATS = tuple(_MARKS)


def open_lake(url: str, format: str = "delta", *, create: bool = False) -> Lake:
    """The lake at a directory or URL. `create` makes it if nothing is there."""
    if format not in FORMATS:
        raise Refused(f"format {format!r:.80} is not known: a lake is one of {', '.join(FORMATS)}", code="bad_format")
    place = Place(url)
    there = place.names()
    found = next((known for known, mark in _MARKS.items() if mark in there), None)
    if found not in (None, format):
        raise Refused(f"the lake {place} is {found}, not {format}", code="bad_format")
    if found is None and create and there:
        raise Refused(f"{place} holds other files: a lake is made in a directory of its own", code="not_a_lake")
    return Lake(_table(place, format, create))


def _table(place: Place, format: str, create: bool) -> Table:
    """A format is imported when it is asked for: each needs packages that the others do not."""
    if format == "delta":
        from mqueue.lake.delta import DeltaLake

        return DeltaLake(place, create)
    if format == "iceberg":
        from mqueue.lake.iceberg import IcebergLake

        return IcebergLake(place, create)
    from mqueue.lake.parquet import ParquetLake

    return ParquetLake(place, create)
