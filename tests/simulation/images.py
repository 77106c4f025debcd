"""Which disks could be found after a crash right now. Every change of the disk has its moment, each moment many images.

Before the power goes nothing is ever asked twice: while nothing is pending all cuts leave the same disk, so it is taken
once. Where bytes are pending each kind of loss is taken, torn writes at several places; where names are, each of those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from mqueue.testing.disk import SimDisk

BYTES = ("none", "all", "torn", "torn", "torn", "sectors", "sectors", "reordered", "zeros", "stale")
NAMES = ("none", "all", "hollow", "nameless", "linked", "torn", "reordered", "sectors")
BOTH = ("none", "all", "hollow", "nameless", "linked", "torn", "torn", "sectors", "reordered", "zeros", "stale")
MIXED = 2
"""So many more where each file and the names meet their own fate."""
KILL = "kill"
_QUIET = frozenset({"list", "close", "size", "pread", "free", "lock", "unlock"})


def moments(disk: SimDisk, take: Callable[[], None]) -> None:
    """Call `take` before each operation that finds the disk changed by the one before, from now on."""
    changed = True

    def hook(op: str, name: str) -> None:
        nonlocal changed
        if changed:
            changed = False
            disk.hook = None  # what looks at the disk is no part of the run
            take()
            disk.hook = hook
        changed = op not in _QUIET and (op != "open" or name not in disk._names)

    disk.hook = hook


def kinds(disk: SimDisk) -> tuple[str | None, ...]:
    """The kinds of images that differ from each other now."""
    bytes_pending = any(inode.pending for inode in disk._names.values()) or any(
        inode.pending for inode in disk._names_durable.values()
    )
    if not disk._names_pending:
        return (*BYTES, KILL, *[None] * MIXED) if bytes_pending else ("none",)
    return (*(BOTH if bytes_pending else NAMES), KILL, *[None] * MIXED)


def images(disk: SimDisk, rng: Random, thin: int = 1) -> Iterator[tuple[str, Callable[[], SimDisk]]]:
    """(kind, how to make it) of each image; making it again gives the same. `thin`: only one in so many."""
    for kind in kinds(disk):
        if thin > 1 and rng.randrange(thin):
            continue
        seed = rng.getrandbits(48)
        yield str(kind), _maker(disk, kind, seed)


def _maker(disk: SimDisk, kind: str | None, seed: int) -> Callable[[], SimDisk]:
    if kind == KILL:
        return disk.kill
    return lambda: disk.crash(Random(seed), kind)
