"""Makes recovery quick enough to be done a thousand times a second: a commit that was taken in is not decoded again.

What an index says of a commit follows from its bytes and its position alone, so it is remembered by just those. All
else of recovery (listing, reading, checksums, the chain, cutting, syncing) is done every time. Every so often a run is
made without this, and has to come out the same. Segments are tiny here, so the zeros that are written ahead of them are
few as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mqueue.log.segments import writer
from mqueue.log.segments.commit import Commit, Link
from mqueue.log.segments.index import Indexer

_CALLS_MAX = 20_000
_AHEAD_BYTES = 700


@contextmanager
def tiny() -> Iterator[None]:
    """Zeros ahead in proportion to the segments of a simulation."""
    real, writer._AHEAD_BYTES = writer._AHEAD_BYTES, _AHEAD_BYTES
    try:
        yield
    finally:
        writer._AHEAD_BYTES = real


@contextmanager
def recall() -> Iterator[None]:
    real = Indexer.add
    known: dict[tuple[int, bytes], dict[str, Any]] = {}

    def add(self: Indexer, data: bytes, offset: int, commit: Commit) -> None:
        key = commit.position, data[offset : offset + commit.length]
        found = known.get(key)
        if found is None:
            fresh = Indexer(self.start, self.link)
            real(fresh, data, offset, commit)
            if len(known) > _CALLS_MAX:
                known.clear()
            found = known[key] = {name: rows for name, rows in vars(fresh).items() if name not in ("start", "link")}
        for name, rows in found.items():
            getattr(self, name).extend(rows)
        self.link = Link(commit.end, commit.crc, commit.epoch, commit.at)

    Indexer.add = add  # type: ignore[method-assign]
    try:
        yield
    finally:
        Indexer.add = real  # type: ignore[method-assign]
