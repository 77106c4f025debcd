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
        table, lease = await _table(window, holdings, topics[0], told, wait_ms, stopped, ALL_COLUMNS)
        return incoming.messages_of_table(home, lease, window.namespace, topics[0], table, kind)
    if len(topics) == 1:
        path, body, read = _path(topics[0]), told, _leases_of_one
    else:
        body = ReceiveTopicsIn(told.group, told.limit, told.wait, told.visibility, told.mode, topics=topics)
        path, read = path_of("receive"), _leases_of_several

    def given(reply: Reply) -> list[tuple[Held | None, LeaseOut]]:
        return [
            (_held(window, holdings, one.lease, len(one.messages), reply, one.remaining_ms), one) for one in read(reply)
        ]

    def untaken(reply: Reply) -> None:
        holdings.let_go_untaken([lease for lease, _ in given(reply)])

    reply = await window.send("POST", path, body, wait_ms=wait_ms, stopped=stopped, untaken=untaken)
    found: list[M] = []
    for lease, one in given(reply):
        found += incoming.messages(home, lease, one.messages, kind)
    return found


async def receive_table(
    window: Window, holdings: Holdings, topic: str, told: ReceiveIn, wait_ms: int
) -> tuple[pa.Table, Held | None]:
    return await _table(window, holdings, topic, told, wait_ms, None, None)


async def _table(
    window: Window,
    holdings: Holdings,
    topic: str,
    told: ReceiveIn,
    wait_ms: int,
    stopped: asyncio.Event | None,
    query: Mapping[str, Any] | None,
) -> tuple[pa.Table, Held | None]:
    def untaken(reply: Reply) -> None:
        holdings.let_go_untaken([_leased(window, holdings, reply)[1]])

    reply = await window.send(
        "POST", _path(topic), told, query, accept=ARROW, wait_ms=wait_ms, stopped=stopped, untaken=untaken
    )
    return _leased(window, holdings, reply)


def _leases_of_one(reply: Reply) -> list[LeaseOut]:
    return [parsed(LeaseOut, reply)]


def _leases_of_several(reply: Reply) -> list[LeaseOut]:
    return parsed(LeasesOut, reply).leases


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
