"""What a node owns at one PostgreSQL server: its session, and the virtual shards that it delivers from.

Lives in the loop of the estate; what waits for the server is done by a thread. Nothing is believed without a session:
whoever could not renew it in time forgets everything and begins a new one. Only `beat` is another thread's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4

from mqueue.cluster import survey
from mqueue.cluster.meters import Meters
from mqueue.cluster.plan import Seat
from mqueue.cluster.survey import Owner, Survey
from mqueue.log.postgres import owning
from mqueue.log.postgres.link import Link
from mqueue.model.errors import Error
from mqueue.policy.spread import share

LOGGER = logging.getLogger("mqueue.cluster")
BEAT_SECONDS = 1.0
SEARCH_SECONDS = 0.1
"""So soon it is looked again for a server that did not answer: another may have been promoted. The link knows when it
is too soon."""
_FRESH_SECONDS = 2.0
_PAUSE_SECONDS_MIN = 0.02
REST_SECONDS = 0.05
"""Between two looks, however much there is to be seen."""


class Tenure:
    """`line` is a link for beats that nobody else uses: whatever else is asked may take long. `errand` does something
    in another thread, with `scout`; `want` takes virtual shards over, later; `lose` is told of one that is not ours any
    more, and why; `give` ends the work on some that are to be another's."""

    def __init__(
        self,
        name: str,
        seat: Seat,
        line: Link,
        scout: Link,
        errand: Callable[..., Awaitable[Any]],
        want: Callable[[Iterable[int]], None],
        lose: Callable[[int, str], None],
        give: Callable[[Sequence[int], str], Awaitable[None]],
        meters: Meters,
    ) -> None:
        self._name = name
        self._seat = seat
        self._line = line
        self._scout = scout
        self._errand = errand
        self._want = want
        self._lose = lose
        self._give = give
        self._meters = meters
        self.owner = uuid4()
        """Who we are, for as long as the session goes on."""
        self.owners: dict[int, Owner] = {}
        """As far as we know: who delivers from which of the virtual shards that live here."""
        self._owners_at = 0.0
        """When somebody began to ask for that."""
        self.mine: dict[int, int] = {}
        """The virtual shards that we own, with their epochs; an engine is made when one is needed."""
        self.nodes = 1
        """How many are alive, this one among them."""
        self.closing = False
        self._renewed_at = 0.0
        self._ended: UUID | None = None
        """Whose session has ended, as a beat was told."""
        self._looked_at = 0.0
        self.next_look = BEAT_SECONDS
        """In how many seconds to look again: earlier, if a session seems to end before."""
        self._met_at = 0.0
        """When we were told to look who is alive, and did."""
        self._new: set[int] = set()
        """What we own of which we do not know whether there are topics."""
        self._silent: dict[UUID, tuple[int, float]] = {}
        """Until when others' sessions last, and since when they say so."""
        self._again: set[asyncio.Future[None]] = set()
        self._stirred = asyncio.Event()

    @property
    def others(self) -> bool:
        """Whether other nodes are there, or may be: what we have not looked at for a while is not known."""
        return self.nodes > 1 or time.monotonic() - self._looked_at > _FRESH_SECONDS

    async def meet(self) -> None:
        """Somebody is new, and waits until everybody knows of him."""
        begun = time.monotonic()
        sessions = await self._errand(owning.alive, self._scout)
        self.nodes, self._met_at = max(1, len(sessions)), begun

    def beat(self) -> None:
        """Renew the session, in the thread for that. If it has ended, everything is forgotten with the next `check`."""
        begun, owner, seat = time.monotonic(), self.owner, self._seat
        alive = owning.beat(self._line, owner, seat.node, seat.address, seat.session_ms)
        if not alive:
            self._ended = owner
        elif owner == self.owner:
            self._renewed_at = self._meters.beaten_at = begun

    def look_soon(self) -> None:
        """Something is not where it was."""
        self._stirred.set()

    async def pause(self, seconds: float) -> None:
        """Between two looks: so long, unless somebody says `look_soon`."""
        await asyncio.sleep(min(seconds, REST_SECONDS))
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds - REST_SECONDS)):
                await self._stirred.wait()
        self._stirred.clear()

    async def look(self, since_id: int) -> Survey | None:
        """Look around; None: the session that this was for has ended."""
        owner = self.owner
        found: Survey = await self._errand(survey.look, self._scout, since_id)
        self._looked_at = found.begun
        self.next_look = min(BEAT_SECONDS, max(_PAUSE_SECONDS_MIN, found.next_end + _PAUSE_SECONDS_MIN))
        return found if owner == self.owner else None

    def see(self, owners: dict[int, Owner], begun: float) -> bool:
        """Somebody has looked who owns what; whether that is news, and not older than what is known."""
        if begun < self._owners_at:
            return False
        self.owners, self._owners_at = owners, begun
        return True

    async def _end_stale(self, found: Survey) -> None:
        """A session that lasts far longer than one does, and is not renewed: the clock of the server was set back, or
        another server has another one, and its node died then. Nobody is to wait until that time comes again."""
        longest, before = self._seat.session_ms / 1000, self._silent
        self._silent = {}
        for session in found.alive:
            until, since = before.get(session.owner, (session.until, found.begun))
            since = since if until == session.until else found.begun
            self._silent[session.owner] = session.until, since
            if session.left > 2 * longest and found.begun - since > longest and session.owner != self.owner:
                LOGGER.warning("%s: the session of %s is ended: it is silent", self._name, session.address)
                await self._errand(owning.end, self._scout, session)

    async def settle(self, found: Survey) -> None:
        """See who owns what, give away what is too much, take what should be ours."""
        await self._end_stale(found)
        self.see(found.owners, found.begun)
        if found.begun >= self._met_at:
            self.nodes = max(1, len(found.sessions))
        for vshard in list(self.mine):
            if vshard not in found.owners:
                self._forget(vshard, "it lives at another server now")
            elif found.owners[vshard].owner != self.owner:
                self._forget(vshard, "another node owns it now")
        if not self._seat.address:
            return
        free = [vshard for vshard, owner in found.owners.items() if owner.owner is None]
        strays = [vshard for vshard, owner in found.owners.items() if self._is_stray(vshard, owner)]
        sharers = sorted(session for session, address in found.sessions.items() if address)
        rank = sharers.index(self.owner) if self.owner in sharers else 0
        wanted = share([*self.mine, *strays], free, len(found.owners), len(sharers), rank)
        if wanted.give:
            for vshard in wanted.give:  # first: none of them is to be taken over meanwhile
                self.mine.pop(vshard, None)
            await self._give(wanted.give, "it goes to another node")
            await self._errand(owning.disown, self._scout, self.owner, wanted.give)
        take = [*(vshard for vshard in strays if vshard not in wanted.give), *wanted.take]
        if take:
            await self._take(take, found)
        await self._begin()

    async def _take(self, vshards: Sequence[int], found: Survey) -> None:
        taken = await self._own(vshards)
        for vshard, epoch in taken.items():
            before = found.owners[vshard]
            self.owners[vshard] = Owner(before.map_epoch, epoch, self._seat.address, self.owner)

    async def _begin(self) -> None:
        """Those of what is new that have topics are taken over. If that cannot be told now, at the next look."""
        new = [vshard for vshard in self._new if vshard in self.mine]
        topics = await self._errand(survey.topics, self._scout, new) if new else {}
        self._new.difference_update(new)
        self._want(vshard for vshard, rows in topics.items() if rows)

    async def _own(self, vshards: Sequence[int]) -> dict[int, int]:
        """Own these, those that can be had; nothing, if the session has ended meanwhile."""
        owner = self.owner
        taken: dict[int, int] = await self._errand(owning.own, self._scout, owner, vshards)
        if owner != self.owner:
            return {}
        self.mine.update(taken)
        self._new.update(taken)
        return taken

    def _is_stray(self, vshard: int, owner: Owner) -> bool:
        """Whether it is ours, and we do not know it: a commit failed, and so did owning it again; or it was to be
        another's, and could not be given back. Nobody else can have it, so it counts as ours."""
        return owner.owner == self.owner and vshard not in self.mine

    def _forget(self, vshard: int, why: str) -> None:
        self.mine.pop(vshard, None)
        self._lose(vshard, why)

    def own_again(self, vshards: list[int]) -> None:
        """A commit failed: they are owned anew before anything is done with them."""
        for vshard in vshards:
            self.mine.pop(vshard, None)
        if not self.closing:
            again = asyncio.ensure_future(self._own_again(vshards))
            self._again.add(again)
            again.add_done_callback(self._again.discard)

    async def _own_again(self, vshards: list[int]) -> None:
        try:
            await self._own(vshards)
            await self._begin()
        except Error as problem:
            LOGGER.warning("%s: %s", self._name, problem)

    def check(self) -> None:
        """Doubt everything if the session has ended, or no beat reached the server in time."""
        if self._ended == self.owner:
            self.doubt("the session has ended")
        elif self._renewed_at + self._seat.session_ms / 1000 < time.monotonic():
            self.doubt("no beat reached the shard in time")

    def doubt(self, why: str) -> None:
        """Nothing that we remember is to be believed: forget it all, and begin a new session."""
        LOGGER.warning("%s: %s: everything owned there is forgotten", self._name, why)
        self._meters.doubts += 1
        for vshard in list(self.mine):
            self._forget(vshard, why)
        self._new.clear()
        self.owner = uuid4()
        self._renewed_at = time.monotonic()

    async def end(self) -> None:
        """Give everything back."""
        for again in list(self._again):
            again.cancel()
        await asyncio.gather(*self._again, return_exceptions=True)
        try:
            await self._errand(owning.leave_session, self._scout, self.owner)
        except Error as problem:
            LOGGER.warning("%s: the session could not be ended: %s", self._name, problem)
