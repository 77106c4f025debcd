"""Putting a file in place as a whole: written aside, synced, renamed, and the name made safe."""

from __future__ import annotations

from contextlib import suppress

from mqueue.log.segments.disk import Disk


def replace(disk: Disk, temporary: str, name: str, data: bytes) -> None:
    """Durable on return. If there is no room nothing is left behind."""
    try:
        _write(disk, temporary, data)
    except OSError:
        with suppress(OSError):
            disk.unlink(temporary)
        raise
    disk.rename(temporary, name)
    disk.sync_dir()


def _write(disk: Disk, name: str, data: bytes) -> None:
    file = disk.open(name, create=True)
    try:
        disk.pwrite(file, data, 0)
        disk.sync(file)
    finally:
        disk.close(file)
