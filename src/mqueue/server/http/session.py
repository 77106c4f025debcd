"""Who logged in with a browser: the cookie that stands for a key or a token, and what keeps other sites from using it.

    mqueue=<credential>           __Host-mqueue=<credential> where TLS is spoken
    HttpOnly; SameSite=Strict; Path=/; Secure where TLS is spoken; it ends with the browser

The cookie holds the credential itself, so nothing is kept here: a key that is revoked and a token that ends are refused
at the next call, by every node. At the door it becomes the header that a program would send. A call that changes
something has to prove as well that it comes from a page that could read what the login answered: `X-Mqueue-Csrf`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping

from mqueue.model.errors import Forbidden, Refused

CSRF = "x-mqueue-csrf"
CREDENTIAL_LENGTH_MAX = 3800
"""Browsers drop cookies of more than 4096 bytes, silently."""

_NAMES = ("__Host-mqueue", "mqueue")
_CREDENTIAL = re.compile(r"[A-Za-z0-9._~+/=-]+")
_PURPOSE = b"mqueue csrf"


def entered(headers: Mapping[str, str], only_looks: bool) -> Mapping[str, str]:
    """The headers of a call, with the credential of its cookie if it brings no other; no cookie is left in them.

    Raises Forbidden if a call that does more than look is not proven to come from our own page.
    """
    if "cookie" not in headers:
        return headers
    credential = credential_of(headers)
    without = {name: value for name, value in headers.items() if name not in ("cookie", CSRF)}
    if credential is None or "authorization" in headers or "x-api-key" in headers:
        return without
    proven = hmac.compare_digest(headers.get(CSRF, "").encode(), csrf_of(credential).encode())
    if not only_looks and not proven:
        raise Forbidden(f"a cookie alone changes nothing: the header {CSRF} is missing, or wrong", code="csrf")
    without["authorization"] = f"Bearer {credential}"
    return without


def credential_of(headers: Mapping[str, str]) -> str | None:
    found = dict(reversed([_pair(part) for part in headers.get("cookie", "").split(";")]))
    given = (found.get(name, "") for name in _NAMES)
    return next((text for text in given if _CREDENTIAL.fullmatch(text)), None)


def csrf_of(credential: str) -> str:
    """What a page has to know to change something. Nobody who does not know the credential can make it up."""
    return hashlib.blake2b(credential.encode(), key=_PURPOSE, digest_size=16).hexdigest()


def cookie(credential: str, secure: bool) -> str:
    """The value of `Set-Cookie` that lets a browser in."""
    if len(credential) > CREDENTIAL_LENGTH_MAX:
        raise Refused(
            f"a credential of {len(credential)} characters; {CREDENTIAL_LENGTH_MAX} fit into a cookie",
            code="bad_credential",
        )
    if not _CREDENTIAL.fullmatch(credential):
        raise Refused("a credential has letters, digits and . _ ~ + / = - only", code="bad_credential")
    return f"{_name(secure)}={credential}; {_kept(secure)}"


def farewell(secure: bool) -> str:
    """The value of `Set-Cookie` that makes a browser forget it."""
    return f"{_name(secure)}=; Max-Age=0; {_kept(secure)}"


def _name(secure: bool) -> str:
    return _NAMES[0] if secure else _NAMES[1]


def _kept(secure: bool) -> str:
    return "Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if secure else "")


def _pair(part: str) -> tuple[str, str]:
    name, _, value = part.strip().partition("=")
    return name, value
