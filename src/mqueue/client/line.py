"""The way to a server: requests go out, whole answers come back, and what fails says whether it may have been done.

A request that never left is tried again, with growing pauses, as long as the call may last. One whose answer was lost
is tried again only if doing it twice is the same as doing it once. What a server refuses for now and says until when
is tried again then. Of several addresses one is used until it does not answer or says that it is about to stop; then
the next is tried at once. Knows HTTP and connections; does not know what is asked.
"""

from __future__ import annotations

import asyncio
import io
import os
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import Any

import msgspec
from msgspec import Struct

try:
    import aiohttp
    from yarl import URL
except ImportError as error:
    raise ImportError("a client needs aiohttp: install mqueue[client]") from error

from mqueue.client.address import Address
from mqueue.model.errors import Closed, Corrupt, Error, Refused, Stopping, Unavailable
from mqueue.model.limits import MIB
from mqueue.wire.errors import error_of
from mqueue.wire.json import ErrorBody, ErrorOut

ANSWER_BYTES_MAX = 1024 * MIB
CONNECTIONS_MAX = 4096
PAUSE_SECONDS = 0.05
PAUSE_SECONDS_MAX = 2.0
CLOSE_SECONDS_MAX = 5.0
KEEP_SECONDS = 15.0
"""A connection that rests for longer is not used again: the server may be about to close it."""

_ERROR = msgspec.json.Decoder(ErrorOut)
_PIECE_BYTES = MIB
_TURNS_TO_HANG_UP = 2
"""Turns of a loop until a closed connection is hung up. A server that is told later hands messages to nobody."""
_OF_THE_LINE = ("unreachable", "line_broken")
_ELSEWHERE = (*_OF_THE_LINE, Stopping.code)
"""What another address may do better."""
FORKED = "this client was made before the process forked, and its connections are the parent's: make a new one"


class Request(Struct, frozen=True):
    """`repeatable`: doing it twice is the same as doing it once. `wait_ms`: the server may think that much longer."""

    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = {}
    repeatable: bool = False
    wait_ms: int = 0


class Reply(Struct, frozen=True):
    """`sent_at`: when the request went out, in the loop's time."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    sent_at: float


Untaken = Callable[[Reply], None]
"""Gets an answer that came for somebody who does not wait any more."""

Carry = Callable[[Request, str, float], Awaitable[Reply]]
"""One try: the answer of whoever is at a URL, within so many seconds. Raises Unavailable where there is none."""


class Line:
    """Belongs to the event loop that uses it first. `carry`: how a request gets there, where not over HTTP."""

    def __init__(
        self, address: Address, chance: Callable[[], float] = random.random, carry: Carry | None = None
    ) -> None:
        self._address = address
        self._chance = chance
        self._carry = carry or self._once
        self._turn = int(chance() * len(address.urls))
        """Which of the addresses is used, counted on and on: clients begin at different ones."""
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session: aiohttp.ClientSession | None = None
        self._busy = 0
        self._idle: asyncio.Event | None = None
        self._over: asyncio.Event | None = None
        self._farewells: set[asyncio.Task[Any]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.closed = False

    def __repr__(self) -> str:
        return f"<Line to {self._address.url}>"

    # Requests

    async def send(
        self, request: Request, stopped: asyncio.Event | None = None, untaken: Untaken | None = None
    ) -> Reply:
        """The answer to a request. One that waits comes back as `Closed` when the line or `stopped` says so; `untaken`
        gets the answer that came just then."""
        self._check()
        if self._farewells:  # what is being given back is given back first: the next call may ask for it
            await asyncio.wait(set(self._farewells))
            self._check()
        assert self._idle is not None
        assert self._over is not None
        self._busy += 1
        self._idle.clear()
        try:
            if not request.wait_ms:
                return await self._tries(request)
            events = (self._over,) if stopped is None else (self._over, stopped)
            return await _unless(self._tries(request), events, untaken)
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()

    async def _tries(self, request: Request) -> Reply:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._address.timeout_ms / 1000
        tries = 0
        while True:
            turn = self._turn
            try:
                reply = await self._carry(request, self._url(turn), max(end - loop.time(), 0.001))
                if reply.status < 300:
                    return reply
                raise _refusal(reply)
            except Error as error:
                pause = self._pause(error, request, tries)
                if pause is not None and self._moves_on(error, turn, tries):
                    pause = 0.0
                if pause is None or loop.time() + pause >= end or await self._ends_within(pause):
                    raise
            tries += 1

    def _url(self, turn: int) -> str:
        return self._address.urls[turn % len(self._address.urls)]

    def _moves_on(self, error: Error, turn: int, tries: int) -> bool:
        """Whether another address is to be tried at once: until all were, then there is a pause. Of many requests that
        fail together one moves all of them."""
        if error.code not in _ELSEWHERE:
            return False
        if self._turn == turn:
            self._turn += 1
        return (tries + 1) % len(self._address.urls) != 0

    async def _ends_within(self, seconds: float) -> bool:
        """Let so much time pass, unless the line is closed before."""
        assert self._over is not None
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return False
        return True

    def _pause(self, error: Error, request: Request, tries: int) -> float | None:
        """How many seconds until it is worth another try; None: it is not."""
        if not self._address.retry or not error.retryable:
            return None
        if error.applied is not False and not request.repeatable:
            return None
        if error.code in _OF_THE_LINE:
            rounds = tries // len(self._address.urls)
            most = min(PAUSE_SECONDS * 2.0 ** min(rounds, 16), PAUSE_SECONDS_MAX)
            return most * (0.5 + self._chance() / 2)
        return error.retry_after

    async def _once(self, request: Request, url: str, seconds: float) -> Reply:
        """One try. A connection has to be there a little before the time is up, so that the two are told apart; and
        while there is time for the other addresses."""
        connect = seconds * 0.9 / len(self._address.urls)
        timeout = aiohttp.ClientTimeout(total=seconds + request.wait_ms / 1000, connect=connect)
        sent_at = asyncio.get_running_loop().time()
        try:
            async with self._open().request(
                request.method,
                URL(url + request.path, encoded=True),
                data=_sent(request.body),
                headers=request.headers,
                timeout=timeout,
                allow_redirects=False,
            ) as answer:
                if (answer.content_length or 0) > ANSWER_BYTES_MAX:
                    raise Corrupt(f"an answer of {answer.content_length} bytes; {ANSWER_BYTES_MAX} are allowed")
                return Reply(answer.status, answer.headers, await answer.read(), sent_at)
        except asyncio.CancelledError:
            for _ in range(_TURNS_TO_HANG_UP):
                await asyncio.sleep(0)
            raise
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise Unavailable(f"{url} cannot be reached: {_reason(error)}", code="unreachable") from None
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            sentence = f"the line to {url} broke, and nobody knows what was done: {_reason(error)}"
            raise Unavailable(sentence, code="line_broken", applied=None) from None

    # Life

    def _check(self) -> None:
        if self.closed:
            raise Closed("this client is closed")
        if os.getpid() != self._pid:
            raise Closed(FORKED)
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop, self._idle, self._over = loop, asyncio.Event(), asyncio.Event()
            self._idle.set()
        if self._loop is not loop:
            raise Refused("this client belongs to another event loop; make one in each", code="other_loop")

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            address = self._address
            headers = {"Authorization": f"Bearer {address.token}"} if address.token else {}
            connector = aiohttp.TCPConnector(
                limit=CONNECTIONS_MAX, keepalive_timeout=KEEP_SECONDS, ssl=address.tls if address.tls else True
            )
            self._session = aiohttp.ClientSession(
                connector=connector, headers=headers, cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session

    def farewell(self, call: Coroutine[Any, Any, None]) -> None:
        """Do this at once in the background, before any request that comes later. It must not fail."""
        if self.closed or os.getpid() != self._pid:
            call.close()
            return
        _run(call, self._farewells)

    def attend(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this in the background until it is done or the line is closed."""
        _run(work, self._tasks)

    async def close(self, last: Callable[[], Awaitable[None]] | None = None) -> None:
        """Calls that wait are ended, others come to their end; then `last` is done, while there is still a line."""
        if self.closed or os.getpid() != self._pid:
            self.closed = True
            return
        if self._loop is None:
            self.closed = True
            return
        self._check()
        assert self._over is not None
        assert self._idle is not None
        self.closed = True
        self._over.set()
        await _ended(self._tasks, cancel=True)
        try:
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await _ended(self._farewells, cancel=False)
                await self._idle.wait()
                if last is not None:
                    await last()
        except TimeoutError:
            await _ended(self._farewells, cancel=True)
        finally:
            if self._session is not None:
                await self._session.close()

    async def send_last(self, request: Request) -> Reply:
        """While the line is being closed: one try."""
        return await self._carry(request, self._url(self._turn), CLOSE_SECONDS_MAX)


def _sent(body: bytes) -> bytes | io.BytesIO | None:
    """A large body goes out piece by piece, so that the loop is not held."""
    return (io.BytesIO(body) if len(body) > _PIECE_BYTES else body) or None


def _refusal(reply: Reply) -> Error:
    try:
        told = _ERROR.decode(reply.body).error
    except (msgspec.DecodeError, UnicodeDecodeError):  # something between us and the server answered
        busy = reply.status in (429, 502, 503, 504)
        told = ErrorBody(f"http_{reply.status}", f"the answer was {reply.status}", busy, None if busy else False)
    return error_of(told, reply.status, _seconds(reply.headers.get("Retry-After")))


def _seconds(text: str | None) -> float | None:
    return float(text) if text and text.isascii() and text.isdecimal() and len(text) < 10 else None


def _reason(error: BaseException) -> str:
    return f"{str(error) or type(error).__name__:.200}"


async def _unless(
    call: Coroutine[Any, Any, Reply], events: tuple[asyncio.Event, ...], untaken: Untaken | None
) -> Reply:
    """The answer of a call, or `Closed` as soon as one of the events is set."""
    task = asyncio.ensure_future(call)
    bells = [asyncio.ensure_future(event.wait()) for event in events]
    taken = False
    try:
        await asyncio.wait([task, *bells], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Closed("this client or consumer was closed while it waited")
        await _ended(bells, cancel=True)
        taken = True
        return task.result()
    finally:
        if not taken:
            await _ended([task, *bells], cancel=True)
            if untaken is not None and not task.cancelled() and task.exception() is None:
                untaken(task.result())


async def _ended(tasks: Collection[asyncio.Task[Any]], *, cancel: bool) -> None:
    left = {task for task in tasks if not task.done() and task is not asyncio.current_task()}
    if cancel:
        for task in left:
            task.cancel()
    if left:
        await asyncio.wait(left)


def _run(call: Coroutine[Any, Any, None], tasks: set[asyncio.Task[Any]]) -> None:
    try:
        task = asyncio.get_running_loop().create_task(call)
    except RuntimeError:  # the loop is gone, and its connections with it
        call.close()
        return
    tasks.add(task)
    task.add_done_callback(tasks.discard)
