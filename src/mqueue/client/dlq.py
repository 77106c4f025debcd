"""The dead-letter queue of a topic of a server, as users of a client see it."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

from mqueue.broker.deliver import check_receive
from mqueue.broker.message import AsyncDeadMessage
from mqueue.broker.redrive import Deletion, Redrive
from mqueue.broker.sorting import DeadErrors
from mqueue.client import incoming
from mqueue.client.home import Home
from mqueue.client.window import path_of
from mqueue.model.errors import Refused
from mqueue.model.limits import RECEIVE_LIMIT_MAX
from mqueue.model.names import check_name
from mqueue.policy.filter import compile_filter
from mqueue.wire.json_manage import (
    DeadDeletedOut,
    DeadDeleteIn,
    DeadErrorOut,
    DeadErrorsOut,
    DeadsOut,
    RedriveIn,
    RedriveOut,
)

REDRIVE_SECONDS = 5


class AsyncClientDlq:
    """The dead-letter queue of a topic."""

    def __init__(self, home: Home, topic: str) -> None:
        self._home = home
        self._topic = topic

    async def messages(
        self, limit: int = 100, *, filter: str | Callable[[AsyncDeadMessage], bool] | None = None
    ) -> list[AsyncDeadMessage]:
        """The dead that nobody has dealt with: not acked by group `default` of the dead-letter queue, not redriven."""
        check_receive(limit, "at_least_once")
        if callable(filter):  # it cannot travel: the messages come to it
            found = await self._page(RECEIVE_LIMIT_MAX, None)
            return [message for message in self._made(found) if filter(message)][:limit]
        return self._made(await self._page(limit, _checked(filter)))

    async def redrive(
        self,
        *,
        filter: str | Callable[[AsyncDeadMessage], bool] | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        rate: float | None = None,
    ) -> Redrive:
        """Make what is dead now ready again, each in the group that it died in. What dies again stays dead."""
        _check_limit(limit)
        _check_travels(filter)
        if rate is None or dry_run:
            return await self._redrive(RedriveIn(_checked(filter), limit, dry_run))
        matched = redriven = 0
        while True:  # as much as fits into a request that does not take long
            step = _step(rate, None if limit is None else limit - matched)
            done = await self._redrive(RedriveIn(_checked(filter), step, dry_run, rate))
            matched, redriven = matched + done.matched, redriven + done.redriven
            if done.redriven < step or matched == limit:
                return Redrive(matched, redriven, dry_run)

    async def delete(
        self,
        *,
        filter: str | Callable[[AsyncDeadMessage], bool] | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> Deletion:
        """Be rid of what is dead now: it is listed no more, and cannot be redriven. The originals stay as they are."""
        _check_limit(limit)
        _check_travels(filter)
        told = DeadDeleteIn(_checked(filter), limit, dry_run)
        done = await self._home.window.ask(DeadDeletedOut, "POST", f"{self._path}/delete", told)
        return Deletion(done.matched, done.deleted, done.dry_run)

    async def errors(self) -> list[DeadErrors]:
        """What the dead died of, the most frequent first. Errors that differ in numbers, ids or times are one."""
        found = await self._home.window.ask(DeadErrorsOut, "GET", f"{self._path}/errors")
        return [_errors(entry) for entry in found.errors]

    async def _redrive(self, told: RedriveIn) -> Redrive:
        done = await self._home.window.ask(RedriveOut, "POST", f"{self._path}/redrive", told)
        return Redrive(done.matched, done.redriven, done.dry_run)

    async def _count(self) -> int:
        return (await self._page(1, None)).count

    @property
    def _path(self) -> str:
        return path_of("topics", check_name(self._topic, "topic"), "dlq")

    async def _page(self, limit: int, filter: str | None) -> DeadsOut:
        return await self._home.window.ask(DeadsOut, "GET", self._path, query={"limit": limit, "filter": filter})

    def _made(self, found: DeadsOut) -> list[AsyncDeadMessage]:
        return incoming.messages(self._home, None, found.messages, self._home.dead_kind)


def _step(rate: Any, left: int | None) -> int:
    """How many messages of a slow redrive go into one request."""
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < math.inf:
        raise Refused(f"rate {rate!r:.80}; it takes messages a second, more than 0", code="bad_rate")
    step = max(1, int(min(rate, RECEIVE_LIMIT_MAX) * REDRIVE_SECONDS))
    return step if left is None else min(step, left)


def _errors(told: DeadErrorOut) -> DeadErrors:
    return DeadErrors(
        told.fingerprint,
        told.reason,
        told.error,
        told.transient,
        told.count,
        datetime.fromisoformat(told.first_at),
        datetime.fromisoformat(told.last_at),
        told.groups,
        list(map(int, told.ids)),
    )


def _check_limit(limit: Any) -> None:
    if limit is not None and (type(limit) is not int or limit < 1):
        raise Refused(f"limit {limit!r:.80}; it takes 1 or more", code="bad_limit")


def _check_travels(filter: object) -> None:
    if callable(filter):
        raise Refused("filter is a function, which cannot travel to the server; it takes text", code="bad_filter")


def _checked(filter: Any) -> str | None:
    if filter is None:
        return None
    if not isinstance(filter, str):
        raise Refused(f"filter {filter!r:.80}; it takes text or a function", code="bad_filter")
    compile_filter(filter)
    return filter
