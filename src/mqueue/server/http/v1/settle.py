"""Settle: what became of the messages of a lease. Whoever has the token may: it cannot be guessed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from mqueue.broker import remote
from mqueue.broker.shown import topic_of_lease
from mqueue.model.errors import Refused, TooLarge
from mqueue.model.times import Duration
from mqueue.server.http.answer import Answer, as_json
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Route
from mqueue.server.http.service import PLAIN_BODY_BYTES_MAX
from mqueue.server.http.v1.publish import demand_topics
from mqueue.server.http.v1.tracing import traced
from mqueue.wire.json import SettleIn, SettleOut
from mqueue.wire.json_in import drafts_of, ids_of
from mqueue.wire.json_out import receipt_out


class _Sized(msgspec.Struct):
    """A settle call, of which nothing is read but how long its ids are."""

    ids: msgspec.Raw = msgspec.Raw()


_SIZED = msgspec.json.Decoder(_Sized)
_SETTLE = msgspec.json.Decoder(SettleIn)
_TAKEN = {
    "ack": ("ids", "publish"),
    "nack": ("ids", "delay", "error", "publish"),
    "reject": ("ids", "error", "publish"),
    "release": ("ids", "publish"),
    "extend": ("ids", "visibility"),
}
"""What each verb takes."""


def _settles(verb: str) -> Callable[[Call], Awaitable[Answer]]:
    async def handler(call: Call) -> Answer:
        _check_ids(call)
        asked = call.parsed(_SETTLE)
        wait = _wait(verb, asked)
        token = call.names["token"]
        _demand(call, token)
        ids = None if asked.ids is None else ids_of(asked.ids)
        drafts = traced(call, drafts_of(asked.publish)) if asked.publish else ()
        if drafts:
            demand_topics(call, asked.publish)
        try:
            done = await remote.settle(call.behind, verb, token, ids, wait=wait, error=asked.error, publish=drafts)
        finally:
            call.service.streams.settled(token)
        receipts = [receipt_out(receipt) for receipt in done.receipts]
        durability = done.receipts[0].durability if done.receipts else None
        return as_json(SettleOut(done.settled, list(map(str, done.lost)), receipts, durability))

    return handler


def _demand(call: Call, token: str) -> None:
    """Raise unless the caller may settle in the topic of the lease. An unknown token settles nothing anyway."""
    if not call.principal.allows("settle", call.namespace):
        topic = topic_of_lease(call.behind, token)
        if topic is not None:
            call.demand("settle", call.namespace, topic)


def _check_ids(call: Call) -> None:
    """Messages that follow make a long body; ids do not, and would cost far more than their bytes."""
    if len(call.body) > PLAIN_BODY_BYTES_MAX:
        size = len(bytes(call.parsed(_SIZED).ids))
        if size > PLAIN_BODY_BYTES_MAX:
            raise TooLarge(f"{size} bytes of ids; {PLAIN_BODY_BYTES_MAX} are allowed", code="too_many")


def _wait(verb: str, asked: SettleIn) -> Duration | None:
    """The delay of a nack, the new visibility of an extend. What a verb does not take is refused."""
    for name in ("delay", "error", "visibility", "publish"):
        if getattr(asked, name) and name not in _TAKEN[verb]:
            raise Refused(f"{verb} takes no {name}; it takes {', '.join(_TAKEN[verb])}", code="bad_body")
    if verb == "extend" and asked.visibility is None:
        raise Refused("extend takes a visibility; none is given", code="bad_body")
    return asked.visibility if verb == "extend" else asked.delay


_SUMMARIES = {
    "ack": "Done, and what follows from it",
    "nack": "Failed: they come back after a backoff, or a delay",
    "reject": "Hopeless: dead at once",
    "release": "Not now: ready again at once, the attempt is not counted",
    "extend": "Hold them for longer",
}

ROUTES = tuple(
    Route(
        "POST",
        f"/v1/leases/{{token}}/{verb}",
        _settles(verb),
        "settle",
        "inside",
        summary,
        SettleIn,
        SettleOut,
        large="publish" in _TAKEN[verb],
    )
    for verb, summary in _SUMMARIES.items()
)
