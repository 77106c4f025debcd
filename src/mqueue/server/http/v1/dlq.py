"""Dead letters: look at them, sort them by what they died of, bring them back, delete them."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec

from mqueue.broker.loop import LoopDlq
from mqueue.broker.message import Dead
from mqueue.broker.redrive import Redriving
from mqueue.broker.sorting import DeadErrors, Sorted
from mqueue.model.errors import Error
from mqueue.server.http.answer import Answer, Streamed, as_json
from mqueue.server.http.call import Call
from mqueue.server.http.push import unless_over
from mqueue.server.http.routes import Parameter, Route
from mqueue.server.http.v1.paging import LIMIT, PREVIEW, fitting, limit_of, preview_of
from mqueue.server.http.v1.push import EVENTS, GOODBYE, failed
from mqueue.store.redrive import discard
from mqueue.wire.json import DeadOut
from mqueue.wire.json_manage import (
    DeadDeletedOut,
    DeadDeleteIn,
    DeadErrorOut,
    DeadErrorsOut,
    DeadsOut,
    RedriveIn,
    RedriveOut,
)
from mqueue.wire.json_out import message_out, time_out

_REDRIVE = msgspec.json.Decoder(RedriveIn)
_DELETE = msgspec.json.Decoder(DeadDeleteIn)
_ENCODER = msgspec.json.Encoder()


async def dead(call: Call) -> Answer:
    preview = preview_of(call)
    found, count = await _dlq(call).listed(call.query.get("filter"), limit_of(call, 100))
    return as_json(DeadsOut([_shown(message, preview) for message in fitting(found, preview)], count))


async def errors(call: Call) -> Answer:
    found = Sorted()
    await _walked(call, _dlq(call).begin(found, None, True))
    return as_json(DeadErrorsOut([_told(entry) for entry in found.entries]))


async def redrive(call: Call) -> Answer | Streamed:
    """Until it is done, the caller leaves or the server stops: then the rest is for the next call."""
    wanted = call.parsed(_REDRIVE)
    redriving = _dlq(call).begin(wanted.filter, wanted.limit, wanted.dry_run, wanted.rate)
    if EVENTS in call.headers.get("accept", ""):
        return Streamed(_progress(call, redriving), EVENTS, headers=(("cache-control", "no-store"),))
    await _walked(call, redriving)
    return as_json(_so_far(redriving))


async def delete(call: Call) -> Answer:
    wanted = call.parsed(_DELETE)
    deleting = _dlq(call).begin(wanted.filter, wanted.limit, wanted.dry_run, act=discard)
    await _walked(call, deleting)
    return as_json(DeadDeletedOut(*deleting.counted, wanted.dry_run))


async def _walked(call: Call, redriving: Redriving) -> None:
    dlq = _dlq(call)
    while await dlq.redrive_step(redriving) and await unless_over(call, dlq.pause(redriving)):
        pass


async def _progress(call: Call, redriving: Redriving) -> AsyncGenerator[bytes, None]:
    """How far it is, after each step. Who may not do this any more does not go on: keys are revoked meanwhile."""
    dlq = _dlq(call)
    try:
        while await dlq.redrive_step(redriving):
            yield b"event: progress\ndata: %b\n\n" % _ENCODER.encode(_so_far(redriving))
            if not await unless_over(call, dlq.pause(redriving)):
                break
            call.demand_again("manage")
    except Error as error:  # it is too late for a status
        yield failed(error)
        return
    yield b"event: done\ndata: %b\n\n" % _ENCODER.encode(_so_far(redriving)) + GOODBYE


def _so_far(redriving: Redriving) -> RedriveOut:
    done = redriving.done
    return RedriveOut(done.matched, done.redriven, done.dry_run)


def _dlq(call: Call) -> LoopDlq:
    dlq = call.behind.dlq(call.topic)
    assert isinstance(dlq, LoopDlq)
    return dlq


def _shown(message: Dead, preview: int | None) -> DeadOut:
    shown = message_out(message, DeadOut, preview)
    shown.reason, shown.error, shown.group = message.reason, message.error, message.group
    shown.consumer, shown.attempts = message.consumer, message.attempts
    return shown


def _told(entry: DeadErrors) -> DeadErrorOut:
    return DeadErrorOut(
        entry.fingerprint,
        entry.reason,
        entry.error,
        entry.transient,
        entry.count,
        time_out(entry.first_at),
        time_out(entry.last_at),
        entry.groups,
        list(map(str, entry.ids)),
    )


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
        query=(
            LIMIT,
            PREVIEW,
            Parameter("filter", "text", "which of them, e.g. reason = max_retries and attempts >= 3"),
        ),
    ),
    Route(
        "POST",
        f"{_DLQ}/redrive",
        redrive,
        "manage",
        "topic",
        "Bring the dead back; asked for server-sent events, it tells how far it is",
        takes=RedriveIn,
        gives=RedriveOut,
        lasts=True,
    ),
    Route("GET", f"{_DLQ}/errors", errors, "read", "topic", "Sort the dead by what they died of", gives=DeadErrorsOut),
    Route(
        "POST",
        f"{_DLQ}/delete",
        delete,
        "manage",
        "topic",
        "Delete the dead",
        takes=DeadDeleteIn,
        gives=DeadDeletedOut,
        lasts=True,
    ),
)
