"""Where quotas are kept that were set while the server ran: one small file, replaced as a whole.

    quotas.json    "MQQ1", u32 crc of the rest, then {"version": 1, "quotas": {namespace: messages a minute}} in JSON

They stand above what the configuration says. To change the format, raise the version and read both. The disk is handed
in, locked by its owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import msgspec

from mqueue.log.segments.disk import Disk
from mqueue.log.segments.replace import replace
from mqueue.log.segments.sealed import read, seal, unseal
from mqueue.model.errors import Corrupt

NAME = "quotas.json"
TEMPORARY = "quotas.json.new"
VERSION = 1
_MAGIC = b"MQQ1"


class _Sheet(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    quotas: dict[str, int]


class QuotaFile:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def load(self) -> dict[str, int]:
        """As they were saved last; none if they never were."""
        try:
            data = read(self._disk, NAME)
        except FileNotFoundError:
            return {}
        rest = unseal(_MAGIC, data, 1)
        if rest is None:
            raise Corrupt(f"{NAME} is damaged: remove it, and quotas are again what the configuration says")
        with suppress(msgspec.DecodeError):
            found = msgspec.json.decode(rest, type=_Sheet)
            if found.version == VERSION:
                return found.quotas
        raise Corrupt(f"{NAME} is not of version {VERSION}")

    def save(self, quotas: Mapping[str, int]) -> None:
        """Durable on return."""
        sheet = msgspec.json.encode(_Sheet(VERSION, dict(quotas)))
        replace(self._disk, TEMPORARY, NAME, seal(_MAGIC, sheet))
