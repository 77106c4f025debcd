"""The walk of a receive call of a client: a request, what it gave, and the lease that holds it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pyarrow as pa

from mqueue.broker import deliver
from mqueue.broker.tables import SCHEMA
from mqueue.client import incoming
from mqueue.client.envelope import Held, Home
from mqueue.client.holding import Holdings
from mqueue.client.line import Reply
from mqueue.client.window import ARROW, Window, parsed, path_of
from mqueue.heart.crew import Seat
from mqueue.model.names import check_name
from mqueue.model.times import Duration
from mqueue.wire.json import LeaseOut, LeasesOut, ReceiveIn, ReceiveTopicsIn
from mqueue.wire.stream import read_table

M = TypeVar("M")

ALL_COLUMNS = {"columns": "all"}
"""Asks for the columns that messages have and tables are spared."""


def asked(
    limit: int,
    group: str,
    wait: Duration | None,
    visibility: Duration | None,
    mode: str = "at_least_once",
    seat: Seat | None = None,
) -> tuple[ReceiveIn, int]:
    """The body of a receive, and for how many milliseconds it may wait."""
    deliver.check_receive(limit, mode)
    lasting = None if visibility is None else f"{deliver.visibility_ms(visibility)}ms"
    wait_ms = deliver.wait_ms(wait)
    check_name(group, "group")
    member, generation = seat or (None, None)
    told = ReceiveIn(group, limit, f"{wait_ms}ms" if wait_ms else None, lasting, mode, member, generation)
    return told, wait_ms


async def receive(
    home: Home,
    holdings: Holdings,
    topics: list[str],
    told: ReceiveIn,
    wait_ms: int,
    kind: Callable[..., M],
    stopped: asyncio.Event | None = None,
) -> list[M]:
    window = home.window
    if len(topics) == 1 and window.address.encoding == "arrow":
        reply = await _table(window, topics[0], told, wait_ms, stopped, ALL_COLUMNS)
        table, lease = _leased(window, holdings, reply)
        return incoming.messages_of_table(home, lease, window.namespace, topics[0], table, kind)
    if len(topics) == 1:
        reply = await window.send("POST", _path(topics[0]), told, wait_ms=wait_ms, stopped=stopped)
        given = [parsed(LeaseOut, reply)]
    else:
        several = ReceiveTopicsIn(told.group, told.limit, told.wait, told.visibility, told.mode, topics=topics)
        reply = await window.send("POST", path_of("receive"), several, wait_ms=wait_ms, stopped=stopped)
        given = parsed(LeasesOut, reply).leases
    found: list[M] = []
    for one in given:
        lease = _held(window, holdings, one.lease, len(one.messages), reply, one.remaining_ms)
        found += incoming.messages(home, lease, one.messages, kind)
    return found


async def receive_table(
    window: Window, holdings: Holdings, topic: str, told: ReceiveIn, wait_ms: int
) -> tuple[pa.Table, Held | None]:
    reply = await _table(window, topic, told, wait_ms, None, None)
    return _leased(window, holdings, reply)


async def _table(
    window: Window,
    topic: str,
    told: ReceiveIn,
    wait_ms: int,
    stopped: asyncio.Event | None,
    query: Mapping[str, Any] | None,
) -> Reply:
    return await window.send("POST", _path(topic), told, query, accept=ARROW, wait_ms=wait_ms, stopped=stopped)


def _leased(window: Window, holdings: Holdings, reply: Reply) -> tuple[pa.Table, Held | None]:
    table = read_table(reply.body) if reply.body else SCHEMA.empty_table()
    remaining_ms = int(reply.headers.get("X-Mqueue-Remaining-Ms", 0))
    token = reply.headers.get("X-Mqueue-Lease")
    return table, _held(window, holdings, token, table.num_rows, reply, remaining_ms)


def _held(
    window: Window, holdings: Holdings, token: str | None, count: int, reply: Reply, remaining_ms: int
) -> Held | None:
    if not token:  # at most once: nothing has to be settled
        return Held("", count, 0, 0, 0) if count else None
    return holdings.take(window, token, count, reply.sent_at, remaining_ms)


def _path(topic: str) -> str:
    return path_of("topics", topic, "receive")
