"""The file `POISON`: a sync failed, and up to where the log was durable before it.

    4s magic "MQP1", u32 crc of the rest, u64 position

After a failed sync the kernel may show bytes that are not on the disk. So what lies behind this position is not
believed when the log is opened again, even if it reads well.
"""

from __future__ import annotations

import struct

import google_crc32c

from mqueue.log.segments.disk import Disk

NAME = "POISON"
_MAGIC = b"MQP1"


def save(disk: Disk, position: int) -> None:
    rest = struct.pack("<Q", position)
    file = disk.open(NAME, create=True)
    try:
        disk.pwrite(file, _MAGIC + struct.pack("<I", google_crc32c.value(rest)) + rest, 0)
        disk.sync(file)
    finally:
        disk.close(file)
    disk.sync_dir()


def load(disk: Disk) -> int | None:
    if NAME not in disk.list():
        return None
    file = disk.open(NAME)
    try:
        data = disk.pread(file, 16, 0)
    finally:
        disk.close(file)
    if len(data) != 16 or data[:4] != _MAGIC or google_crc32c.value(data[8:]) != struct.unpack_from("<I", data, 4)[0]:
        return None
    position: int = struct.unpack_from("<Q", data, 8)[0]
    return position


def clear(disk: Disk) -> None:
    """The log was opened, and what is in it is durable."""
    if NAME in disk.list():
        disk.unlink(NAME)
        disk.sync_dir()
