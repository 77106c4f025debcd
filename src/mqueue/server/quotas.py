"""How quotas are kept that were set while the server ran: one small document, replaced as a whole.

    quotas.json    "MQQ1", u32 crc of the rest, then {"version": 1, "quotas": {namespace: messages a minute}} in JSON

They stand above what the configuration says. To change the format, raise the version and read both. Does not know where
it lies: the shelf is handed in.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import msgspec

from mqueue.log.segments.sealed import seal, unseal
from mqueue.model.errors import Corrupt
from mqueue.server.shelf import Shelf

NAME = "quotas.json"
VERSION = 1
_MAGIC = b"MQQ1"


class _Sheet(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    quotas: dict[str, int]


class QuotaFile:
    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def load(self) -> dict[str, int]:
        """As they were saved last; none if they never were."""
        data = self._shelf.read(NAME)
        if data is None:
            return {}
        rest = unseal(_MAGIC, data, 1)
        if rest is None:
            raise Corrupt(f"{NAME} is damaged: remove it, and quotas are again what the configuration says")
        with suppress(msgspec.DecodeError):
            found = msgspec.json.decode(rest, type=_Sheet)
            if found.version == VERSION:
                return found.quotas
        raise Corrupt(f"{NAME} is not of version {VERSION}")

    def save(self, quotas: Mapping[str, int]) -> bool:
        """Durable on return. False: somebody else has changed them since they were loaded, and nothing is written."""
        sheet = msgspec.json.encode(_Sheet(VERSION, dict(quotas)))
        return self._shelf.write(NAME, seal(_MAGIC, sheet))

    def is_stale(self) -> bool:
        """Whether somebody else has changed them since they were loaded or saved."""
        return self._shelf.is_stale(NAME)
