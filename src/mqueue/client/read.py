"""Looking without disturbing, from afar: scans page by page, single messages, what became of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from datetime import datetime
from typing import Any, Generic, TypeVar

import pyarrow as pa
from msgspec import Struct

from mqueue.broker.bounds import PartitionOffsets
from mqueue.broker.explain import Explanation, Trace, TraceEvent
from mqueue.broker.replay import Position, check_position, check_window
from mqueue.client import incoming
from mqueue.client.home import Home
from mqueue.client.receive import ALL_COLUMNS
from mqueue.client.window import ARROW, Window, message_path, path_of
from mqueue.model.errors import NotFound
from mqueue.model.names import check_name
from mqueue.model.times import Instant, instant, to_datetime
from mqueue.wire.json import MessagesOut
from mqueue.wire.json_manage import OffsetsOut
from mqueue.wire.stream import read_table

T = TypeVar("T")

PAGE = 1000
PAGE_ARROW = 10_000


class Pages(AsyncIterator[T], Generic[T]):
    """What comes a page at a time, one by one."""

    def __init__(self, pages: AsyncIterator[list[T]]) -> None:
        self._pages = pages
        self._left: list[T] = []

    async def __anext__(self) -> T:
        while not self._left:
            self._left = (await self.page())[::-1]
        return self._left.pop()

    async def page(self) -> list[T]:
        """All that came with the next answer. Raises StopAsyncIteration at the end."""
        return await anext(self._pages)

    async def aclose(self) -> None:
        """Nothing more is asked for, also not what was on its way."""
        if isinstance(self._pages, AsyncGenerator):
            await self._pages.aclose()


def covered(
    start: Position | None, stop: Position | None, partition: int | None, include_deleted: bool = False
) -> dict[str, Any]:
    """The query of a scan."""
    if partition is not None and (type(partition) is not int or partition < 0):
        raise NotFound(f"a topic has partitions from 0 on, not {partition!r:.80}")
    check_window(start, stop)
    deleted = "true" if include_deleted else None
    return {**_bound("start", start), **_bound("stop", stop), "partition": partition, "include_deleted": deleted}


def _bound(name: str, position: Position | None) -> dict[str, Any]:
    if position is None:
        return {}
    check_position(position, name)
    if isinstance(position, int):
        return {f"{name}_offset": position}
    if position in ("earliest", "latest"):
        return {f"{name}_time": position}
    return {f"{name}_time": instant(position, name)}


async def scan(home: Home, topic: str, query: dict[str, Any]) -> AsyncIterator[list[Any]]:
    window = home.window
    if window.address.encoding == "arrow":
        async for table in _tables(window, topic, {**query, **ALL_COLUMNS}):
            yield incoming.messages_of_table(home, None, window.namespace, topic, table, home.kind)
        return
    cursor: str | None = None
    while True:
        asked = {**query, "limit": PAGE, "cursor": cursor}
        found = await window.ask(MessagesOut, "GET", _log(topic), query=asked)
        if found.messages:
            yield incoming.messages(home, None, found.messages, home.kind)
        cursor = found.next
        if cursor is None:
            return


async def scan_tables(window: Window, topic: str, query: dict[str, Any]) -> AsyncIterator[list[pa.RecordBatch]]:
    async for table in _tables(window, topic, query):
        yield table.to_batches()


async def _tables(window: Window, topic: str, query: dict[str, Any]) -> AsyncIterator[pa.Table]:
    cursor: str | None = None
    while True:
        asked = {**query, "limit": PAGE_ARROW, "cursor": cursor}
        reply = await window.send("GET", _log(topic), query=asked, accept=ARROW)
        table = read_table(reply.body)
        if table.num_rows:
            yield table
        cursor = reply.headers.get("X-Mqueue-Next")
        if cursor is None:
            return


def _log(topic: str) -> str:
    return path_of("topics", check_name(topic, "topic"), "messages")


async def offsets(window: Window, topic: str, at: Instant | None) -> list[PartitionOffsets]:
    query = {"time": None if at is None else instant(at, "at")}
    told = await window.ask(OffsetsOut, "GET", path_of("topics", check_name(topic, "topic"), "offsets"), query=query)
    made_at = None if told.made_at is None else to_datetime(instant(told.made_at))
    return [
        PartitionOffsets(each.partition, each.first, each.next, each.at, each.floor, made_at)
        for each in told.partitions
    ]


class _Event(Struct):
    time: datetime
    kind: str
    detail: str


class _Trace(Struct):
    id: str
    topic: str
    events: list[_Event]


class _Explanation(Struct):
    code: str
    sentence: str
    until: datetime | None = None
    by: str | None = None
    ahead: int = 0


async def trace(window: Window, id: int) -> Trace:
    told = await window.ask(_Trace, "GET", message_path(id, "trace"))
    events = tuple(TraceEvent(event.time, event.kind, event.detail) for event in told.events)
    return Trace(int(told.id), told.topic, events)


async def explain(window: Window, id: int, group: str) -> Explanation:
    told = await window.ask(_Explanation, "GET", message_path(id, "explain"), query={"group": group})
    return Explanation(told.code, told.sentence, told.until, told.by, told.ahead)
