"""The calls of a face besides HTTP, told of as those over HTTP are: to metrics how long they take, to telemetry all.

A face in the process of the broker makes its calls on these. In a cluster its calls are requests to the node that it
belongs to, and are told of there. Messages keep the trace that they bring; others get none. Knows no protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from mqueue.broker.aio import AsyncArrowLease, AsyncBroker
from mqueue.broker.consume import Supply
from mqueue.broker.message import AsyncMessage
from mqueue.broker.remote import Handed, HandedTable
from mqueue.broker.twin import behind
from mqueue.model.message import Draft
from mqueue.server.faces import is_here
from mqueue.server.http import delivered
from mqueue.server.http.service import Service

Headers = Mapping[str, str | bytes]


def told_calls(service: Service) -> Callable[[str], AsyncBroker]:
    """The calls of a namespace, for a face. Where nobody is told they are the broker's own."""

    def calls(namespace: str) -> AsyncBroker:
        found = service.calls(namespace)
        wanted = service.page is not None or service.telemetry is not None
        return ToldCalls(found, Telling(service, namespace)) if wanted and is_here(found) else found

    return calls


class Telling:
    """Who is told of the calls of one namespace."""

    def __init__(self, service: Service, namespace: str) -> None:
        self._service = service
        self._namespace = namespace

    def now(self) -> int:
        telemetry = self._service.telemetry
        return 0 if telemetry is None else telemetry.now()

    @contextmanager
    def call(self, verb: str, topics: Sequence[str], count: int, headers: Iterable[Headers]) -> Iterator[None]:
        """Something is done to messages; one that fails is no measure of how fast we are."""
        service, begun = self._service, perf_counter()
        if service.telemetry is None:
            yield
        else:
            with service.telemetry.calling(verb, self._namespace, topics, count, headers):
                yield
        if service.page is not None:
            kind = "publish" if verb == "publish" else "settle"
            service.page.requests.calls[kind].add(perf_counter() - begun)

    def handed(self, group: str, found: Handed | HandedTable, since: int) -> None:
        delivered.waited(self._service, [found])
        if self._service.telemetry is not None:
            self._service.telemetry.handed(self._namespace, group, [found], since)


class ToldCalls(AsyncBroker):
    """Those calls of a broker that faces make and that do something to messages; all others are as they were."""

    def __init__(self, calls: AsyncBroker, telling: Telling) -> None:
        self._sync = behind(calls)
        self._telling = telling

    async def publish_many(self, topic: str | None, messages: Any, **more: Any) -> Any:
        headers = (one.headers for one in messages if isinstance(one, Draft) and one.headers)
        with self._telling.call("publish", [topic] if topic else [], len(messages), headers):
            return await super().publish_many(topic, messages, **more)

    async def publish_arrow(self, topic: str, table: Any, **more: Any) -> Any:
        with self._telling.call("publish", [topic], table.num_rows, ()):
            return await super().publish_arrow(topic, table, **more)

    async def receive(self, topic: Any, limit: int = 1, *, group: str = "default", **more: Any) -> Any:
        since = self._telling.now()
        found = await super().receive(topic, limit, group=group, **more)
        if found:
            self._telling.handed(group, _handed(found), since)
        return found

    async def receive_arrow(self, topic: Any, limit: int = 1000, *, group: str = "default", **more: Any) -> Any:
        since = self._telling.now()
        lease = await super().receive_arrow(topic, limit, group=group, **more)
        if not lease:
            return lease
        self._telling.handed(group, HandedTable(topic, "", 0, 0, lease.table), since)
        return ToldLease(lease, self._telling, topic)

    def supply(self, topic: Any, *, group: str = "default", **more: Any) -> Any:
        return ToldSupply(super().supply(topic, group=group, **more), self._telling, group)

    async def ack(self, messages: Any, **more: Any) -> Any:
        with self._settling("ack", messages):
            return await super().ack(messages, **more)

    async def nack(self, messages: Any, *given: Any, **more: Any) -> Any:
        with self._settling("nack", messages):
            return await super().nack(messages, *given, **more)

    async def reject(self, messages: Any, *given: Any, **more: Any) -> Any:
        with self._settling("reject", messages):
            return await super().reject(messages, *given, **more)

    async def release(self, messages: Any) -> Any:
        with self._settling("release", messages):
            return await super().release(messages)

    def _settling(self, verb: str, messages: Sequence[AsyncMessage]) -> Any:
        topics = list(dict.fromkeys(message.topic for message in messages))
        return self._telling.call(verb, topics, len(messages), (message.headers for message in messages))


class ToldSupply:
    """A `mqueue.broker.consume.Supply` of an event loop."""

    def __init__(self, supply: Supply[AsyncMessage], telling: Telling, group: str) -> None:
        self._supply = supply
        self._telling = telling
        self._group = group
        self.stop = supply.stop
        self.give_back = supply.give_back
        self.take = supply.take

    @property
    def stopped(self) -> bool:
        return self._supply.stopped

    async def take_async(self, limit: int) -> list[AsyncMessage]:
        since = self._telling.now()
        found = await self._supply.take_async(limit)
        if found:
            self._telling.handed(self._group, _handed(found), since)
        return found


class ToldLease(AsyncArrowLease):
    def __init__(self, lease: AsyncArrowLease, telling: Telling, topic: str) -> None:
        self._sync = behind(lease)
        self._telling = telling
        self._topic = topic

    async def ack(self, **more: Any) -> Any:
        with self._telling.call("ack", [self._topic], 0, ()):
            return await super().ack(**more)

    async def nack(self, *given: Any, **more: Any) -> Any:
        with self._telling.call("nack", [self._topic], 0, ()):
            return await super().nack(*given, **more)

    async def reject(self, *given: Any, **more: Any) -> Any:
        with self._telling.call("reject", [self._topic], 0, ()):
            return await super().reject(*given, **more)

    async def release(self, **more: Any) -> Any:
        with self._telling.call("release", [self._topic], 0, ()):
            return await super().release(**more)

    async def extend(self, *given: Any, **more: Any) -> Any:
        with self._telling.call("extend", [self._topic], 0, ()):
            return await super().extend(*given, **more)


def _handed(found: list[AsyncMessage]) -> Handed:
    return Handed(found[0].topic, "", 0, 0, found)
