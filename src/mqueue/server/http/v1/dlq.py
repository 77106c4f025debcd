"""Dead letters: look at them, bring them back."""

from __future__ import annotations

import msgspec

from mqueue.broker.loop import LoopDlq
from mqueue.broker.message import Dead
from mqueue.server.http.answer import Answer, as_json
from mqueue.server.http.call import Call
from mqueue.server.http.push import unless_over
from mqueue.server.http.routes import Parameter, Route
from mqueue.server.http.v1.paging import LIMIT, fitting, limit_of
from mqueue.wire.json import DeadOut
from mqueue.wire.json_manage import DeadsOut, RedriveIn, RedriveOut
from mqueue.wire.json_out import message_out

_REDRIVE = msgspec.json.Decoder(RedriveIn)


async def dead(call: Call) -> Answer:
    found, count = await _dlq(call).listed(call.query.get("filter"), limit_of(call, 100))
    return as_json(DeadsOut([_shown(message) for message in fitting(found)], count))


async def redrive(call: Call) -> Answer:
    """Until it is done, the caller leaves or the server stops: then the rest is for the next call."""
    wanted = call.parsed(_REDRIVE)
    dlq = _dlq(call)
    redriving = dlq.begin(wanted.filter, wanted.limit, wanted.dry_run, wanted.rate)
    while await dlq.redrive_step(redriving) and await unless_over(call, dlq.pause(redriving)):
        pass
    done = redriving.done
    return as_json(RedriveOut(done.matched, done.redriven, done.dry_run))


def _dlq(call: Call) -> LoopDlq:
    dlq = call.behind.dlq(call.topic)
    assert isinstance(dlq, LoopDlq)
    return dlq


def _shown(message: Dead) -> DeadOut:
    shown = message_out(message, DeadOut)
    shown.reason, shown.error, shown.group = message.reason, message.error, message.group
    shown.consumer, shown.attempts = message.consumer, message.attempts
    return shown


_DLQ = "/v1/topics/{topic}/dlq"

ROUTES = (
    Route(
        "GET",
        _DLQ,
        dead,
        "read",
        "topic",
        "List the dead of a topic",
        gives=DeadsOut,
        query=(LIMIT, Parameter("filter", "text", "which of them, e.g. reason = max_retries and attempts >= 3")),
    ),
    Route(
        "POST",
        f"{_DLQ}/redrive",
        redrive,
        "manage",
        "topic",
        "Bring the dead back",
        takes=RedriveIn,
        gives=RedriveOut,
        lasts=True,
    ),
)
