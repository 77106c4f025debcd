"""The keys that tokens are verified with. Each is bound to one algorithm when it is read; a token has no say in it.

Reads secrets, PEM text and JWKS text that somebody else read from a file; fetches nothing. Private keys are refused:
a server that only verifies must not be able to sign.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Literal, get_args

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt.algorithms import Algorithm, get_default_algorithms
from msgspec import Struct

from mqueue.model.errors import BadSetting

AlgorithmName = Literal["HS256", "RS256", "ES256"]
ALGORITHMS: tuple[AlgorithmName, ...] = get_args(AlgorithmName)

SECRET_BYTES_MIN = 32
SECRET_BYTES_DISTINCT_MIN = 8
RSA_BITS_MIN = 2048
KID_LENGTH_MAX = 255
_ENGINES: dict[str, Algorithm] = {name: get_default_algorithms()[name] for name in ALGORITHMS}


class VerifyKey(Struct, frozen=True):
    """`material` is never shown: it may be a secret."""

    algorithm: AlgorithmName
    material: Any
    kid: str | None = None

    def __repr__(self) -> str:
        return f"VerifyKey({self.algorithm!r}, kid={self.kid!r})"

    def signed(self, text: bytes, signature: bytes) -> bool:
        """HMACs are compared in constant time by the library."""
        return bool(_ENGINES[self.algorithm].verify(text, self.material, signature))


def key_from_secret(secret: bytes | str, kid: str | None = None) -> VerifyKey:
    """HS256. Long enough that guessing offline is hopeless, and not one word many times over."""
    data = secret.encode() if isinstance(secret, str) else bytes(secret)
    if len(data) < SECRET_BYTES_MIN:
        raise BadSetting(f"the token secret has {len(data)} bytes: at least {SECRET_BYTES_MIN} are needed")
    if len(set(data)) < SECRET_BYTES_DISTINCT_MIN:
        raise BadSetting(f"the token secret repeats itself: {len(set(data))} different bytes are too few")
    try:
        return VerifyKey("HS256", _ENGINES["HS256"].prepare_key(data), _checked_kid(kid))
    except jwt.InvalidKeyError:
        raise BadSetting("the token secret is a public key or certificate: give it as PEM") from None


def key_from_pem(pem: bytes, kid: str | None = None) -> VerifyKey:
    """RS256 or ES256, by the kind of the public key."""
    if b"PRIVATE KEY" in pem:
        raise BadSetting("a private key was given to verify tokens with: give the public key")
    try:
        return _from_public(load_pem_public_key(pem), kid)
    except (ValueError, UnsupportedAlgorithm):
        raise BadSetting("the key for tokens is not a public key in PEM") from None


def keys_from_jwks(text: bytes) -> tuple[VerifyKey, ...]:
    """Every signing key of a JWKS document; one that cannot be used is a problem, not a key less."""
    try:
        found = json.loads(text)["keys"]
        keys = tuple(_from_jwk(jwk) for jwk in found if jwk.get("use", "sig") == "sig")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, jwt.PyJWTError):
        raise BadSetting("the JWKS text is not a JSON object with a list of good keys") from None
    if not keys:
        raise BadSetting("the JWKS text has no signing key")
    return keys


def _from_jwk(jwk: dict[str, Any]) -> VerifyKey:
    kid, kind = jwk.get("kid"), jwk["kty"]
    if kind == "oct":
        key = key_from_secret(base64.urlsafe_b64decode(jwk["k"] + "=" * (-len(jwk["k"]) % 4)), kid)
    elif "d" in jwk:
        raise BadSetting(f"JWKS key {kid!r:.80} is a private key: give the public one")
    else:
        key = _from_public(jwt.PyJWK(jwk, {"RSA": "RS256", "EC": "ES256"}[kind]).key, kid)
    if jwk.get("alg", key.algorithm) != key.algorithm:
        raise BadSetting(f"JWKS key {kid!r:.80} is for {jwk['alg']!r:.80}; it is one of {', '.join(ALGORITHMS)}")
    return key


def _from_public(key: object, kid: str | None) -> VerifyKey:
    if isinstance(key, RSAPublicKey):
        if key.key_size < RSA_BITS_MIN:
            raise BadSetting(f"an RSA key of {key.key_size} bits: at least {RSA_BITS_MIN} are needed")
        return VerifyKey("RS256", key, _checked_kid(kid))
    if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
        return VerifyKey("ES256", key, _checked_kid(kid))
    raise BadSetting("a key for tokens is RSA or elliptic on the curve P-256")


def _checked_kid(kid: object) -> str | None:
    if kid is None or (isinstance(kid, str) and 0 < len(kid) <= KID_LENGTH_MAX):
        return kid
    raise BadSetting(f"kid {kid!r:.80} is not text of 1 to {KID_LENGTH_MAX} characters")
