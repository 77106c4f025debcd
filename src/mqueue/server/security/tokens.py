"""JSON Web Tokens: is this one ours, does it live, and who carries it. Behind `claims`, before `principal`.

The library does the arithmetic of signatures; what to believe is decided here, because a library must please everybody:
it takes tokens without an end, of any length of life, with a key the token itself suggests. Fetches nothing, whatever
a header says. `now` is in milliseconds and handed in. A caller learns one sentence; the reason is `Rejected.why`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import jwt
from msgspec import Struct

from mqueue.model.errors import BadSetting
from mqueue.model.limits import TIME_MS_MAX
from mqueue.server.security.claims import checked, grants_of, split
from mqueue.server.security.denied import JTI_LENGTH_MAX, Denied
from mqueue.server.security.principal import Principal, Rejected, is_subject
from mqueue.server.security.signing import ALGORITHMS, AlgorithmName, VerifyKey

LEEWAY_SECONDS_MAX = 30
LIFETIME_SECONDS_MAX = 86_400
KEYS_MAX = 16
PROVEN_MAX = 4096
_REQUIRED = ("exp", "iat", "aud", "iss", "sub")
# Headers that tell a reader to get a key elsewhere or to follow rules we do not know. Nobody honest sends them here.
_REFUSED_HEADERS = ("jku", "x5u", "jwk", "x5c", "crit", "b64", "zip", "enc")


class _Proven(Struct, frozen=True):
    """A token whose signature and claims are good: what is left to ask is the time, and whether it was taken back."""

    principal: Principal
    issued_at: int
    starts_at: int
    expires_at: int
    jti: str | None


class Verifier:
    """Two keys at once make a rotation; all of one family, so that no public key can pass for a secret."""

    def __init__(
        self,
        keys: Sequence[VerifyKey],
        issuer: str,
        audience: str,
        algorithms: Sequence[AlgorithmName] = ALGORITHMS,
        leeway_seconds: int = LEEWAY_SECONDS_MAX,
        lifetime_seconds_max: int = LIFETIME_SECONDS_MAX,
        denied: Denied | None = None,
    ) -> None:
        _check_keys(keys, algorithms)
        if not issuer or not audience:
            raise BadSetting("tokens need an issuer and an audience to be checked against")
        if not 0 <= leeway_seconds <= LEEWAY_SECONDS_MAX:
            raise BadSetting(f"a leeway of {leeway_seconds} s for tokens: 0 to {LEEWAY_SECONDS_MAX} are allowed")
        if not 0 < lifetime_seconds_max <= LIFETIME_SECONDS_MAX:
            raise BadSetting(f"tokens of {lifetime_seconds_max} s: 1 to {LIFETIME_SECONDS_MAX} are allowed")
        self._keys = tuple(keys)
        self._by_kid = {key.kid: key for key in keys if key.kid is not None}
        self._issuer, self._audience = issuer, audience
        self._leeway_ms, self._lifetime_ms_max = leeway_seconds * 1000, lifetime_seconds_max * 1000
        # By their digest, so that no token lies in memory longer than its call. Clock and denials are asked every time.
        self._proven: dict[bytes, _Proven] = {}
        self.denied = denied if denied is not None else Denied()

    def verify(self, text: str, now: int) -> Principal:
        """Who carries this token; or Rejected, whatever the text is."""
        digest = hashlib.sha256(checked(text)).digest()
        proven = self._proven.get(digest)
        if proven is None:
            proven = self._prove(text)
            self._remember(digest, proven)
        self._check_time(proven, now)
        if self.denied.denies(proven.jti, proven.issued_at):
            raise Rejected("denied")
        return proven.principal

    def _prove(self, text: str) -> _Proven:
        """All that does not depend on when it is asked."""
        header, claims, signed, signature = split(text)
        self._check_signature(header, signed, signature)
        self._check_claims(claims)
        issued_at, expires_at = _ms(claims, "iat"), _ms(claims, "exp")
        if not 0 < expires_at - issued_at <= self._lifetime_ms_max:
            raise Rejected("lifetime")
        starts_at = max(issued_at, _ms(claims, "nbf")) if "nbf" in claims else issued_at
        principal = Principal(claims["sub"], grants_of(claims), via="token")
        return _Proven(principal, issued_at, starts_at, expires_at, _jti(claims))

    def _remember(self, digest: bytes, proven: _Proven) -> None:
        """Only good signatures come here, so that strangers cannot push out what is remembered."""
        if len(self._proven) >= PROVEN_MAX:
            self._proven.pop(next(iter(self._proven)), None)
        self._proven[digest] = proven

    def _check_time(self, proven: _Proven, now: int) -> None:
        """A token ends at `exp`; the leeway is for clocks, both ways."""
        if now >= proven.expires_at + self._leeway_ms:
            raise Rejected("expired")
        if proven.starts_at > now + self._leeway_ms:
            raise Rejected("not yet")

    def _check_signature(self, header: Mapping[str, Any], signed: bytes, signature: bytes) -> None:
        for name in _REFUSED_HEADERS:
            if name in header:
                raise Rejected(f"header {name}")
        if not isinstance(header.get("typ", "JWT"), str) or header.get("typ", "JWT").lower() not in ("jwt", "at+jwt"):
            raise Rejected("header typ")
        candidates = [key for key in self._candidates(header) if key.algorithm == header.get("alg")]
        if not candidates:
            raise Rejected("no key for this kid and algorithm")
        if not any(key.signed(signed, signature) for key in candidates):
            raise Rejected("signature")

    def _candidates(self, header: Mapping[str, Any]) -> Sequence[VerifyKey]:
        """`kid` is a name to look up and nothing else; a token without one may be signed by any key."""
        if "kid" not in header:
            return self._keys
        kid = header["kid"]
        key = self._by_kid.get(kid) if isinstance(kid, str) else None
        return () if key is None else (key,)

    def _check_claims(self, claims: Mapping[str, Any]) -> None:
        for name in _REQUIRED:
            if name not in claims:
                raise Rejected(f"no {name}")
        if not isinstance(claims["iss"], str) or claims["iss"] != self._issuer:
            raise Rejected("iss")
        audience = claims["aud"]
        audiences = audience if isinstance(audience, list) else [audience]
        if not all(isinstance(each, str) for each in audiences) or self._audience not in audiences:
            raise Rejected("aud")
        if not is_subject(claims["sub"]):
            raise Rejected("sub")


def issue(
    material: Any,
    algorithm: AlgorithmName,
    *,
    subject: str,
    scopes: Sequence[str],
    issuer: str,
    audience: str,
    now: int,
    lifetime_seconds: int = 3600,
    kid: str | None = None,
    jti: str | None = None,
) -> str:
    """A token for the command line and for tests; `material` is the secret or the private key."""
    issued_at = now // 1000
    claims: dict[str, Any] = {"iss": issuer, "aud": audience, "sub": subject, "scope": " ".join(scopes)}
    claims |= {"iat": issued_at, "exp": issued_at + lifetime_seconds}
    if jti is not None:
        claims["jti"] = jti
    return jwt.encode(claims, material, algorithm, headers=None if kid is None else {"kid": kid})


def _check_keys(keys: Sequence[VerifyKey], algorithms: Sequence[AlgorithmName]) -> None:
    if not 0 < len(keys) <= KEYS_MAX:
        raise BadSetting(f"{len(keys)} keys for tokens: 1 to {KEYS_MAX} are needed")
    for key in keys:
        if key.algorithm not in algorithms or key.algorithm not in ALGORITHMS:
            raise BadSetting(f"{key!r}: {key.algorithm} is not among the allowed {', '.join(algorithms) or 'none'}")
    if len({key.algorithm == "HS256" for key in keys}) > 1:
        raise BadSetting("secrets and public keys for one issuer: use one family, or a forger may choose")
    kids = [key.kid for key in keys if key.kid is not None]
    if len(set(kids)) != len(kids):
        raise BadSetting("two keys for tokens have the same kid")


def _ms(claims: Mapping[str, Any], name: str) -> int:
    """Seconds since 1970, as every issuer writes them; whole or not, but a time that exists."""
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Rejected(f"{name} is no time")
    if not 0 < value <= TIME_MS_MAX // 1000:
        raise Rejected(f"{name} is out of range")
    return int(value * 1000)


def _jti(claims: Mapping[str, Any]) -> str | None:
    jti = claims.get("jti")
    if jti is None or (isinstance(jti, str) and 0 < len(jti) <= JTI_LENGTH_MAX):
        return jti
    raise Rejected("jti")
