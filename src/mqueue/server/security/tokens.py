"""JSON Web Tokens: is this one ours, does it live, and who carries it. Behind `claims`, before `principal`.

The library does the arithmetic of signatures; what to believe is decided here, because a library must please everybody:
it takes tokens without an end, of any length of life, with a key the token itself suggests. Fetches nothing, whatever
a header says. `now` is in milliseconds and handed in. A caller learns one sentence; the reason is `Rejected.why`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jwt

from mqueue.model.errors import BadSetting
from mqueue.model.limits import TIME_MS_MAX
from mqueue.server.security.claims import grants_of, split
from mqueue.server.security.denied import JTI_LENGTH_MAX, Denied
from mqueue.server.security.principal import Principal, Rejected, is_subject
from mqueue.server.security.signing import ALGORITHMS, AlgorithmName, VerifyKey

LEEWAY_SECONDS_MAX = 30
LIFETIME_SECONDS_MAX = 86_400
KEYS_MAX = 16
_REQUIRED = ("exp", "iat", "aud", "iss", "sub")
# Headers that tell a reader to get a key elsewhere or to follow rules we do not know. Nobody honest sends them here.
_REFUSED_HEADERS = ("jku", "x5u", "jwk", "x5c", "crit", "b64", "zip", "enc")


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
        self.denied = denied if denied is not None else Denied()

    def verify(self, text: str, now: int) -> Principal:
        """Who carries this token; or Rejected, whatever the text is."""
        header, claims, signed, signature = split(text)
        self._check_signature(header, signed, signature)
        self._check_claims(claims)
        issued_at = self._check_times(claims, now)
        self._check_denied(claims.get("jti"), issued_at)
        return Principal(claims["sub"], grants_of(claims), via="token")

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

    def _check_times(self, claims: Mapping[str, Any], now: int) -> int:
        """When it was issued. A token ends at `exp`: the leeway is for clocks, both ways."""
        expires_at, issued_at = _ms(claims, "exp"), _ms(claims, "iat")
        if now >= expires_at + self._leeway_ms:
            raise Rejected("expired")
        if issued_at > now + self._leeway_ms:
            raise Rejected("issued in the future")
        if not 0 < expires_at - issued_at <= self._lifetime_ms_max:
            raise Rejected("lifetime")
        if "nbf" in claims and _ms(claims, "nbf") > now + self._leeway_ms:
            raise Rejected("not yet")
        return issued_at

    def _check_denied(self, jti: object, issued_at: int) -> None:
        if jti is not None and not (isinstance(jti, str) and 0 < len(jti) <= JTI_LENGTH_MAX):
            raise Rejected("jti")
        if self.denied.denies(jti, issued_at):
            raise Rejected("denied")


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
