"""What a power cut leaves of changes that were not synced: the rules of the simulated disk, as functions.

A disk may write what it holds back in any order, a sector at a time, and a file system may keep the size of a file,
its bytes and its name apart. All of that is allowed here; what was synced before is never touched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random
from typing import TypeAlias, TypeVar

SECTOR = 512
BLOCK = 4096

Change: TypeAlias = tuple[int, bytes | None]
"""To one file: bytes at an offset, or None: cut off there."""

T = TypeVar("T")

KINDS = {
    "none": ("none", "none"),
    "all": ("all", "all"),
    "sectors": ("sectors", "some"),
    "torn": ("torn", "first"),
    "reordered": ("reordered", "last"),
    "zeros": ("zeros", "all"),
    "stale": ("stale", "all"),
    "hollow": ("none", "all"),
    "nameless": ("all", "none"),
    "linked": ("all", "both"),
}
"""Of each kind of cut: what becomes of the bytes, and what becomes of the names.

sectors: any of them survive. torn: all up to a point, the last one partly. reordered: all but the first ones.
zeros: files have their new size, but nothing of what was written. stale: the same, and what lies there is left over
from another file. hollow: names without bytes. nameless: bytes without names. linked: renamed files have both names,
as without a journal.
"""
NAMES = ("none", "all", "some", "first", "last", "both")


def apply(data: bytearray, change: Change) -> None:
    offset, new = change
    if len(data) < offset:
        data.extend(bytes(offset - len(data)))
    if new is None:
        del data[offset:]
    else:
        data[offset : offset + len(new)] = new


def surviving_bytes(durable: bytes, pending: Sequence[Change], kind: str, rng: Random, leftover: bytes) -> bytes:
    """A file after the cut. `leftover`: what another file had at the same place."""
    if not pending or kind == "none":
        return durable
    data = bytearray(durable)
    for change in BYTES[kind](pending, rng):
        apply(data, change)
    if kind == "stale":
        start = min(-(-len(durable) // BLOCK) * BLOCK, len(data))  # a block has never parts of two files
        found = leftover[start : len(data)]
        data[start : start + len(found)] = found
    return bytes(data)


def surviving_names(pending: Sequence[T], kind: str, rng: Random) -> Sequence[T]:
    if kind == "none" or not pending:
        return ()
    if kind in ("all", "both"):
        return pending
    if kind == "some":
        return [change for change in pending if rng.random() < 0.5]
    at = rng.randrange(len(pending) + 1)
    return pending[:at] if kind == "first" else pending[at:]


def _all(pending: Sequence[Change], rng: Random) -> Sequence[Change]:
    return pending


def _sectors(pending: Sequence[Change], rng: Random) -> Sequence[Change]:
    return [piece for change in pending for piece in _pieces(change) if rng.random() < 0.5]


def _torn(pending: Sequence[Change], rng: Random) -> Sequence[Change]:
    at = rng.randrange(len(pending))
    offset, new = pending[at]
    if new is None:
        return pending[: at + rng.randrange(2)]
    cut = rng.randrange(len(new) + 1)
    if rng.random() < 0.5:
        cut = max(cut - (offset + cut) % SECTOR, 0)
    return [*pending[:at], (offset, new[:cut])]


def _reordered(pending: Sequence[Change], rng: Random) -> Sequence[Change]:
    pieces = [piece for change in pending for piece in _pieces(change)]
    return pieces[rng.randrange(1, len(pieces)) :] if len(pieces) > 1 else ()


def _sizes(pending: Sequence[Change], rng: Random) -> Sequence[Change]:
    return [(offset + len(new), b"") if new is not None else (offset, None) for offset, new in pending]


def _pieces(change: Change) -> list[Change]:
    """One for each sector of the file that it touches."""
    offset, new = change
    if new is None:
        return [change]
    first = SECTOR - offset % SECTOR
    bounds = [0, *range(first, len(new), SECTOR), len(new)]
    return [(offset + start, new[start:stop]) for start, stop in pairwise(bounds)]


BYTES: dict[str, Callable[[Sequence[Change], Random], Sequence[Change]]] = {
    "all": _all,
    "sectors": _sectors,
    "torn": _torn,
    "reordered": _reordered,
    "zeros": _sizes,
    "stale": _sizes,
}
FILES = ("none", *BYTES)
