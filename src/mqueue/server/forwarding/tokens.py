"""The leases in an answer of another node. It is read only if nobody is there to take it."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from mqueue.server.forwarding.line import Reply


class _Lease(Struct):
    lease: str | None = None


class _Given(Struct):
    lease: str | None = None
    leases: list[_Lease] = []


_GIVEN = msgspec.json.Decoder(list[_Lease] | _Given)


def tokens_of(reply: Reply) -> list[str]:
    """Those that have to be given back; an answer that cannot be read has none that we could name."""
    told = dict(reply.headers).get("x-mqueue-lease")
    if told is not None:
        return [told]
    try:
        given = _GIVEN.decode(reply.body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return []
    leases = given if isinstance(given, list) else [_Lease(given.lease), *given.leases]
    return list(dict.fromkeys(one.lease for one in leases if one.lease))
