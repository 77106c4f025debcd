"""A WebSocket that another node answers: what either side says goes to the other, until one of them ends it.

The caller's side speaks ASGI, the other node's is a WebSocket of our own. Nothing that is said is looked at. As with
`pieces`, this node looks again and again whether the caller may still be here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.utilities import ProtocolError

from mqueue.model.errors import Error
from mqueue.model.limits import ANSWER_TEXT_BYTES_MAX, KIB
from mqueue.server.forwarding.heads import Heads, come_back
from mqueue.server.forwarding.line import Broken, keep_alive
from mqueue.server.forwarding.owner import CONNECT_SECONDS, Owner
from mqueue.server.http.answer import JSON, Answer, error_answer
from mqueue.server.http.call import Call
from mqueue.server.http.service import Receive, Send
from mqueue.server.http.sockets import GOING_AWAY, dismiss, refuse

SILENCE_SECONDS = 60.0
"""A node that says nothing for so long is not there any more: it pings more often than that."""
_READ_BYTES = 256 * KIB
_REFUSAL_BYTES_MAX = 256 * KIB
_END_SECONDS = 5.0
_SAID_MAX = 4999
_UNSAID = frozenset((1005, 1006, 1015))
"""Codes that stand for an end without a word; nobody may say them."""


async def talk(call: Call, owner: Owner, heads: Heads, receive: Receive, send: Send) -> None:
    """From before the upgrade until the end. What the other node refuses is refused in its words."""
    try:
        other = await Other.connect(owner)
    except Error as error:
        await refuse(error_answer(error), send)
        return
    try:
        refusal = await _opened(call, other, heads)
        if refusal is not None:
            await refuse(refusal, send)
            return
        await send({"type": "websocket.accept"})
        await _both_ways(call, other, receive, send)
    finally:
        other.close()


class Other:
    """The WebSocket to the other node."""

    def __init__(self, owner: Owner, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.owner = owner
        self._reader = reader
        self._writer = writer
        self._wire = WSConnection(ConnectionType.CLIENT)

    @classmethod
    async def connect(cls, owner: Owner) -> Other:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(owner.host, owner.port, ssl=owner.tls)
        except (OSError, ValueError) as error:
            raise owner.unreachable(error) from None
        keep_alive(writer.transport)
        return cls(owner, reader, writer)

    async def say(self, event: Event) -> None:
        """Raises Broken."""
        try:
            self._writer.write(self._wire.send(event))
            await self._writer.drain()
        except (OSError, ProtocolError) as error:
            raise Broken(str(error)) from error

    async def events(self) -> AsyncIterator[Event]:
        """What it says. Raises Broken when it is gone."""
        while True:
            for event in self._wire.events():
                yield event
            try:
                async with asyncio.timeout(SILENCE_SECONDS):
                    data = await self._reader.read(_READ_BYTES)
                if not data:
                    raise Broken("it was closed")
                self._wire.receive_data(data)
            except (OSError, ProtocolError) as error:
                raise Broken(str(error) or "nothing was heard of it") from error

    def close(self) -> None:
        """What was said last still goes out, if the other node takes it soon."""
        self._writer.close()
        asyncio.get_running_loop().call_later(_END_SECONDS, self._writer.transport.abort)


async def _opened(call: Call, other: Other, heads: Heads) -> Answer | None:
    """The answer of one who does not want to talk; None: he does."""
    refused: RejectConnection | None = None
    body = b""
    headers = heads.headers(call, call.headers, "GET", call.target)
    asked = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    try:
        await other.say(Request(other.owner.netloc, call.target, extra_headers=asked))
        async for event in other.events():
            if isinstance(event, AcceptConnection):
                return None
            if isinstance(event, RejectConnection):
                refused = event
            if isinstance(event, RejectData):
                body = _longer(body, event.data)
            if refused is not None and (not refused.has_body or getattr(event, "body_finished", False)):
                return _refusal(refused, body)
    except Broken as error:
        return error_answer(other.owner.unreachable(error))
    return None


def _longer(body: bytes, more: bytes | bytearray) -> bytes:
    if len(body) + len(more) > _REFUSAL_BYTES_MAX:
        raise Broken(f"a refusal is longer than {_REFUSAL_BYTES_MAX} bytes")
    return body + more


def _refusal(refused: RejectConnection, body: bytes) -> Answer:
    told = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in refused.headers]
    return Answer(refused.status_code, body, dict(told).get("content-type", JSON), come_back(told))


async def _both_ways(call: Call, other: Other, receive: Receive, send: Send) -> None:
    """Until one side ends it; then the other is told."""
    ways = [asyncio.ensure_future(_to_owner(other, receive)), asyncio.ensure_future(_to_caller(call, other, send))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            if way.done():
                way.result()
    except Broken as error:
        await _close(send, GOING_AWAY, other.owner.unreachable(error).code)
    except Error as error:
        await dismiss(error, send)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _to_owner(other: Other, receive: Receive) -> None:
    while True:
        event = await receive()
        if event["type"] == "websocket.disconnect":
            with suppress(Broken):
                await other.say(CloseConnection(GOING_AWAY))
            return
        text = event.get("text")
        await other.say(BytesMessage(event.get("bytes") or b"") if text is None else TextMessage(text))


async def _to_caller(call: Call, other: Other, send: Send) -> None:
    said: list[str | bytes | bytearray] = []
    size = 0
    async for event in other.events():
        if isinstance(event, Ping):
            call.demand_again("receive")
            await other.say(event.response())
        elif isinstance(event, CloseConnection):
            code = event.code if 1000 <= event.code <= _SAID_MAX and event.code not in _UNSAID else GOING_AWAY
            await _close(send, code, event.reason or "")
            return
        elif isinstance(event, TextMessage | BytesMessage):
            size += len(event.data)
            if size > ANSWER_TEXT_BYTES_MAX:
                raise Broken(f"a message is longer than {ANSWER_TEXT_BYTES_MAX} bytes")
            said.append(event.data)
            if event.message_finished:
                call.demand_again("receive")
                await send(_message(said))
                said, size = [], 0


def _message(said: list[str | bytes | bytearray]) -> dict[str, str | bytes]:
    if isinstance(said[0], str):
        return {"type": "websocket.send", "text": "".join(map(str, said))}
    return {"type": "websocket.send", "bytes": b"".join(bytes(one) for one in said if not isinstance(one, str))}


async def _close(send: Send, code: int, reason: str) -> None:
    await send({"type": "websocket.close", "code": code, "reason": reason})
