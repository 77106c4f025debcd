"""A disk in memory whose power can be cut at any moment, many thousand times a second. The same calls, the same result.

It shows what a process sees (the page cache) and remembers what of it a power cut may take: the writes of each file
since its last `sync`, the names since the last `sync_dir`. `crash` gives one of the disks that could be found
afterwards, `kill` the one that the next process finds when only this one dies. Neither changes this disk.
"""

from __future__ import annotations

import errno
import hashlib
import os
import zlib
from collections.abc import Callable
from random import Random
from typing import TypeAlias

from mqueue.model.errors import InUse
from mqueue.testing.power import FILES, KINDS, NAMES, Change, apply, surviving_bytes, surviving_names

ENDLESS = 1 << 50


class Inode:
    """A file, whatever it is called."""

    __slots__ = ("data", "durable", "lossy", "pending")

    def __init__(self, durable: bytes = b"") -> None:
        self.durable = durable  # never changed in place: disks share it
        self.data: bytes | bytearray = durable  # what reads show; a bytearray as soon as it is written to
        self.pending: list[Change] = []
        self.lossy = False  # a sync failed: what reads show is more than pending changes can make of `durable`

    def change(self, change: Change) -> None:
        if isinstance(self.data, bytes):
            self.data = bytearray(self.data)
        apply(self.data, change)
        self.pending.append(change)

    def sync(self) -> None:
        if not self.lossy:
            self.durable = bytes(self.data)
        else:
            written = bytearray(self.durable)
            for change in self.pending:
                apply(written, change)
            self.durable = bytes(written)
        self.pending = []

    def lose(self, rng: Random) -> None:
        """What a failed sync does: some pages count as written, and are not."""
        self.pending = [change for change in self.pending if rng.random() < 0.5]
        self.lossy = True

    def copy(self) -> Inode:
        copy = Inode(self.durable)
        copy.data = bytes(self.data)
        copy.pending = list(self.pending)
        copy.lossy = self.lossy
        return copy


Renaming: TypeAlias = tuple[str | None, str | None, Inode]
"""A change of names: the old one (None: the file is made), the new one (None: it is removed), and the file."""
_Names: TypeAlias = list[str]


class SimDisk:
    """`Disk` in memory. `hook(op, name)` is called before each operation: raise there to stop, or call `crash`."""

    def __init__(self, capacity: int | None = None, seed: int = 0) -> None:
        self.capacity = capacity
        self.seed = seed
        self.hook: Callable[[str, str], None] | None = None
        self.ops = 0
        self._calls: dict[str, int] = {}
        self._faults: dict[tuple[str, int], int] = {}
        self._story: list[tuple[object, ...]] = []
        self._locked = False
        self._files: dict[int, tuple[str, Inode]] = {}
        self._names: dict[str, Inode] = {}
        self._names_durable: dict[str, Inode] = {}
        self._names_pending: list[Renaming] = []
        self._leftovers: list[bytes] = []

    # What a test does to it

    def crash(self, rng: Random, kind: str | None = None) -> SimDisk:
        """A disk as it could be after a power cut now. Without a kind, each file and the names meet their own."""
        files, names = KINDS[kind] if kind else (None, rng.choice(NAMES))
        after = self._next()
        found = dict(self._names_durable)
        for old, new, inode in surviving_names(self._names_pending, names, rng):
            _rename(found, (None if names == "both" and new else old, new, inode))
        copies = {inode: Inode(self._survivor(inode, files, rng)) for inode in dict.fromkeys(found.values())}
        after._names = {name: copies[inode] for name, inode in found.items()}
        after._names_durable = dict(after._names)
        return after

    def _survivor(self, inode: Inode, kind: str | None, rng: Random) -> bytes:
        if not inode.pending:
            return inode.durable
        kind = kind or rng.choice(FILES)
        leftover = self._leftover(rng) if kind == "stale" else b""
        return surviving_bytes(inode.durable, inode.pending, kind, rng, leftover)

    def kill(self) -> SimDisk:
        """This disk for the next process: all that was written is there, and what was not synced still is not."""
        after = self._next()
        changed = [inode for _, _, inode in self._names_pending]
        everyone = dict.fromkeys([*self._names.values(), *self._names_durable.values(), *changed])
        copies = {inode: inode.copy() for inode in everyone}
        after._names = {name: copies[inode] for name, inode in self._names.items()}
        after._names_durable = {name: copies[inode] for name, inode in self._names_durable.items()}
        after._names_pending = [(old, new, copies[inode]) for old, new, inode in self._names_pending]
        return after

    def fail(self, op: str, nth: int = 1, error: int = errno.EIO) -> None:
        """Let the nth call of `op` from now fail. A failed write leaves half of it, a failed sync forgets some."""
        self._faults[op, self._calls.get(op, 0) + nth] = error

    def flip(self, name: str, offset: int, bit: int) -> None:
        """Bit rot, under everybody's feet."""
        inode = self._find(name)
        data, durable = bytearray(inode.data), bytearray(inode.durable)
        data[offset] ^= 1 << bit
        if offset < len(durable):
            durable[offset] ^= 1 << bit
        inode.data, inode.durable = data, bytes(durable)

    def read(self, name: str) -> bytes:
        """What is in a file, without an operation."""
        return bytes(self._find(name).data)

    def digest(self) -> str:
        """The same after the same operations."""
        return hashlib.blake2b(repr(self._story).encode(), digest_size=16).hexdigest()

    # What a log does with it

    def lock(self) -> None:
        self._begin("lock")
        if self._locked:
            raise InUse("this disk is in use")
        self._locked = True

    def unlock(self, *, forget: bool = False) -> None:
        self._begin("unlock")
        self._locked = False

    def list(self) -> _Names:
        self._begin("list", locked=True)
        return sorted(self._names)

    def open(self, name: str, *, create: bool = False) -> int:
        self._begin("open", name, create, locked=True)
        if create and name not in self._names:
            self._change_names((None, name, Inode()))
        inode = self._find(name)
        if create and inode.data:
            inode.change((0, None))
        file = self.ops + 2  # never one that was used before
        self._files[file] = name, inode
        return file

    def close(self, file: int) -> None:
        self._begin_file("close", file)
        del self._files[file]

    def size(self, file: int) -> int:
        return len(self._begin_file("size", file).data)

    def pread(self, file: int, length: int, offset: int) -> bytes:
        inode = self._begin_file("pread", file, length, offset)
        return bytes(inode.data[offset : offset + length])

    def pwrite(self, file: int, data: bytes, offset: int) -> None:
        try:
            inode = self._begin_file("pwrite", file, offset, zlib.crc32(data), len(data))
        except OSError:
            if file in self._files:
                self._files[file][1].change((offset, bytes(data[: len(data) // 2])))
            raise
        excess = max(offset + len(data) - len(inode.data), 0) - self._room()
        fits = max(len(data) - max(excess, 0), 0)
        if fits:
            inode.change((offset, bytes(data[:fits])))
        if excess > 0:
            raise _error(errno.ENOSPC)

    def truncate(self, file: int, size: int) -> None:
        self._begin_file("truncate", file, size).change((size, None))

    def sync(self, file: int) -> None:
        try:
            self._begin_file("sync", file).sync()
        except OSError:
            if file in self._files:
                self._files[file][1].lose(self._chance())
            raise

    def sync_dir(self) -> None:
        try:
            self._begin("sync_dir", locked=True)
        except OSError:
            chance = self._chance()
            self._names_pending = [change for change in self._names_pending if chance.random() < 0.5]
            raise
        for change in self._names_pending:
            _rename(self._names_durable, change)
        self._names_pending = []

    def rename(self, old: str, new: str) -> None:
        self._begin("rename", old, new, locked=True)
        inode = self._find(old)
        if old != new:
            self._change_names((old, new, inode))

    def unlink(self, name: str) -> None:
        self._begin("unlink", name, locked=True)
        inode = self._find(name)
        self._change_names((name, None, inode))

    def free(self) -> int:
        self._begin("free", locked=True)
        return self._room()

    # How

    def _begin(self, op: str, name: str = "", *detail: object, locked: bool = False) -> None:
        if self.hook:
            self.hook(op, name)
        self.ops += 1
        self._story.append((op, name, detail))
        calls = self._calls[op] = self._calls.get(op, 0) + 1
        error = self._faults.pop((op, calls), 0) if self._faults else 0
        if error:
            raise _error(error, name)
        if locked and not self._locked:
            raise _error(errno.EBADF, name)

    def _begin_file(self, op: str, file: int, *detail: object) -> Inode:
        name, inode = self._files.get(file, ("", None))
        self._begin(op, name, *detail)
        if inode is None:
            raise _error(errno.EBADF)
        return inode

    def _find(self, name: str) -> Inode:
        if name not in self._names:
            raise _error(errno.ENOENT, name)
        return self._names[name]

    def _change_names(self, change: Renaming) -> None:
        removed = self._names.get(change[1] or change[0] or "")
        if removed is not None:
            self._leftovers = [*self._leftovers[-3:], bytes(removed.data)]
        _rename(self._names, change)
        self._names_pending.append(change)

    def _room(self) -> int:
        if self.capacity is None:
            return ENDLESS
        kept = {*self._names.values(), *(inode for _, inode in self._files.values())}
        return max(self.capacity - sum(len(inode.data) for inode in kept), 0)

    def _chance(self) -> Random:
        return Random(self.seed * 1_000_003 + self.ops)  # noqa: S311  a test must be repeatable

    def _leftover(self, rng: Random) -> bytes:
        found = [*self._leftovers, *(inode.durable for inode in self._names.values())]
        return rng.choice(found) if found else b""

    def _next(self) -> SimDisk:
        after = SimDisk(self.capacity, self.seed)
        after._leftovers = self._leftovers
        return after


def _rename(names: dict[str, Inode], change: Renaming) -> None:
    old, new, inode = change
    if old is not None and names.get(old) is inode:
        del names[old]
    if new is not None:
        names[new] = inode


def _error(number: int, name: str = "") -> OSError:
    return OSError(number, os.strerror(number), name) if name else OSError(number, os.strerror(number))
