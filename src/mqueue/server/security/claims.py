"""What a token says: strict reading of its three parts, and of its claims into grants. Stands before the signature.

Stricter than JSON and base64 libraries are by habit: two readers of one token must never see two things, so duplicate
names, NaN, padding and stray bits are refused. Knows no keys, no signatures and no clock.

Claims that give rights, any of them:
    scope, scopes, scp     "read:tenant-a write:tenant-a/orders.*", as text or list (ours)
    namespace, namespaces  "tenant-a" or ["tenant-a", "tenant-b"], with bare words (read, write, admin) in `scope`;
                           read and write where no scope is given at all
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, NoReturn

from mqueue.model.errors import BadName, BadSetting
from mqueue.model.names import check_name
from mqueue.server.security.principal import ANY, SCOPES, Grant, Rejected, parse_grants

TOKEN_BYTES_MAX = 8 * 1024
DEPTH_MAX = 8
_SCOPE_CLAIMS = ("scope", "scopes", "scp")
_NAMESPACE_CLAIMS = ("namespace", "namespaces")


def checked(text: str) -> bytes:
    """The bytes of a token that may be looked at; or Rejected. Comes first, so that nothing costs without bound."""
    if len(text) > TOKEN_BYTES_MAX:
        raise Rejected("too long")
    if not text.isascii():
        raise Rejected("not ASCII text")
    return text.encode("ascii")


def split(text: str) -> tuple[dict[str, Any], dict[str, Any], bytes, bytes]:
    """Header, claims, what was signed, the signature; or Rejected. The text is `checked`."""
    parts = text.split(".")
    if len(parts) != 3:
        raise Rejected("not three parts")
    header, claims, signature = (_bytes(part) for part in parts)
    return _object(header), _object(claims), text.rpartition(".")[0].encode(), signature


def grants_of(claims: dict[str, Any]) -> tuple[Grant, ...]:
    """The rights that the claims give, in whichever shape. Words of other systems (`openid`) give none."""
    words = _words(claims, _SCOPE_CLAIMS)
    namespaces = _words(claims, _NAMESPACE_CLAIMS)
    told = any(name in claims for name in _SCOPE_CLAIMS)
    bare = [word for word in words if word in SCOPES] if told else ["read", "write"]
    ours = [word for word in words if ":" in word and word.partition(":")[0] in {*SCOPES, ANY}]
    try:
        for namespace in namespaces:
            if namespace != ANY:
                check_name(namespace, "namespace")
        return parse_grants([*ours, *(f"{scope}:{namespace}" for namespace in namespaces for scope in bare)])
    except (BadSetting, BadName):
        raise Rejected("a grant cannot be read") from None


def _words(claims: dict[str, Any], names: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    for name in names:
        value = claims.get(name, [])
        words = value.split(" ") if isinstance(value, str) else value
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise Rejected(f"{name} is neither text nor a list of texts")
        found += [word for word in words if word]
    return found


def _bytes(part: str) -> bytes:
    """base64url without padding, the one spelling of these bytes: others would let a token be changed unseen."""
    try:
        data = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise Rejected("not base64url") from None
    if base64.urlsafe_b64encode(data).rstrip(b"=").decode() != part:
        raise Rejected("not the one spelling in base64url")
    return data


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Rejected("not strict JSON") from None
    if not isinstance(value, dict):
        raise Rejected("not an object")
    if _depth(value) > DEPTH_MAX:
        raise Rejected("nested too deep")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name twice")
    return found


def _no_constant(text: str) -> NoReturn:
    raise ValueError(text)


def _depth(value: object) -> int:
    """Level by level, so that no nesting is too deep to be measured."""
    level, depth = [value], 0
    while level:
        depth += 1
        inner: list[object] = []
        for each in level:
            inner += each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
        level = inner
    return depth - 1
