"""How the faces of a node ask it for what they need: their requests are answered in this process, without a connection.

A face in a cluster is made of the calls of a client, as each may belong to another node; the first step, to its own, is
not worth HTTP. Who stops waiting cancels what is done for him, as who hangs up does. Knows no face.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from multidict import CIMultiDict

from mqueue.client.line import Reply, Request
from mqueue.model.errors import Unavailable
from mqueue.server.http.answer import Answer, Streamed
from mqueue.server.http.app import App


class Inside:
    """A `mqueue.client.line.Carry`. In the loop of the server."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, request: Request, url: str, seconds: float) -> Reply:
        app, sent_at = self._app, asyncio.get_running_loop().time()
        seconds += request.wait_ms / 1000
        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            async with asyncio.timeout(seconds):
                call, route = app.admit_face(request.method, request.path, headers, request.body)
                answer = await app.answer(call, route)
                body = answer.body if isinstance(answer, Answer) else await _whole(answer)
        except TimeoutError:
            why = f"{url} did not answer within {seconds:g} seconds, and nobody knows what was done"
            raise Unavailable(why, code="line_broken", applied=None) from None
        return Reply(answer.status, CIMultiDict((*answer.headers, ("content-type", answer.kind))), body, sent_at)


async def _whole(answer: Streamed) -> bytes:
    async with aclosing(answer.pieces) as pieces:
        return b"".join([piece async for piece in pieces])
