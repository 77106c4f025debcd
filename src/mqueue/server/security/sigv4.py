"""Requests that are signed instead of carrying a secret: AWS Signature Version 4, as far as a verifier needs it.

    Authorization: AWS4-HMAC-SHA256 Credential=<key>/<day>/<region>/<service>/aws4_request,
                   SignedHeaders=host;x-amz-date;…, Signature=<hex>

`Claim.of` reads what somebody claims, before there is a body; `Claim.holds` tells whether the whole request was signed
with a secret. Time is an argument. Does not know whose secret that is.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import parse_qsl, quote

from msgspec import Struct

from mqueue.server.security.principal import Rejected, Untimely

SCHEME = "AWS4-HMAC-SHA256"
SKEW_MS_MAX = 15 * 60 * 1000
"""So far the clock of a caller may be off."""
_END = "aws4_request"
_SIGNED_MAX = 64
_NEEDED = ("host", "x-amz-date")
_UNRESERVED = "-_.~"
_FORMAT = "%Y%m%dT%H%M%SZ"


class Claim(Struct, frozen=True):
    """What a request says about who signed it. Nothing of it is proven."""

    key: str
    day: str
    region: str
    service: str
    headers: tuple[str, ...]
    signature: str
    at: str

    @classmethod
    def of(cls, headers: Mapping[str, str], now: int) -> Claim:
        """Raises Rejected for what no client writes, and for what was signed at another time."""
        scheme, _, rest = headers.get("authorization", "").partition(" ")
        parts = dict(part.strip().partition("=")[::2] for part in rest.split(","))
        scope = parts.get("Credential", "").rsplit("/", 4)
        signed = tuple(parts.get("SignedHeaders", "").split(";"))
        at = headers.get("x-amz-date", "")
        if scheme != SCHEME or len(scope) != 5 or scope[4] != _END or not parts.get("Signature"):
            raise Rejected("not a signature")
        if len(signed) > _SIGNED_MAX or any(name not in signed for name in _NEEDED):
            raise Rejected("not all is signed that has to be")
        if at[:8] != scope[1]:
            raise Rejected("signed at another time")
        if abs(_ms(at) - now) > SKEW_MS_MAX:
            minutes = SKEW_MS_MAX // 60_000
            why = f"signed at {at}, and here it is {_shown(now)}; clocks may differ by {minutes} minutes"
            raise Untimely("signed at another time", why)
        return cls(scope[0], scope[1], scope[2], scope[3], signed, parts["Signature"], at)

    def holds(self, secret: str, method: str, target: str, headers: Mapping[str, str], body: bytes) -> bool:
        """Whether who has the secret signed just this request."""
        path, _, query = target.partition("?")
        asked = "\n".join(
            (
                method,
                quote(path, safe=f"/{_UNRESERVED}%"),
                _sorted_query(query),
                *(f"{name}:{' '.join(headers.get(name, '').split())}" for name in self.headers),
                "",
                ";".join(self.headers),
                hashlib.sha256(body).hexdigest(),
            )
        )
        scope = f"{self.day}/{self.region}/{self.service}/{_END}"
        told = "\n".join((SCHEME, self.at, scope, hashlib.sha256(asked.encode("latin-1")).hexdigest()))
        right = hmac.digest(_signing_key(secret, self.day, self.region, self.service), told.encode(), "sha256").hex()
        return hmac.compare_digest(right.encode(), self.signature.encode("utf-8", "replace"))


def _shown(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime(_FORMAT)


def _ms(at: str) -> int:
    try:
        return int(datetime.strptime(at, _FORMAT).replace(tzinfo=UTC).timestamp() * 1000)
    except ValueError:
        raise Rejected("signed at no time") from None


def _sorted_query(query: str) -> str:
    pairs = parse_qsl(query, keep_blank_values=True)
    return "&".join(
        sorted(f"{quote(name, safe=_UNRESERVED)}={quote(value, safe=_UNRESERVED)}" for name, value in pairs)
    )


@lru_cache(maxsize=1024)
def _signing_key(secret: str, *scope: str) -> bytes:
    """Good for a day: making it takes as long as four signatures."""
    key = f"AWS4{secret}".encode()
    for part in (*scope, _END):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
