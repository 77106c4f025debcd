"""The file `EPOCH`: how often the log was opened, and how far it was known to be durable. Two slots of 4 KiB.

  0  4s  magic "MQE1"      24 u64  synced: everything before this position was durable
  4 u32  crc of the rest   32 u32  epoch
  8 16s  uuid of the log   36 u16  version        then zeros

Slots are written in turn and in place: a write that is torn leaves the other one. The epoch is durable before anything
is written in it, so no two lives of a log ever share one; it is also the upper part of lease tokens.
"""

from __future__ import annotations

import struct

from msgspec import Struct

from mqueue.log.segments.disk import Disk
from mqueue.log.segments.sealed import check_version, read, seal, unseal

NAME = "EPOCH"
VERSION = 1
_MAGIC = b"MQE1"
_SLOT_BYTES = 4096
_FIELDS = struct.Struct("<16sQIH")


class Epoch(Struct, frozen=True):
    uuid: bytes
    number: int
    synced: int


def load(disk: Disk) -> tuple[Epoch | None, bool]:
    """The newest slot that is whole, and whether one of them is damaged."""
    data = read(disk, NAME)
    slots = [data[:_SLOT_BYTES], data[_SLOT_BYTES : 2 * _SLOT_BYTES]]
    found = [slot for slot in map(_unpack, slots) if slot is not None]
    newest = max(found, key=lambda slot: (slot.number, slot.synced), default=None)
    written = max(sum(any(slot) for slot in slots), 2 if newest is not None and newest.number > 1 else 1)
    return newest, len(found) < written


def save(disk: Disk, epoch: Epoch) -> None:
    """Durable on return. The slot of the epoch before is left as it is."""
    fresh = NAME not in disk.list()
    file = disk.open(NAME, create=fresh)
    try:
        disk.pwrite(file, _pack(epoch), epoch.number % 2 * _SLOT_BYTES)
        disk.sync(file)
    finally:
        disk.close(file)
    if fresh:
        disk.sync_dir()


def _pack(epoch: Epoch) -> bytes:
    rest = _FIELDS.pack(epoch.uuid, epoch.synced, epoch.number, VERSION).ljust(_SLOT_BYTES - 8, b"\0")
    return seal(_MAGIC, rest)


def _unpack(slot: bytes) -> Epoch | None:
    rest = unseal(_MAGIC, slot, _SLOT_BYTES - 8)
    if rest is None:
        return None
    uuid, synced, number, version = _FIELDS.unpack_from(rest)
    check_version("the data directory", version, VERSION)
    return Epoch(uuid, number, synced)
