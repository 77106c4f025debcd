"""The disk, as far as a log needs one: the files of one directory. Everything that can be lost in a power cut is here.

Only `RealDisk` makes system calls; `mqueue.testing.disk` has one that is cut at will. The rules a caller has to keep:
what was written is safe after `sync`, a name that was made, changed or removed is safe after `sync_dir`.
"""

from __future__ import annotations

from typing import Protocol


class Disk(Protocol):
    """Failures are `OSError`s. A file is a number, as the operating system gives it."""

    def lock(self) -> None:
        """Have the directory for ourselves until `unlock`, or raise InUse; made if it is not there."""

    def unlock(self) -> None: ...

    def list(self) -> list[str]:
        """The names of the files, sorted."""

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
