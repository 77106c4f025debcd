"""Messages that are pushed: handed out as they come, never more than `prefetch` of them unsettled.

What a consumer holds is counted where the truth is, in its leases; a settle call wakes the stream it made room in. What
is unsettled when the consumer leaves is given back. Does not know how the messages travel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from msgspec.structs import replace

from mqueue.broker import remote
from mqueue.broker.holding import held
from mqueue.model.limits import WAIT_MS_MAX
from mqueue.server.http import delivered
from mqueue.server.http.call import Call

T = TypeVar("T")

_LOOK_SECONDS = 1.0
"""How often it is looked at what ran out by itself."""


class Pushing:
    """One consumer that is pushed to. `async with` gives back what is left in the end."""

    def __init__(self, call: Call, wanted: remote.Wanted) -> None:
        self._call = call
        self._wanted = wanted
        self._prefetch = wanted.limit
        self._room = asyncio.Event()
        self._leases: dict[str, list[int]] = {}
        """The ids that were handed out under each token."""
        self._tokens: dict[int, str] = {}
        """The token that each id was handed out under last."""

    async def __aenter__(self) -> Pushing:
        return self

    async def __aexit__(self, *_: object) -> None:
        tokens = list(self._leases)
        for token in tokens:
            self._forget(token)
        await asyncio.shield(remote.give_back(self._call.behind, tokens))

    async def next(self, patience: float) -> list[remote.Handed] | None:
        """What is there for the consumer; [] if that is nothing within `patience` seconds; None: it is over.

        Raises if the consumer may not be here any more: keys are revoked and tokens end while it listens.
        """
        self._call.demand_again("receive")
        deadline = asyncio.get_running_loop().time() + patience
        while (room := self._free()) <= 0:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return []
            if not await self._wait_for_room(min(left, _LOOK_SECONDS)):
                return None
        wait = min(patience, WAIT_MS_MAX / 1000)
        since = delivered.begun(self._call)
        asking = remote.receive(self._call.behind, self._asking(room, wait))
        handed = await unless_over(self._call, asking, self._give_back)
        if handed:
            delivered.tell(self._call, self._wanted.group, handed, since)
        for lease in handed or ():
            if lease.token:
                self._remember(lease.token, [message.id for message in lease.messages])
        if handed and self._leases:  # else they are settled already, and would be lost
            self._call.demand_again("receive")
        return handed

    async def _give_back(self, handed: list[remote.Handed]) -> None:
        await remote.give_back(self._call.behind, [lease.token for lease in handed if lease.token])

    def by_token(self, ids: list[int]) -> dict[str, list[int]]:
        """Ids by the lease that they are held under; what this consumer does not hold is under no token ("")."""
        found: dict[str, list[int]] = {}
        for id in ids:
            found.setdefault(self._tokens.get(id, ""), []).append(id)
        return found

    def _remember(self, token: str, ids: list[int]) -> None:
        self._leases[token] = ids
        self._tokens.update(dict.fromkeys(ids, token))
        self._call.service.streams.add(token, self._room)

    def _forget(self, token: str) -> None:
        self._call.service.streams.drop(token)
        for id in self._leases.pop(token):
            if self._tokens.get(id) == token:
                del self._tokens[id]

    def _free(self) -> int:
        """How many more the consumer may have."""
        taken = 0
        for token in list(self._leases):
            count = held(self._call.behind, token)
            if not count:
                self._forget(token)
            taken += count
        return self._prefetch - taken

    async def _wait_for_room(self, seconds: float) -> bool:
        self._room.clear()
        return await unless_over(self._call, _within(self._room, seconds)) is not None

    def _asking(self, limit: int, wait: float) -> remote.Wanted:
        return replace(self._wanted, limit=limit, wait=wait)


async def _within(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return True


async def unless_over(
    call: Call, work: Coroutine[Any, Any, T], undo: Callable[[T], Coroutine[Any, Any, None]] | None = None
) -> T | None:
    """What some work gives, or None if the caller leaves or the server stops before: then it is cancelled.

    `undo`: what to do with what it gave in the very moment that the caller left.
    """
    returned = False
    task = asyncio.ensure_future(work)
    ends = [asyncio.ensure_future(event.wait()) for event in (call.service.stopping, call.gone) if event is not None]
    try:
        await asyncio.wait([task, *ends], return_when=asyncio.FIRST_COMPLETED)
        returned = task.done()
        return task.result() if returned else None
    finally:
        for one in (task, *ends):
            one.cancel()
        try:
            await asyncio.gather(task, *ends, return_exceptions=True)
        except asyncio.CancelledError:  # the caller left just now, and nobody takes what was to be returned
            returned = False
            raise
        finally:
            gave = task.done() and not task.cancelled() and task.exception() is None
            if undo is not None and gave and not returned:
                await asyncio.shield(undo(task.result()))
