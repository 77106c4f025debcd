"""Where API keys are kept: one small file, replaced as a whole and sealed.

    keys.json    line 1: BLAKE2b of line 2, keyed with the pepper, in hex
                 line 2: {"version": 1, "keys": [KeyRecord, ...]} in JSON

The seal makes changes by anybody without the pepper show: a widened scope, a removed revocation. It cannot tell that
the whole file was put back to an older one. To change the format, raise the version and read both. The disk is handed
in, locked by its owner, so that one process at a time writes.
"""

from __future__ import annotations

import hashlib
import hmac
from contextlib import suppress

import msgspec

from mqueue.log.segments.disk import Disk
from mqueue.log.segments.replace import replace
from mqueue.model.errors import Corrupt, Error
from mqueue.server.security.keys import KeyRecord, Keys, check_pepper

NAME = "keys.json"
TEMPORARY = "keys.json.new"
VERSION = 1


class _Sheet(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    keys: tuple[KeyRecord, ...]


class KeyFile:
    def __init__(self, disk: Disk, pepper: bytes) -> None:
        self._disk = disk
        self._pepper = check_pepper(pepper)

    def load(self) -> Keys:
        """The keys as they were saved last; none if they never were. Corrupt: somebody else wrote here."""
        data = self._read()
        return Keys(self._pepper) if data is None else self._opened(data)

    def save(self, keys: Keys) -> None:
        """Durable on return: a key that was shown works after a power cut, a revoked one stays revoked."""
        sheet = msgspec.json.encode(_Sheet(VERSION, keys.records))
        replace(self._disk, TEMPORARY, NAME, self._seal(sheet) + b"\n" + sheet + b"\n")

    def _read(self) -> bytes | None:
        try:
            file = self._disk.open(NAME)
        except FileNotFoundError:
            return None
        try:
            return self._disk.pread(file, self._disk.size(file), 0)
        finally:
            self._disk.close(file)

    def _opened(self, data: bytes) -> Keys:
        seal, _, rest = data.partition(b"\n")
        sheet = rest.removesuffix(b"\n")
        if not hmac.compare_digest(seal, self._seal(sheet)):
            raise Corrupt(f"{NAME} was changed by somebody else, or the pepper is another one")
        with suppress(msgspec.DecodeError, Error):  # sealed by us, so only a version of ours that we do not know
            found = msgspec.json.decode(sheet, type=_Sheet)
            if found.version == VERSION:
                return Keys(self._pepper, found.keys)
        raise Corrupt(f"{NAME} is not of version {VERSION}")

    def _seal(self, sheet: bytes) -> bytes:
        return hashlib.blake2b(sheet, key=self._pepper, person=b"mqueue keyfile", digest_size=32).hexdigest().encode()
