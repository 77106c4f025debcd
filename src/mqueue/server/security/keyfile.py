"""How API keys are kept: one small document, replaced as a whole and sealed.

    keys.json    line 1: BLAKE2b of line 2, keyed with the pepper, in hex
                 line 2: {"version": 1, "keys": [KeyRecord, ...]} in JSON

The seal makes changes by anybody without the pepper show: a widened scope, a removed revocation. It cannot tell that
the whole document was put back to an older one. To change the format, raise the version and read both. Does not know
where it lies: the shelf is handed in.
"""

from __future__ import annotations

import hashlib
import hmac
from contextlib import suppress

import msgspec

from mqueue.model.errors import Corrupt, Error
from mqueue.server.security.keys import KeyRecord, Keys, check_pepper
from mqueue.server.shelf import Shelf

NAME = "keys.json"
VERSION = 1


class _Sheet(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    keys: tuple[KeyRecord, ...]


class KeyFile:
    def __init__(self, shelf: Shelf, pepper: bytes) -> None:
        self._shelf = shelf
        self._pepper = check_pepper(pepper)

    def load(self) -> Keys:
        """The keys as they were saved last; none if they never were. Corrupt: somebody else wrote here."""
        data = self._shelf.read(NAME)
        return Keys(self._pepper) if data is None else self._opened(data)

    def save(self, keys: Keys) -> bool:
        """Durable on return: a key that was shown works after a power cut, a revoked one stays revoked. False: somebody
        else has changed them since they were loaded, and nothing is written."""
        sheet = msgspec.json.encode(_Sheet(VERSION, keys.records))
        return self._shelf.write(NAME, self._seal(sheet) + b"\n" + sheet + b"\n")

    def is_stale(self) -> bool:
        """Whether somebody else has changed them since they were loaded or saved."""
        return self._shelf.is_stale(NAME)

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
