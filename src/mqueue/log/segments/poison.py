"""The file `POISON`: a sync failed, and up to where the log was durable before it.

    4s magic "MQP1", u32 crc of the rest, u64 position

After a failed sync the kernel may show bytes that are not on the disk. So what lies behind this position is not
believed when the log is opened again, even if it reads well.
"""

from __future__ import annotations

import struct

from mqueue.log.segments.disk import Disk
from mqueue.log.segments.sealed import read, seal, unseal

NAME = "POISON"
_MAGIC = b"MQP1"
_POSITION = struct.Struct("<Q")


def save(disk: Disk, position: int) -> None:
    file = disk.open(NAME, create=True)
    try:
        disk.pwrite(file, seal(_MAGIC, _POSITION.pack(position)), 0)
        disk.sync(file)
    finally:
        disk.close(file)
    disk.sync_dir()


def load(disk: Disk) -> int | None:
    if NAME not in disk.list():
        return None
    rest = unseal(_MAGIC, read(disk, NAME), _POSITION.size)
    if rest is None:
        return None
    position: int = _POSITION.unpack_from(rest)[0]
    return position


def clear(disk: Disk) -> None:
    """The log was opened, and what is in it is durable."""
    if NAME in disk.list():
        disk.unlink(NAME)
        disk.sync_dir()
