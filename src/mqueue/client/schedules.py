"""The schedules of a topic of a server, as users of a client see them."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from mqueue.broker.schedules import Schedule, check_payload, dates_of, misfire_of, ttl_of
from mqueue.client import outgoing
from mqueue.client.incoming import receipts
from mqueue.client.window import Window, path_of
from mqueue.model.errors import BadSetting
from mqueue.model.limits import SCHEDULES_PAGE_MAX
from mqueue.model.message import Draft, Receipt
from mqueue.model.names import check_name
from mqueue.model.times import Duration, duration_ms
from mqueue.wire.json import PublishOut
from mqueue.wire.json_schedules import ScheduleChange, ScheduleIn, ScheduleOut, SchedulesOut

_PATH = path_of("schedules")


class AsyncClientSchedules:
    """The schedules of a topic, or of all topics of a namespace: these can be listed."""

    def __init__(self, window: Window, topic: str | None) -> None:
        self._window = window
        self._topic = topic if topic is None else check_name(topic, "topic")

    async def add(
        self,
        payload: Any,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str = "UTC",
        name: str | None = None,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        priority: int | str | None = None,
        ttl: Duration | None = None,
        misfire: str = "once",
    ) -> Schedule:
        """Publish `payload` whenever `cron` says, or `every` so often. Conflict if another of that name is there.

        `misfire`: of what was missed the last one is published ("once"), none ("skip"), or each ("all", the last 100).
        """
        dates_of(cron, every, tz)
        ttl_ms = ttl_of(ttl)
        draft = Draft(payload, key=key, headers=headers, priority=priority, ttl=ttl)
        columns = outgoing.rows([draft])
        check_payload(columns.payload[0])
        [message] = outgoing.messages([draft], columns, named=False)
        message.ttl = None if ttl_ms is None else f"{ttl_ms}ms"
        told = ScheduleIn(
            self._named,
            message,
            None if name is None else check_name(name, "schedule"),
            cron,
            _every(every),
            tz,
            misfire_of(misfire),
        )
        return _made(await self._window.ask(ScheduleOut, "POST", _PATH, told, repeatable=True))

    async def all(self) -> list[Schedule]:
        """By topic, then by name."""
        found: list[Schedule] = []
        query: dict[str, Any] = {"topic": self._topic, "limit": SCHEDULES_PAGE_MAX}
        while True:
            told = await self._window.ask(SchedulesOut, "GET", _PATH, query=query)
            found += map(_made, told.schedules)
            if told.next is None:
                return found
            query["after"] = told.next

    async def get(self, name: str) -> Schedule:
        return _made(await self._window.ask(ScheduleOut, "GET", _one(name), query=self._query))

    async def pause(self, name: str) -> Schedule:
        """Publish nothing until `resume`. What would have come meanwhile does not count as missed."""
        return await self.change(name, paused=True)

    async def resume(self, name: str) -> Schedule:
        """Go on with the next occurrence."""
        return await self.change(name, paused=False)

    async def change(
        self,
        name: str,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str | None = None,
        misfire: str | None = None,
        paused: bool | None = None,
    ) -> Schedule:
        """Give a schedule other times, or another rule for what was missed, pause or resume it; the rest stays."""
        if cron is not None or every is not None:
            dates_of(cron, every, tz or "UTC")
        told = ScheduleChange(paused, cron, _every(every), tz, None if misfire is None else misfire_of(misfire))
        return _made(await self._window.ask(ScheduleOut, "PATCH", _one(name), told, self._query))

    async def delete(self, name: str) -> None:
        """What was published already stays."""
        await self._window.tell("DELETE", _one(name), query=self._query)

    async def run(self, name: str) -> Receipt:
        """Publish an occurrence now, besides those that come by themselves."""
        told = await self._window.ask(PublishOut, "POST", f"{_one(name)}/run", query=self._query, repeatable=False)
        return receipts(told.receipts, told.durability)[0]

    @property
    def _named(self) -> str:
        if self._topic is None:
            raise BadSetting("no topic is named: schedules are added to a topic, and found by topic and name")
        return self._topic

    @property
    def _query(self) -> dict[str, str]:
        return {"topic": self._named}


def _one(name: str) -> str:
    return path_of("schedules", check_name(name, "schedule"))


def _every(every: Duration | None) -> str | None:
    return None if every is None else f"{duration_ms(every, 'every')}ms"


def _made(told: ScheduleOut) -> Schedule:
    headers: dict[str, str | bytes] = dict(told.headers or {})
    for name, value in (told.headers_base64 or {}).items():
        headers[name] = b64decode(value)
    return Schedule(
        told.name,
        told.topic,
        told.cron,
        told.every,
        told.tz,
        told.misfire,
        told.paused,
        _time(told.next_at),
        _time(told.last_at),
        None if told.last_id is None else int(told.last_id),
        told.count,
        datetime.fromisoformat(told.made_at),
        _bytes(told.payload, told.payload_base64) or b"",
        _bytes(told.key, told.key_base64),
        headers,
        told.priority,
        told.ttl,
    )


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _bytes(text: str | None, coded: str | None) -> bytes | None:
    if coded is not None:
        return b64decode(coded)
    return None if text is None else text.encode()
