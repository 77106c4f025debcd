"""Small files of a lake → large ones, with the same rows. Which to take, and whether nothing was lost.

Only files of one partition and day are put together, so a file stays what a file is. Does not know how tables change.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import pyarrow as pa

from mqueue.lake.files import DataFile
from mqueue.lake.reading import clusters
from mqueue.model.errors import Corrupt


def bundles(files: list[DataFile], before: date | None, target_bytes: int) -> dict[str, list[list[DataFile]]]:
    """By day: files that are to become one, neighbours in the log. Those that overlap stay together."""
    found: dict[str, list[list[DataFile]]] = {}
    groups: dict[tuple[str, int], list[DataFile]] = {}
    for file in files:
        if before is None or date.fromisoformat(file.day) < before:
            groups.setdefault((file.day, file.partition), []).append(file)
    for (day, _), group in sorted(groups.items()):
        found.setdefault(day, []).extend(bundle for bundle in _neighbours(group, target_bytes) if len(bundle) > 1)
    return {day: chosen for day, chosen in found.items() if chosen}


def _neighbours(files: list[DataFile], target_bytes: int) -> Iterator[list[DataFile]]:
    bundle: list[DataFile] = []
    for cluster in clusters(files):
        size = sum(file.size for file in cluster)
        if bundle and sum(file.size for file in bundle) + size > target_bytes:
            yield bundle
            bundle = []
        bundle = [*bundle, *cluster]
    if bundle:
        yield bundle


def check_same(before: Iterator[pa.RecordBatch], after: Iterator[pa.RecordBatch], what: str) -> int:
    """How many rows both have; `Corrupt` unless they are the same, value by value, in the same order."""
    rows = 0
    old, new = next(before, None), next(after, None)
    while old is not None and new is not None:
        step = min(old.num_rows, new.num_rows)
        if not old.slice(0, step).equals(new.slice(0, step)):
            break
        rows += step
        old = old.slice(step) if step < old.num_rows else next(before, None)
        new = new.slice(step) if step < new.num_rows else next(after, None)
    if old is not None or new is not None:
        raise Corrupt(f"{what} would change from its row {rows} on if its files were put together; they were left")
    return rows
