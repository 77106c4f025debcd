"""Push over a WebSocket: leases go out as they come, commands to settle them come in on the same connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

import msgspec

from mqueue.broker import remote
from mqueue.broker.settle import Settlement
from mqueue.model.errors import Closed, Error, LeaseLost, Refused
from mqueue.model.times import rfc3339
from mqueue.server.http.answer import Answer
from mqueue.server.http.call import Call
from mqueue.server.http.push import Pushing
from mqueue.server.http.routes import Route
from mqueue.server.http.v1.push import HEARTBEAT_SECONDS, stream
from mqueue.wire.json import ErrorBody, LeaseOut
from mqueue.wire.json_in import drafts_of, ids_of
from mqueue.wire.json_out import message_out, receipt_out
from mqueue.wire.json_push import VERBS, CommandIn, CommandOut

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

GOING_AWAY, REFUSED = 1001, 1008

_COMMAND = msgspec.json.Decoder(CommandIn)
_ENCODER = msgspec.json.Encoder()


def check_pushed(route: Route) -> None:
    if route.handler is not stream:
        raise Refused(f"{route.path} is no place for a WebSocket", code="no_socket")


async def refuse(answer: Answer, send: Send) -> None:
    """Say over HTTP why there is no conversation."""
    headers = [(b"content-type", answer.kind.encode()), (b"connection", b"close")]
    headers += [(name.encode(), value.encode()) for name, value in answer.headers]
    await send({"type": "websocket.http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": answer.body})


async def talk(call: Call, wanted: remote.Wanted, receive: Receive, send: Send) -> None:
    """One conversation, from the upgrade on. Ends when the consumer leaves or the server stops."""
    await send({"type": "websocket.accept"})
    call.gone = gone = asyncio.Event()
    try:
        await _push(call, wanted, gone, receive, send)
    except Error as error:
        await dismiss(error, send, gone)
        return
    if not gone.is_set():
        await send({"type": "websocket.close", "code": GOING_AWAY, "reason": "the server is stopping"})


async def dismiss(error: Error, send: Send, gone: asyncio.Event | None = None) -> None:
    """Say why a conversation is over, and end it."""
    await _say(send, CommandOut(error=_error_out(error)))
    if gone is None or not gone.is_set():
        await send({"type": "websocket.close", "code": REFUSED, "reason": error.code})


async def _push(call: Call, wanted: remote.Wanted, gone: asyncio.Event, receive: Receive, send: Send) -> None:
    """Until the consumer leaves or the server stops."""
    async with Pushing(call, wanted) as pushing:
        listening = asyncio.ensure_future(_listen(call, pushing, gone, receive, send))
        try:
            while not listening.done() and (handed := await pushing.next(HEARTBEAT_SECONDS)) is not None:
                for lease in handed:
                    await _say(send, _lease_out(lease))
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)


async def _listen(call: Call, pushing: Pushing, gone: asyncio.Event, receive: Receive, send: Send) -> None:
    """Take commands until the consumer leaves."""
    while True:
        event = await receive()
        if event["type"] == "websocket.disconnect":
            gone.set()
            return
        if event["type"] == "websocket.receive":
            await _say(send, await _obey(call, pushing, event.get("text") or event.get("bytes") or ""))


async def _obey(call: Call, pushing: Pushing, text: str | bytes) -> CommandOut:
    command = CommandIn()
    try:
        command = _parsed(text)
        return await _settle(call, pushing, command)
    except Error as error:
        if isinstance(error, Closed):
            raise
        return CommandOut(command.seq, error=_error_out(error))


def _error_out(error: Error) -> ErrorBody:
    told = ErrorBody(error.code, error.message, error.retryable, error.applied)
    if isinstance(error, LeaseLost):
        told.lost = [str(id) for id in error.lost]
    return told


def _parsed(text: str | bytes) -> CommandIn:
    try:
        return _COMMAND.decode(text)
    except msgspec.ValidationError as error:
        raise Refused(f"the command does not fit: {error}", code="bad_body") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(f"the command is not JSON: {error}", code="bad_json") from error


async def _settle(call: Call, pushing: Pushing, command: CommandIn) -> CommandOut:
    verbs = [verb for verb in VERBS if getattr(command, verb) is not None]
    if len(verbs) != 1:
        raise Refused(f"a command names just one of {', '.join(VERBS)}; this one {len(verbs)}", code="bad_body")
    [verb] = verbs
    leases = pushing.by_token(ids_of(getattr(command, verb)))
    if command.publish:
        if verb != "ack" or len(leases) != 1:
            raise Refused("publish goes with the ack of messages of one lease", code="bad_body")
        for draft in command.publish:
            call.demand("publish", call.namespace, draft.topic or call.topic)
    settled = [await _settle_lease(call, verb, token, ids, command) for token, ids in leases.items()]
    return _command_out(verb, command, settled)


async def _settle_lease(call: Call, verb: str, token: str, ids: list[int], command: CommandIn) -> Settlement:
    wait = command.visibility if verb == "extend" else command.delay
    try:
        return await remote.settle(
            call.behind,
            verb,
            token,
            ids,
            wait=wait,
            error=command.error,
            publish=drafts_of(command.publish, call.topic),
        )
    except LeaseLost as lost:
        return Settlement(0, lost.lost)
    finally:
        call.service.streams.settled(token)


def _command_out(verb: str, command: CommandIn, done: Sequence[Settlement]) -> CommandOut:
    lost = [id for one in done for id in one.lost]
    if lost and not any(one.settled for one in done):
        shown = ", ".join(map(str, lost[:5]))
        raise LeaseLost(f"cannot {verb} {len(lost)} message(s) that are no longer held: {shown}", lost=tuple(lost))
    receipts = [receipt_out(receipt) for one in done for receipt in one.receipts]
    return CommandOut(command.seq, sum(one.settled for one in done), [str(id) for id in lost], receipts)


def _lease_out(handed: remote.Handed) -> LeaseOut:
    return LeaseOut(
        handed.topic,
        handed.token or None,
        rfc3339(handed.deadline) if handed.token else None,
        handed.remaining_ms,
        [message_out(message) for message in handed.messages],
    )


async def _say(send: Send, told: Any) -> None:
    await send({"type": "websocket.send", "text": _ENCODER.encode(told).decode()})
