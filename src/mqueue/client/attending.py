"""Consuming as a member of an assigned group of a server.

It joins, is heard of in the background, and is told there at once when partitions are to move: what lies at hand of
those and was not begun is given back, what its user has in hand is for him to finish. Should an answer with messages be
lost it joins again: what it was handed without knowing comes back, and comes first. One that was given an id of its own
does not leave at the end: who comes back with it within the session has the same partitions.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import TypeVar

from msgspec import Struct

from mqueue.broker.members import Membership
from mqueue.client import members
from mqueue.client.envelope import Letter
from mqueue.client.home import Home
from mqueue.client.line import PAUSE_SECONDS_MAX
from mqueue.client.source import LOGGER, POLL_SECONDS, RemoteSource
from mqueue.model.errors import Closed, Conflict, Error
from mqueue.model.names import check_name
from mqueue.model.times import Duration

M = TypeVar("M", bound=Letter)

_AGAIN_SECONDS = 0.2
"""A heartbeat that failed is tried again after this, and after longer as long as it fails."""


class Attending(Struct, frozen=True):
    """How to take part: by an id of one's own, or by one that is made."""

    member: str | None


class MemberSource(RemoteSource[M]):
    def __init__(self, home: Home, topic: str, group: str, visibility: Duration | None, attending: Attending) -> None:
        super().__init__(home, topic, group, visibility)
        self._leaves = attending.member is None
        self._id = members.made_id() if attending.member is None else check_name(attending.member, "member")
        self._held: Membership | None = None
        self._at_hand: deque[M] = deque()
        self._failure: Error | None = None
        self._beating = False

    async def take_async(self, limit: int) -> list[M]:
        """One message at a time: those at hand may have to be given back before their turn comes."""
        while not self.stopped:
            if self._failure is not None:
                raise self._failure
            if self._at_hand:
                return [self._at_hand.popleft()]
            found = await super().take_async(limit)
            if not found:
                return []
            self._at_hand.extend(found)
            await self._let_go(self._held.revoked if self._held is not None else ())
        return []

    async def _receive(self, limit: int, bell: asyncio.Event) -> list[M]:
        window, topic = self._home.window, self._topics[0]
        if self._held is None:
            self._held = await members.join(window, topic, self._group, self._id)
            if not self._beating:
                self._beating = True
                self._holdings.line.attend(self._beat())
        try:
            found: list[M] = await self._home.receive(
                topic, limit, self._group, POLL_SECONDS, self._visibility, stopped=bell, member=self._held
            )
        except Conflict as error:
            self._lost(error)
            return []
        except Error as error:
            if error.applied is None:  # it may hold messages that it was never told of, and gets later ones before them
                self._held = None
            raise
        return found

    async def _beat(self) -> None:
        """Be heard of until the end; what it is told is heeded at once."""
        failures = 0
        while not self.stopped and self._failure is None:
            held = self._held
            if held is None:  # the next receive joins again
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            try:
                seen = await members.heartbeat(self._home.window, held, (), held.heartbeat_seconds)
            except Closed:
                return
            except Conflict as error:
                if self._held is held:  # else it has joined again meanwhile, and was told of its own past
                    self._lost(error)
            except Error as error:
                failures += 1
                if failures == 1:
                    LOGGER.warning("member %s is not heard of for now, it is tried again: %s", self._id, error)
                await asyncio.sleep(min(_AGAIN_SECONDS * 2.0 ** min(failures, 8), PAUSE_SECONDS_MAX))
            else:
                failures = 0
                if self._held is held:
                    self._held = seen
                    await self._let_go(seen.revoked)

    def _lost(self, error: Conflict) -> None:
        """Somebody else has its place: that is for the user. It was taken for dead: it joins again."""
        if error.code != "stale_member":
            self._failure = error
            if self._bell is not None:
                self._bell.set()
        else:
            LOGGER.warning("member %s joins again: %s", self._id, error)
            self._held = None
            self._at_hand.clear()  # all of it belongs to others by now

    async def _let_go(self, revoked: Iterable[int]) -> None:
        """Give back what lies at hand of partitions that are to move."""
        moving = set(revoked)
        gone = [message for message in self._at_hand if message.partition in moving] if moving else []
        if not gone:
            return
        self._at_hand = deque(message for message in self._at_hand if message.partition not in moving)
        with suppress(Error):  # else it ends by itself
            await self._home.settle_messages("release", gone)

    def give_back(self) -> None:
        self.stopped = True
        self._at_hand.clear()
        super().give_back()
        if self._leaves and self._held is not None:
            self._holdings.line.farewell(self._leave(self._held))

    async def _leave(self, held: Membership) -> None:
        with suppress(Error):  # else it is dead by itself
            await members.leave_last(self._home.window, held)
