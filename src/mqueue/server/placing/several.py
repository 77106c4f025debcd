"""Receiving from several topics that are delivered from several places: each is asked in turn, until one has something.

Nobody can wait at all of them at once, so whoever waits looks again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from mqueue.broker.deliver import wait_ms
from mqueue.server.http.answer import Answer, Streamed, as_json
from mqueue.server.http.call import Call
from mqueue.server.http.push import unless_over
from mqueue.wire.json import LeaseOut, LeasesOut, ReceiveTopicsIn

_LOOK_SECONDS = 0.05
_DECODER = msgspec.json.Decoder(ReceiveTopicsIn)
_LEASES = msgspec.json.Decoder(LeasesOut)
_ENCODER = msgspec.json.Encoder()

Ask = Callable[[Call, str], Awaitable[Answer | Streamed]]


async def receive(call: Call, ask: Ask, turn: int) -> Answer | Streamed:
    """`ask` makes the call about one topic, where that is delivered from."""
    wanted = call.parsed(_DECODER)
    topics = list(dict.fromkeys(wanted.topics))
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_ms(wanted.wait) / 1000
    while True:
        turn += 1
        order = [topics[(turn + step) % len(topics)] for step in range(len(topics))]
        answer, leases = await _round(call, wanted, order, ask)
        if answer is not None or leases or loop.time() >= until:
            return answer or as_json(LeasesOut(leases))
        pause = min(_LOOK_SECONDS, until - loop.time())
        if await unless_over(call, _slept(pause)) is None:
            return as_json(LeasesOut([]))


async def _round(
    call: Call, wanted: ReceiveTopicsIn, order: list[str], ask: Ask
) -> tuple[Answer | Streamed | None, list[LeaseOut]]:
    """Each topic once; the first answer that is none, or what was handed out."""
    leases: list[LeaseOut] = []
    room = wanted.limit
    for topic in order:
        asked = msgspec.structs.replace(wanted, topics=[topic], limit=room, wait=None)
        answer = await ask(msgspec.structs.replace(call, body=_ENCODER.encode(asked)), topic)
        if not isinstance(answer, Answer) or answer.status != 200:
            return (None if leases else answer), leases
        found = _LEASES.decode(answer.body).leases
        leases += found
        room -= sum(len(lease.messages) for lease in found)
        if room <= 0:
            break
    return None, leases


async def _slept(seconds: float) -> bool:
    await asyncio.sleep(seconds)
    return True
