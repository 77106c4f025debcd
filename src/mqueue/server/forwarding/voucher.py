"""One node vouches to another for the caller of a request that it forwards: who he is, and where he called from.

    x-mqueue-principal   base64url of msgpack (subject, via, ((scope, namespace, topics), …))
    x-mqueue-peer        the address that he called from
    x-mqueue-vouched     <unix ms>.<nonce>.<HMAC-SHA256, hex>   over all of the above, method, target and namespace

The key is a secret that all nodes share. The time is one that all nodes see, not that of their own clocks. The body is
no part of it: callers are admitted before it is there. So whoever reads along between two nodes could send the same
head once more with another body, for as long as it is fresh; but he could as well change the body on its way. Where
that matters, nodes talk TLS. Does not know HTTP beyond headers.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Callable, Mapping
from functools import lru_cache

import msgspec
from msgspec import Struct

from mqueue.model.errors import BadSetting
from mqueue.server.security.principal import Grant, Principal, Rejected

PRINCIPAL, PEER, VOUCHED = "x-mqueue-principal", "x-mqueue-peer", "x-mqueue-vouched"
NAMESPACE = "x-mqueue-namespace"
SECRET_BYTES_MIN = 32
FRESH_MS = 60_000
"""So long what a node says is believed."""
_NONCE_BYTES = 8
_SEPARATOR = "."
_DIGITS_MAX = 16


class _Packed(Struct, array_like=True, frozen=True):
    subject: str
    via: str
    grants: tuple[tuple[str, str, str], ...]


_ENCODER = msgspec.msgpack.Encoder()
_PACKED = msgspec.msgpack.Decoder(_Packed)


class Voucher:
    """`now`: the time of all nodes. Raises while it is not known."""

    def __init__(self, secret: bytes, now: Callable[[], int]) -> None:
        if len(secret) < SECRET_BYTES_MIN:
            raise BadSetting(f"a secret of {len(secret)} bytes between nodes; at least {SECRET_BYTES_MIN} are needed")
        self._secret = secret
        self._now = now

    def headers(
        self, principal: Principal, peer: str, namespace: str, method: str, target: str
    ) -> tuple[tuple[str, str], ...]:
        """What goes with a request. `namespace`: as its header says it, empty if there is none."""
        packed = _packed(principal)
        told = f"{self._now()}{_SEPARATOR}{secrets.token_hex(_NONCE_BYTES)}"
        proof = self._proof(told, method, target, packed, namespace, peer)
        return (PRINCIPAL, packed), (PEER, peer), (VOUCHED, f"{told}{_SEPARATOR}{proof}")

    def principal(self, headers: Mapping[str, str], method: str, target: str) -> Principal | None:
        """Whom a node vouches for; None: nobody vouches for anybody. Raises Unauthorized if that is wrong or old."""
        vouched = headers.get(VOUCHED)
        if vouched is None:
            return None
        told, _, proof = vouched.rpartition(_SEPARATOR)
        packed = headers.get(PRINCIPAL, "")
        right = self._proof(told, method, target, packed, headers.get(NAMESPACE, ""), headers.get(PEER, ""))
        if not hmac.compare_digest(proof.encode(), right.encode()):
            raise Rejected("vouched for by nobody we know")
        if abs(self._now() - _time(told)) > FRESH_MS:
            raise Rejected("vouched for at another time")
        return _unpacked(packed)

    def _proof(self, told: str, *parts: str) -> str:
        """Packed, so that no two requests read the same."""
        return hmac.digest(self._secret, _ENCODER.encode((told, *parts)), "sha256").hex()


def _time(told: str) -> int:
    digits = told.partition(_SEPARATOR)[0]
    if not digits.isascii() or not digits.isdecimal() or len(digits) > _DIGITS_MAX:
        raise Rejected("vouched for at no time")
    return int(digits)


@lru_cache(maxsize=1024)
def _packed(principal: Principal) -> str:
    grants = tuple((grant.scope, grant.namespace, grant.topics) for grant in principal.grants)
    return base64.urlsafe_b64encode(_ENCODER.encode(_Packed(principal.subject, principal.via, grants))).decode()


@lru_cache(maxsize=1024)
def _unpacked(packed: str) -> Principal:
    try:
        found = _PACKED.decode(base64.urlsafe_b64decode(packed))
    except (ValueError, msgspec.MsgspecError) as error:
        raise Rejected("vouched for what cannot be read") from error
    return Principal(found.subject, tuple(Grant(*grant) for grant in found.grants), found.via)
