"""The disk, as far as a log needs one: the files of one directory. Everything that can be lost in a power cut is here.

Only `RealDisk` makes system calls; `mqueue.testing.disk` has one that is cut at will. The rules a caller has to keep:
what was written is safe after `sync`, a name that was made, changed or removed is safe after `sync_dir`.
"""

from __future__ import annotations

import errno
import fcntl
import os
from typing import Protocol, TypeAlias

from mqueue.model.errors import InUse

LOCK = "LOCK"
PID_WIDTH = 20
CLOSED = -1
DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
FILE = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW

_Names: TypeAlias = list[str]  # inside the classes `list` is a method


class Disk(Protocol):
    """Failures are `OSError`s. A file is a number, as the operating system gives it."""

    def lock(self) -> None:
        """Have the directory for ourselves until `unlock`, or raise InUse; made if it is not there."""

    def unlock(self, *, forget: bool = False) -> None:
        """`forget`: the directory turned out not to be ours; leave no trace in it."""

    def list(self) -> _Names:
        """The names of the files, sorted; not that of the lock."""

    def open(self, name: str, *, create: bool = False) -> int:
        """`create`: make it, empty, whether it was there or not."""

    def close(self, file: int) -> None: ...

    def size(self, file: int) -> int: ...

    def pread(self, file: int, length: int, offset: int) -> bytes:
        """Fewer bytes only at the end of the file."""

    def pwrite(self, file: int, data: bytes, offset: int) -> None:
        """All of it, or an error."""

    def truncate(self, file: int, size: int) -> None: ...

    def sync(self, file: int) -> None:
        """What is in the file, and its size, survive a power cut. If this fails, trust nothing: never try again."""

    def sync_dir(self) -> None:
        """The names survive a power cut."""

    def rename(self, old: str, new: str) -> None:
        """Replaces what was called `new`."""

    def unlink(self, name: str) -> None: ...

    def free(self) -> int:
        """How many bytes can still be written."""


class RealDisk:
    """A directory of the operating system. Nothing but `lock` may be called before it is locked.

    Interrupted calls need no loop here: Python makes them again (PEP 475). All names are resolved from one open
    directory, so that it may be moved, and no link inside it is followed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(path)
        self._dir = self._lock = CLOSED

    def lock(self) -> None:
        assert self._lock == CLOSED, "locked already"
        _make_dir(self.path)
        self._dir = os.open(self.path, DIR)
        try:
            self._lock = os.open(LOCK, FILE | os.O_CREAT, 0o600, dir_fd=self._dir)
            self._claim()
        except BaseException:
            self._let_go()
            raise

    def _claim(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = self.pread(self._lock, PID_WIDTH, 0).decode(errors="replace").strip()
            raise InUse(f"{self.path} is in use by process {holder or 'unknown'}") from None
        # Always as long as before: a disk that is full must not keep its log from being opened.
        self.pwrite(self._lock, b"%-*d\n" % (PID_WIDTH - 1, os.getpid()), 0)

    def unlock(self, *, forget: bool = False) -> None:
        if self._lock != CLOSED:
            if forget:
                self.unlink(LOCK)
            # Closing is not enough: a forked child may have inherited the file, and the lock with it.
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            self._let_go()

    def abandon(self) -> None:
        """In a forked child: let go of what was inherited. The lock stays with the parent."""
        self._let_go()

    def _let_go(self) -> None:
        for file in (self._lock, self._dir):
            if file != CLOSED:
                os.close(file)
        self._dir = self._lock = CLOSED

    def list(self) -> _Names:
        directory = os.open(".", DIR, dir_fd=self._dir)  # an own one: two readers of one would share its position
        try:
            with os.scandir(directory) as found:
                return sorted(
                    entry.name for entry in found if entry.name != LOCK and entry.is_file(follow_symlinks=False)
                )
        finally:
            os.close(directory)

    def open(self, name: str, *, create: bool = False) -> int:
        return os.open(name, FILE | (os.O_CREAT | os.O_TRUNC if create else 0), 0o600, dir_fd=self._dir)

    def close(self, file: int) -> None:
        os.close(file)

    def size(self, file: int) -> int:
        return os.fstat(file).st_size

    def pread(self, file: int, length: int, offset: int) -> bytes:
        data = os.pread(file, length, offset)
        while len(data) < length:
            more = os.pread(file, length - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def pwrite(self, file: int, data: bytes, offset: int) -> None:
        done = os.pwrite(file, data, offset)
        if done < len(data):
            self._pwrite_rest(file, memoryview(data), offset, done)

    def _pwrite_rest(self, file: int, data: memoryview, offset: int, done: int) -> None:
        """The system wrote less than it was given: go on, so that the reason is told (the disk is full, most often)."""
        while done < len(data):
            wrote = os.pwrite(file, data[done:], offset + done)
            if not wrote:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            done += wrote

    def truncate(self, file: int, size: int) -> None:
        os.ftruncate(file, size)

    def sync(self, file: int) -> None:
        os.fdatasync(file)

    def sync_dir(self) -> None:
        os.fsync(self._dir)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=self._dir, dst_dir_fd=self._dir)

    def unlink(self, name: str) -> None:
        os.unlink(name, dir_fd=self._dir)

    def free(self) -> int:
        room = os.fstatvfs(self._dir)
        return room.f_bavail * room.f_frsize


def _make_dir(path: str) -> None:
    """Make a directory and those above it, and have their names safe.

    The name of one that was there already is synced too: whoever made it may have been killed before that.
    """
    parent = os.path.dirname(path)
    made = not os.path.isdir(path)
    if made:
        _make_dir(parent)
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:  # somebody else just made it
            if not os.path.isdir(path):
                raise
    try:
        _sync_dir(parent)
    except PermissionError:
        if made:
            raise


def _sync_dir(path: str) -> None:
    directory = os.open(path, DIR)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
