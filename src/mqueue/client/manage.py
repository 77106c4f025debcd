"""Topics, groups, schedules, cursors and transactions of a server, from afar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from msgspec import Struct

from mqueue.broker.cursors import Cursor, lasting_ms
from mqueue.broker.replay import Position, check_position
from mqueue.broker.transact import StagedPart, Transaction
from mqueue.client import outgoing
from mqueue.client.window import Window, message_path, parsed, path_of
from mqueue.model.errors import BadTime, Refused
from mqueue.model.names import check_name, check_part, check_transaction
from mqueue.model.settings import check_values
from mqueue.model.times import Duration, Instant, duration_ms, instant, rfc3339
from mqueue.wire.json_manage import (
    CommitIn,
    CursorIn,
    CursorOut,
    CursorsOut,
    GroupIn,
    GroupsOut,
    RescheduleIn,
    SeekIn,
    StagedOut,
    TopicsOut,
    TransactionOut,
)


class _Topic(Struct):
    settings: dict[str, Any]


async def topics(window: Window) -> list[str]:
    found: list[str] = []
    after: str | None = None
    while True:
        told = await window.ask(TopicsOut, "GET", path_of("topics"), query={"after": after})
        found += told.topics
        after = told.next
        if after is None:
            return found


async def groups(window: Window, topic: str) -> list[str]:
    found: list[str] = []
    after: str | None = None
    while True:
        told = await window.ask(GroupsOut, "GET", topic_path(topic, "groups"), query={"after": after})
        found += [one.group for one in told.groups]
        after = told.next
        if after is None:
            return found


async def settings(window: Window, topic: str) -> dict[str, Any]:
    return (await window.ask(_Topic, "GET", topic_path(topic))).settings


async def configure(window: Window, topic: str, values: Mapping[str, Any]) -> dict[str, Any]:
    check_values(values)
    told = {name: _plain(value) for name, value in values.items()}
    return (await window.ask(_Topic, "PUT", topic_path(topic), told)).settings


def _plain(value: Any) -> Any:
    return f"{duration_ms(value)}ms" if isinstance(value, timedelta) else value


async def create_group(window: Window, topic: str, group: str, start: Position, assigned: bool) -> None:
    await window.send("PUT", group_path(topic, group), GroupIn(_position(start), assigned), repeatable=False)


async def delete_group(window: Window, topic: str, group: str) -> None:
    await window.tell("DELETE", group_path(topic, group))


async def seek(window: Window, topic: str, group: str, to: Position) -> None:
    await window.tell("POST", group_path(topic, group, "seek"), SeekIn(_position(to)))


def _position(position: Position) -> int | str:
    check_position(position, "to")
    if isinstance(position, int) or (isinstance(position, str) and position in ("earliest", "latest")):
        return position
    return rfc3339(instant(position, "to"))


async def reschedule(window: Window, id: int, deliver_at: Instant | None, delay: Duration | None) -> None:
    if (deliver_at is None) == (delay is None):
        raise BadTime("reschedule takes deliver_at or delay, one of them")
    told = RescheduleIn(
        None if deliver_at is None else instant(deliver_at, "deliver_at"),
        None if delay is None else f"{duration_ms(delay, 'delay')}ms",
    )
    await window.tell("PATCH", message_path(id), told)


async def set_cursor(window: Window, topic: str, name: str, offsets: Mapping[int, int] | None, ttl: Duration) -> Cursor:
    told = CursorIn(_places(offsets), f"{lasting_ms(ttl)}ms")
    return _cursor(await window.ask(CursorOut, "PUT", _cursor_path(topic, name), told))


async def cursors(window: Window, topic: str) -> list[Cursor]:
    told = await window.ask(CursorsOut, "GET", topic_path(topic, "cursors"))
    return [_cursor(one) for one in told.cursors]


async def delete_cursor(window: Window, topic: str, name: str) -> None:
    await window.tell("DELETE", _cursor_path(topic, name))


def _places(offsets: Any) -> dict[int, int] | None:
    if offsets is None:
        return None
    if not isinstance(offsets, Mapping) or {type(n) for place in offsets.items() for n in place} - {int}:
        raise Refused(f"offsets {offsets!r:.80}; it takes a mapping of partitions to offsets", code="bad_position")
    return dict(offsets)


def _cursor(told: CursorOut) -> Cursor:
    times = (_time(at) for at in (told.expires_at, told.made_at, told.set_at))
    return Cursor(told.name, told.topic, told.offsets, *times)


async def stage(
    window: Window,
    transaction: str,
    topic: str,
    messages: pa.Table | pa.RecordBatch | Sequence[Any],
    part: str,
    ttl: Duration,
) -> StagedPart:
    """It may be repeated: the same part takes the place of the first."""
    check_transaction(transaction)
    query = {"topic": check_name(topic, "topic"), "part": check_part(part), "ttl": f"{lasting_ms(ttl)}ms"}
    path = _transaction(transaction, "stage")
    if isinstance(messages, pa.Table | pa.RecordBatch):
        reply = await window.send("POST", path, query=query, arrow=outgoing.stream(messages), repeatable=True)
    else:
        items = list(messages)
        named = outgoing.topic_of(topic, items)
        body = outgoing.body(items, outgoing.rows(items), named, None)
        reply = await window.send("POST", path, body, query, repeatable=True)
    told = parsed(StagedOut, reply)
    return StagedPart(told.id, told.part, told.messages)


async def commit(window: Window, transaction: str, parts: list[str] | None) -> Transaction:
    """Once, however often it is asked for."""
    body = None if parts is None else CommitIn(parts)
    path = _transaction(transaction, "commit")
    return _shown(await window.ask(TransactionOut, "POST", path, body, repeatable=True))


async def abort(window: Window, transaction: str) -> Transaction:
    """Once, however often it is asked for."""
    return _shown(await window.ask(TransactionOut, "POST", _transaction(transaction, "abort"), repeatable=True))


async def forget(window: Window, transaction: str) -> None:
    """Once more is the same."""
    await window.send("DELETE", _transaction(transaction), repeatable=True)


async def look_up(window: Window, transaction: str) -> Transaction:
    return _shown(await window.ask(TransactionOut, "GET", _transaction(transaction)))


def _shown(told: TransactionOut) -> Transaction:
    return Transaction(
        id=told.id,
        state=told.state,
        parts=told.parts,
        messages=told.messages,
        expires_at=_time(told.expires_at),
        topics=tuple(told.topics),
    )


def topic_path(topic: str, *names: str) -> str:
    return path_of("topics", check_name(topic, "topic"), *names)


def group_path(topic: str, group: str, *names: str) -> str:
    return topic_path(topic, "groups", check_name(group, "group"), *names)


def _cursor_path(topic: str, name: str) -> str:
    return topic_path(topic, "cursors", check_name(name, "cursor"))


def _transaction(transaction: str, *verb: str) -> str:
    return path_of("transactions", check_transaction(transaction), *verb)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
