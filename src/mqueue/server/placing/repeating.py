"""Which requests may be made once more when nobody knows what became of the first one.

    reads                                   they change nothing
    receive, under a lease                  what was handed out comes back by itself
    settle with a token                     answered as the first time; it touches no other lease
    receive at most once                    no: what was handed out is done, and nobody has seen it
    /ack and /nack without a token          no: by then somebody else may hold the message
    publish, stage, commit, abort, forget   no: whoever asked knows whether it can be repeated
    purge, seek, redrive, reschedule, …     no: they go by what is there, and that may be new by then

Who asked for one of the latter is told that it may have been done.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from mqueue.server.http.call import Call
from mqueue.server.http.routes import Route
from mqueue.server.http.sqs.naming import ACTIONS_PATH

_RECEIVES = frozenset(("/v1/receive", "/v1/topics/{topic}/receive", "/v1/topics/{topic}/stream", "/dequeue"))
_BY_ID = frozenset(("/ack", "/nack"))


class _Told(Struct):
    """What of a body matters here."""

    mode: str = "at_least_once"
    lease: str | None = None


_TOLD = msgspec.json.Decoder(_Told)


def is_repeatable(call: Call, route: Route) -> bool:
    if route.method == "GET" and route.verb != "receive":
        return True
    if route.path.startswith(ACTIONS_PATH):
        return route.verb in ("receive", "settle")
    if route.path in _RECEIVES:
        return _told(call).mode == "at_least_once" and call.query.get("ack") != "auto"
    if route.path in _BY_ID:
        return _told(call).lease is not None
    return route.verb == "settle"


def _told(call: Call) -> _Told:
    """What cannot be read is refused by the handler, and changes nothing."""
    try:
        return _TOLD.decode(call.body or b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _Told()
