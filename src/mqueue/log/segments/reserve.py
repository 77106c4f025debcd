"""The file `RESERVE`: room that is kept free, so that acks and trims still find some when the disk is full."""

from __future__ import annotations

import errno

from mqueue.log.segments.disk import Disk

NAME = "RESERVE"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""Errors that say that a disk is full, for everybody or for us."""
_CHUNK = b"\0" * (1 << 20)


class Reserve:
    def __init__(self, disk: Disk, size: int) -> None:
        self._disk = disk
        self._size = size
        self._there = NAME in disk.list()
        self.full = ""
        """Why no more messages are taken; empty while there is room."""

    def release(self) -> bool:
        """Give the room to the log; False if it was given already."""
        self.full = f"the disk is full: the last {self._size} bytes are kept for settling what is there"
        if not self._there:
            return False
        self._there = False
        self._disk.unlink(NAME)
        return True

    def keep(self) -> None:
        """Take the room back when there is some, and let messages in again. Called now and then."""
        if self._there and not self.full:
            if self._disk.free() < self._size:
                self.full = f"the disk has only {self._disk.free()} bytes left; {self._size} are kept for settling"
            return
        if self._there:
            if self._disk.free() >= 2 * self._size:
                self.full = ""
            return
        if self._disk.free() >= 3 * self._size:
            self._make()
            self.full = ""

    def _make(self) -> None:
        """Written, not only declared: a file without blocks keeps no room."""
        file = self._disk.open(NAME, create=True)
        try:
            for place in range(0, self._size, len(_CHUNK)):
                self._disk.pwrite(file, _CHUNK[: self._size - place], place)
        except OSError:
            self._disk.close(file)
            self._disk.unlink(NAME)
            raise
        self._disk.close(file)
        self._there = True
