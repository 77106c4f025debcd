"""Where the messages of a client come from and are settled: what the calls of one namespace stand on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from mqueue.broker.deliver import check_receive
from mqueue.broker.given import Topics, names_of
from mqueue.broker.members import Membership, seat_of
from mqueue.broker.message import AnyMessage
from mqueue.broker.settle import Settlement
from mqueue.client import incoming, receive, settle
from mqueue.client.holding import Holdings
from mqueue.client.window import Window
from mqueue.model.times import Duration
from mqueue.wire.json import MessagesOut

Run = Callable[[Coroutine[Any, Any, Any]], Any]


class Anchor:
    """Somebody uses a client as long as this is referred to: by the client, its views, what they handed out."""


class Home:
    """`kind` and `dead_kind`: of which type messages are. `blocking`: how threads wait for a call, if they do."""

    def __init__(
        self,
        window: Window,
        holdings: Holdings,
        kind: Callable[..., Any],
        dead_kind: Callable[..., Any],
        blocking: Run | None = None,
        anchor: Anchor | None = None,
    ) -> None:
        self.window = window
        self.holdings = holdings
        self.kind = kind
        self.dead_kind = dead_kind
        self.blocking = blocking
        self.anchor = anchor or Anchor()

    def view(self, namespace: str) -> Home:
        window = Window(self.window.line, self.window.address, namespace, self.window.spans)
        return Home(window, self.holdings, self.kind, self.dead_kind, self.blocking, self.anchor)

    def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        assert self.blocking is not None, "messages of an AsyncClient are awaited"
        return self.blocking(call)

    async def receive(
        self,
        topic: Topics,
        limit: int,
        group: str,
        wait: Duration | None,
        visibility: Duration | None,
        mode: str = "at_least_once",
        stopped: asyncio.Event | None = None,
        member: Membership | None = None,
    ) -> list[Any]:
        group, seat = seat_of(topic, group, member)
        told, wait_ms = receive.asked(limit, group, wait, visibility, mode, seat)
        topics = names_of(topic)
        call = receive.receive(self, self.holdings, topics, told, wait_ms, self.kind, stopped)
        spans = self.window.spans
        return await (call if spans is None else spans.receiving(self.window.namespace, topics, group, call))

    async def settle_messages(
        self,
        verb: str,
        messages: Sequence[AnyMessage],
        wait: Duration | None = None,
        error: object = None,
        publish: Sequence[Any] = (),
    ) -> Settlement:
        if not messages:
            return Settlement(0)
        told = settle.order(verb, wait, error, publish)
        spans = self.window.spans
        with nullcontext() if spans is None else spans.settling(verb, messages):
            return await settle.settle_messages(self.window.line, verb, messages, told)

    async def look(self, path: str, limit: int, query: Mapping[str, Any]) -> list[Any]:
        """Messages that nobody holds."""
        check_receive(limit, "at_least_once")
        found = await self.window.ask(MessagesOut, "GET", path, query={**query, "limit": limit})
        return incoming.messages(self, None, found.messages, self.kind)
