"""API keys: made, checked, taken back. A key is shown once; what is kept is its hash, its name and what it may do.

    mq_ + 43 letters and digits (256 random bits) + 6 (CRC-32 of what stands before, so that a typing error or a cut
    key is told from a wrong one without looking anything up, and scanners for leaked secrets find no false ones)

The hash is BLAKE2b keyed with a pepper that lies elsewhere. Slow hashes (scrypt) make guessing dear where people
choose the secret; 256 random bits cannot be guessed, and a slow hash would let strangers burn our processor with
wrong keys. Time and randomness are handed in. Does not know files: see `keyfile`.

Who signs requests instead (`sigv4`) uses the key's name and a secret that belongs to it. Whoever checks a signature has
to have the secret, and of a key only the hash is kept. So the secret is made from that hash and the pepper, whenever it
is needed: it lies nowhere, and ends with the key.
"""

from __future__ import annotations

import hashlib
import hmac
import zlib
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from mqueue.model.errors import BadSetting, Conflict, NotFound, QueueFull
from mqueue.model.names import check_name
from mqueue.server.security.principal import Principal, Rejected, parse_grants

PREFIX = "mq_"
ENTROPY_BYTES = 32
PEPPER_BYTES_MIN = 32
KEYS_MAX = 10_000
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SECRET_LENGTH = 43
_CHECK_LENGTH = 6
KEY_LENGTH = len(PREFIX) + _SECRET_LENGTH + _CHECK_LENGTH

assert len(_ALPHABET) ** _SECRET_LENGTH >= 1 << (8 * ENTROPY_BYTES)
assert len(_ALPHABET) ** _CHECK_LENGTH >= 1 << 32


class KeyRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """What is kept of a key. Times in milliseconds; `expires_at` None: until it is revoked."""

    name: str
    digest: str
    scopes: tuple[str, ...]
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None

    def alive(self, now: int) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class Keys:
    """All keys of a server. One owner changes it; checking may go on beside that."""

    def __init__(self, pepper: bytes, records: Iterable[KeyRecord] = ()) -> None:
        self._pepper = check_pepper(pepper)
        self._by_name = {record.name: record for record in records}
        self._by_digest = {record.digest: (record, _principal(record)) for record in self._by_name.values()}

    def copy(self) -> Keys:
        """The same keys, for a change that is to take force as a whole."""
        twin = Keys(self._pepper)
        twin._by_name, twin._by_digest = dict(self._by_name), dict(self._by_digest)
        return twin

    @property
    def records(self) -> tuple[KeyRecord, ...]:
        return tuple(self._by_name.values())

    def add(self, name: str, scopes: Sequence[str], *, now: int, entropy: bytes, expires_at: int | None = None) -> str:
        """The key itself, for the only time. A name is never given twice, so that the audit log stays true."""
        check_name(name, "key")
        parse_grants(scopes)
        if name in self._by_name:
            raise Conflict(f"there is a key {name!r} already, alive or revoked")
        if len(self._by_name) >= KEYS_MAX:
            raise QueueFull(f"{KEYS_MAX} keys are kept already", retryable=False)
        if expires_at is not None and expires_at <= now:
            raise BadSetting(f"key {name!r} would have ended before it was made")
        key = make_key(entropy)
        self._put(KeyRecord(name, self._digest(key), tuple(scopes), now, expires_at))
        return key

    def revoke(self, name: str, now: int) -> None:
        """At once and for good; revoking again changes nothing."""
        record = self._by_name.get(name)
        if record is None:
            raise NotFound(f"there is no key {name!r:.80}")
        if record.revoked_at is None:
            self._put(replace(record, revoked_at=now))

    def verify(self, text: str, now: int) -> Principal:
        if not well_formed(text):
            raise Rejected("not a key")
        digest = self._digest(text)
        found = self._by_digest.get(digest)
        # The look-up is by a hash nobody can steer without the pepper; the comparison gives nothing away either.
        if found is None or not hmac.compare_digest(found[0].digest, digest):
            raise Rejected("unknown key")
        record, principal = found
        if record.revoked_at is not None:
            raise Rejected("key revoked")
        if not record.alive(now):
            raise Rejected("key expired")
        return principal

    def signing_secret(self, name: str) -> str:
        """What the bearer of a key signs requests with. Raises NotFound."""
        record = self._by_name.get(name)
        if record is None:
            raise NotFound(f"there is no key {name!r:.80}")
        made = hashlib.blake2b(
            record.digest.encode(), key=self._pepper, person=b"mqueue sigv4", digest_size=32
        ).digest()
        return _base62(int.from_bytes(made), _SECRET_LENGTH)

    def signer(self, name: str, now: int) -> tuple[str, Principal]:
        """The secret of a key that is alive, and whose it is."""
        record = self._by_name.get(name)
        if record is None:
            raise Rejected("unknown key")
        if not record.alive(now):
            raise Rejected("key revoked" if record.revoked_at is not None else "key expired")
        return self.signing_secret(name), self._by_digest[record.digest][1]

    def _put(self, record: KeyRecord) -> None:
        self._by_name[record.name] = record
        self._by_digest[record.digest] = record, _principal(record)

    def _digest(self, key: str) -> str:
        return hashlib.blake2b(key.encode(), key=self._pepper, person=b"mqueue key", digest_size=32).hexdigest()


def make_key(entropy: bytes) -> str:
    if len(entropy) != ENTROPY_BYTES:
        raise BadSetting(f"{len(entropy)} random bytes for a key: exactly {ENTROPY_BYTES} are needed")
    body = PREFIX + _base62(int.from_bytes(entropy), _SECRET_LENGTH)
    return body + _check(body)


def well_formed(text: str) -> bool:
    """Whether this could be a key at all; says nothing about who may use it."""
    if len(text) != KEY_LENGTH or not text.startswith(PREFIX) or not text.isascii():
        return False
    body, check = text[:-_CHECK_LENGTH], text[-_CHECK_LENGTH:]
    return hmac.compare_digest(_check(body), check)


def check_pepper(pepper: bytes) -> bytes:
    """BLAKE2b takes keys of at most 64 bytes, so a longer pepper is hashed first."""
    if len(pepper) < PEPPER_BYTES_MIN:
        raise BadSetting(f"the pepper for keys has {len(pepper)} bytes: at least {PEPPER_BYTES_MIN} are needed")
    return pepper if len(pepper) <= hashlib.blake2b.MAX_KEY_SIZE else hashlib.blake2b(pepper).digest()


def _principal(record: KeyRecord) -> Principal:
    return Principal(record.name, parse_grants(record.scopes), via="key")


def _check(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), _CHECK_LENGTH)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    assert not number, "the length was too small"
    return "".join(reversed(digits))
