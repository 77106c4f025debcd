"""What a worker needs of a queue: the part of `AsyncBroker` and `AsyncClient` that it calls. It knows neither."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mqueue.broker.given import Topics
from mqueue.broker.members import Membership
from mqueue.broker.message import AsyncMessage
from mqueue.broker.settle import Settlement
from mqueue.model.times import Duration


class Queue(Protocol):
    def namespace(self, name: str) -> Queue: ...

    async def receive(
        self,
        topic: Topics,
        limit: int = 1,
        *,
        group: str = "default",
        wait: Duration | None = None,
        visibility: Duration | None = None,
        member: Membership | None = None,
    ) -> list[AsyncMessage]: ...

    async def join(self, topic: str, *, group: str = "default", member: str | None = None) -> Membership: ...

    async def heartbeat(self, member: Membership, *, wait: Duration | None = None) -> Membership: ...

    async def leave(self, member: Membership) -> None: ...

    async def extend(self, messages: Sequence[AsyncMessage], visibility: Duration) -> Settlement: ...
