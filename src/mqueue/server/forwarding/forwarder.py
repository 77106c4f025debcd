"""Forwards requests to the nodes that they belong to, one hop and as they are, and hands the answers through.

    caller ─► this node ─► owner      same target, headers and body; who calls is vouched for
    caller ◄─ this node ◄─ owner      same status, body and headers; nothing is decoded

A caller who leaves ends the request at the owner. Where an answer with a lease was on its way to him, the lease is
released. Does not know who owns what.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Coroutine
from functools import partial
from typing import Any
from urllib.parse import quote

import msgspec

from mqueue.model.errors import BadSetting, Error, Stopping, Unavailable
from mqueue.model.limits import WAIT_MS_MAX
from mqueue.server.forwarding import talking
from mqueue.server.forwarding.heads import FORWARDED, Heads
from mqueue.server.forwarding.line import Broken, Line, Reply
from mqueue.server.forwarding.owner import Owner
from mqueue.server.forwarding.pieces import Pieces
from mqueue.server.forwarding.tokens import tokens_of
from mqueue.server.forwarding.voucher import Voucher
from mqueue.server.http.answer import Answer, Streamed, error_answer
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Route
from mqueue.server.http.service import Receive, Send
from mqueue.server.http.sockets import refuse
from mqueue.wire.json import ErrorOut

LOGGER = logging.getLogger("mqueue.server")

ANSWER_SECONDS = WAIT_MS_MAX / 1000 + 15
FAREWELL_SECONDS = 10.0
"""How long an answer is still listened for that nobody wants any more."""
OWNERS_MAX = 256
_MAY_MOVE = (408, 503)
"""What a node answers that is not, or soon not, the owner."""
_ERROR = msgspec.json.Decoder(ErrorOut)


class Forwarder:
    """Lives in the loop of its server. `name`: of this node; `voucher` None: it vouches for nobody, and callers have to
    prove themselves to the owner.
    """

    def __init__(self, name: str, tls: ssl.SSLContext | None = None, voucher: Voucher | None = None) -> None:
        if not name or not name.isascii() or not name.isprintable():
            raise BadSetting(f"node name {name!r:.80}; it takes printable ASCII")
        self._tls = tls
        self._heads = Heads(name, voucher)
        self._owners: dict[str, Owner] = {}
        self._waiting: set[Line] = set()
        """Those on which something is asked that may take long."""
        self._watch: asyncio.Task[None] | None = None
        self._farewells: set[asyncio.Task[None]] = set()
        self.results: Counter[str] = Counter()
        """How requests ended: `answered`, `left` by the caller, or the code of the error."""

    async def forward(self, call: Call, route: Route, address: str) -> Answer | Streamed:
        """The answer of the node at `address`. Raises Unavailable where there is none, or it is not the owner."""
        result = "left"
        try:
            answer = await self._forward(call, route, address)
            result = "answered"
            return answer
        except Error as error:
            result = error.code
            raise
        finally:
            self.results[result] += 1

    async def _forward(self, call: Call, route: Route, address: str) -> Answer | Streamed:
        check_first(call)
        owner = self._owner(address)
        try:
            return await self._ask(call, route, owner)
        except Broken as error:
            if _changes(route):
                raise _lost(owner, error, applied=None) from None
        try:
            return await self._ask(call, route, owner, fresh=True)
        except Broken as error:
            raise _lost(owner, error) from None

    async def talk(self, call: Call, address: str, receive: Receive, send: Send) -> None:
        """A WebSocket, from before the upgrade until one side ends it."""
        try:
            check_first(call)
            owner = self._owner(address)
            await owner.enter(waits=True)
        except Error as error:
            await refuse(error_answer(error), send)
            return
        try:
            await talking.talk(call, owner, self._heads, receive, send)
        finally:
            owner.leave(waits=True)

    async def close(self) -> None:
        """What is being given back is given back first."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        if self._farewells:
            await asyncio.wait(self._farewells)  # each has an end of its own
        for owner in self._owners.values():
            owner.close()
        self._owners.clear()

    # One request

    async def _ask(self, call: Call, route: Route, owner: Owner, fresh: bool = False) -> Answer | Streamed:
        """Raises Broken if the line breaks before there is an answer. HEAD is asked as GET: what is left out of an
        answer is left out in the end.
        """
        method = "GET" if call.method == "HEAD" else call.method
        head = self._heads.request(call, owner.netloc, method)
        hands_out = route.verb == "receive"
        waits = hands_out or route.lasts
        if waits and call.service.stopping.is_set():
            raise _stopping()
        line = await owner.take(waits, fresh)
        if waits:
            self._wait_on(call, line)
        try:
            line.ask(head, call.body)
            async with asyncio.timeout(None if route.lasts else ANSWER_SECONDS):
                reply = await owner.answer(line)
        except asyncio.CancelledError:
            self._see_off(call, owner, line)
            raise
        except TimeoutError as error:
            self._drop(owner, line)
            raise _lost(owner, error, applied=None if _changes(route) else False) from None
        except Broken:
            self._drop(owner, line)
            if line.hung_up:  # what the owner had handed out before it heard of that would have come
                raise _stopping(False if hands_out else None) from None
            raise
        if reply.streamed:
            return self._streamed(call, route, owner, line, reply)
        self._waiting.discard(line)
        owner.give(line)
        return self._answer(call, owner, reply, hands_out)

    def _answer(self, call: Call, owner: Owner, reply: Reply, hands_out: bool) -> Answer:
        if reply.status in _MAY_MOVE:
            check_owner(reply)
        give_back = None
        if hands_out and reply.status < 300:
            give_back = partial(self._give_back, call, owner, reply)
        return Answer(reply.status, reply.body, reply.kind, reply.headers, give_back)

    def _streamed(self, call: Call, route: Route, owner: Owner, line: Line, reply: Reply) -> Streamed:
        pieces = Pieces(
            line,
            reply.kind,
            partial(call.demand_again, route.verb),
            partial(_lost, owner),
            call.service.stopping.is_set,
            partial(self._drop, owner, line),
        )
        return Streamed(pieces, reply.kind, reply.status, reply.headers)

    def _drop(self, owner: Owner, line: Line) -> None:
        self._waiting.discard(line)
        owner.drop(line)

    def _owner(self, address: str) -> Owner:
        owner = self._owners.get(address)
        if owner is None:
            if len(self._owners) >= OWNERS_MAX:
                for name in [name for name, one in self._owners.items() if one.unused]:
                    self._owners.pop(name).close()
            owner = self._owners[address] = Owner(address, self._tls)
        return owner

    # Leaving

    def _wait_on(self, call: Call, line: Line) -> None:
        self._waiting.add(line)
        if self._watch is None:
            self._watch = asyncio.get_running_loop().create_task(self._end_with(call.service.stopping))

    async def _end_with(self, stopping: asyncio.Event) -> None:
        """When this node stops, whoever waits at another is told, and so is the other."""
        await stopping.wait()
        for line in self._waiting:
            line.hang_up()

    def _see_off(self, call: Call, owner: Owner, line: Line) -> None:
        """The caller left before there was an answer. One that hands out messages may be on its way."""
        if not line.waits:
            self._drop(owner, line)
            return
        line.hang_up()
        self._farewell(self._collect(call, owner, line))

    def _farewell(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._farewells.add(task)
        task.add_done_callback(self._farewells.discard)

    async def _collect(self, call: Call, owner: Owner, line: Line) -> None:
        """Take an answer for which nobody is there."""
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                reply = await line.answer()
        except (Broken, TimeoutError):
            return
        finally:
            self._drop(owner, line)
        if not reply.streamed:
            await self._give_back(call, owner, reply)

    async def _give_back(self, call: Call, owner: Owner, reply: Reply) -> None:
        for token in tokens_of(reply):
            try:
                async with asyncio.timeout(FAREWELL_SECONDS):
                    await self._release(call, owner, token)
            except (Error, Broken, TimeoutError) as error:  # it runs out by itself
                LOGGER.warning("a lease that nobody took could not be given back to %s: %s", owner.address, error)

    async def _release(self, call: Call, owner: Owner, token: str) -> None:
        target = f"/v1/leases/{quote(token, safe='')}/release"
        line = await owner.take(waits=False)
        try:
            line.ask(self._heads.on_behalf(call, owner.netloc, target), b"")
            await line.answer()
        except BaseException:
            owner.drop(line)
            raise
        owner.give(line)


def check_first(call: Call) -> None:
    """A request goes one hop: two nodes that each think the other is the owner would never come to an end."""
    sender = call.headers.get(FORWARDED)
    if sender is not None:
        why = f"{sender!r:.80} forwarded this here, and it belongs to another node"
        raise Unavailable(why, code="not_owner", retry_after=1)


def check_owner(reply: Reply) -> None:
    """Raise if the other node says that it is not the owner, or stops: whoever asked it has to look again."""
    try:
        told = _ERROR.decode(reply.body).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return
    if told.code == "not_owner":
        raise Unavailable(told.message, code="not_owner", applied=told.applied, retry_after=1)
    if told.code == Stopping.code:
        raise Unavailable(f"the owner is stopping: {told.message}", code="not_owner", retry_after=1)


def _changes(route: Route) -> bool:
    """Whether doing it twice is something else than doing it once."""
    return route.method != "GET" or route.verb == "receive"


def _stopping(applied: bool | None = False) -> Stopping:
    return Stopping("this node is stopping", applied=applied, retry_after=1)


def _lost(owner: Owner, error: BaseException, applied: bool | None = False) -> Unavailable:
    if isinstance(error, TimeoutError):
        why = f"{owner.address} did not answer in time"
    else:
        why = f"the line to {owner.address} broke: {error!s:.200}"
    return Unavailable(why, code="owner_unreachable", applied=applied, retry_after=1)
