"""Members of an assigned group of a server whose answers are lost."""

from __future__ import annotations

import asyncio

import pytest

import mqueue
from mqueue.client.line import Line, Reply, Request
from mqueue.model.errors import Unavailable
from mqueue.testing.server import RunningServer

COUNT = 12


def test_what_was_handed_out_and_never_arrived_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else later messages of its key would go before it, until its lease runs out."""
    lost: list[str] = []
    real = Line._once

    async def once(line: Line, request: Request, url: str, seconds: float) -> Reply:
        reply = await real(line, request, url, seconds)
        if request.path.endswith("/receive") and b"payload" in reply.body and len(lost) < 2:
            lost.append(request.path)
            raise Unavailable("the line broke", code="line_broken", applied=None)
        return reply

    async def run(url: str) -> list[bytes]:
        async with mqueue.AsyncClient(url) as q:
            await q.configure("t", partitions=2, visibility="10m")
            await q.publish_many("t", [mqueue.Draft(b"%d" % number, key="k") for number in range(COUNT)])
            got = []
            async for message in q.consume("t", group="g", assigned=True, prefetch=5):
                got.append(message.payload)
                await message.ack()
                if len(got) == COUNT:
                    break
            return got

    monkeypatch.setattr(Line, "_once", once)
    with RunningServer() as server:
        got = asyncio.run(asyncio.wait_for(run(server.url), 120))
    assert len(lost) == 2
    assert got == [b"%d" % number for number in range(COUNT)]
