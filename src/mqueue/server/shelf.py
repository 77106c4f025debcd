"""Where small documents lie that are changed while a server runs, each read and written as a whole: its directory."""

from __future__ import annotations

from typing import Protocol

from mqueue.log.segments.disk import Disk
from mqueue.log.segments.replace import replace
from mqueue.log.segments.sealed import read


class Shelf(Protocol):
    """Where others write too, who writes has to have read what he changes."""

    def read(self, name: str) -> bytes | None:
        """None: there is no such document."""

    def write(self, name: str, data: bytes) -> bool:
        """Durable on return. False: somebody else has written it since it was read here; nothing is changed."""

    def is_stale(self, name: str) -> bool:
        """Whether somebody else has written it since it was read or written here."""


class DiskShelf:
    """A directory, locked by its owner: so nobody else writes there."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def read(self, name: str) -> bytes | None:
        try:
            return read(self._disk, name)
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> bool:
        replace(self._disk, f"{name}.new", name, data)
        return True

    def is_stale(self, name: str) -> bool:
        return False
