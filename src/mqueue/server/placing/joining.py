"""Answers the requests of a node that is not one yet: whoever comes is told to come again.

It listens before it has joined, because the others have to be told where it does. A node that forwards something here
meanwhile looks again who owns it.
"""

from __future__ import annotations

from mqueue.broker.remote import Wanted
from mqueue.model.errors import Unavailable
from mqueue.server.http.answer import Answer, Streamed, error_answer
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Route
from mqueue.server.http.service import Receive, Send
from mqueue.server.http.sockets import refuse

_WHY = "this node is joining its cluster"


class Joining:
    async def answer(self, call: Call, route: Route) -> Answer | Streamed:
        if route.place == "open":
            return await route.handler(call)
        raise _not_yet()

    async def talk(self, call: Call, wanted: Wanted, receive: Receive, send: Send) -> None:
        await refuse(error_answer(_not_yet()), send)

    def trouble(self) -> str:
        return _WHY

    def poison(self) -> str:
        return ""


def no_time() -> int:
    """What time it is for all nodes is not known before this one has joined: so it believes none of them yet."""
    raise _not_yet()


def _not_yet() -> Unavailable:
    return Unavailable(f"{_WHY}; try again", code="not_owner", retry_after=1)
