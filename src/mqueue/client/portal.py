"""The event loop behind all clients of this process that are not awaited: one, in a thread of its own.

It starts with the first of them. When the program ends, clients that nobody closed are closed first. After a fork the
child has no such thread: clients of the parent say so, new ones get a new loop.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from mqueue.client.holding import Holdings
from mqueue.client.line import CLOSE_SECONDS_MAX, FORKED
from mqueue.model.errors import Closed, Refused

T = TypeVar("T")


class Portal:
    """What threads use to have something done in the loop."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = _new_loop()
        self._clients: set[Holdings] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mqueue-client", daemon=True)
        self._thread.start()
        atexit.register(self.stop)

    @property
    def usable(self) -> bool:
        return self._pid == os.getpid() and self._thread.is_alive()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Wait for a call. Whoever is interrupted meanwhile cancels it."""
        if not self.usable or threading.current_thread() is self._thread:
            call.close()
            if self.usable:
                raise Refused("a Client cannot wait inside its own loop; use an AsyncClient there", code="reentered")
            raise Closed(FORKED if self._pid != os.getpid() else "this client is closed: the program ends")
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def soon(self, call: Callable[[], None]) -> None:
        """Have it done, and do not wait. The garbage collector may be who asks."""
        if self.usable:
            with suppress(RuntimeError):  # the loop was just closed
                self._loop.call_soon_threadsafe(call)

    # Clients that nobody closes

    def watch(self, anchor: object, holdings: Holdings) -> None:
        """Close a client when nobody refers to it any more, or when the program ends."""
        self._clients.add(holdings)
        weakref.finalize(anchor, self._forgotten, holdings).atexit = False

    def _forgotten(self, holdings: Holdings) -> None:
        self.soon(lambda: self._closing(holdings))

    def _closing(self, holdings: Holdings) -> None:
        task = self._loop.create_task(self.closed(holdings))
        holdings.ending = task

    async def closed(self, holdings: Holdings) -> None:
        await holdings.close()
        self._clients.discard(holdings)

    def stop(self) -> None:
        """The program ends: close what is open, then the loop."""
        if not self.usable:
            return
        ending = asyncio.run_coroutine_threadsafe(self._close_all(), self._loop)
        with suppress(Exception):
            ending.result(2 * CLOSE_SECONDS_MAX)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_SECONDS_MAX)
        if not self._thread.is_alive():
            self._loop.close()

    async def _close_all(self) -> None:
        await asyncio.gather(*(self.closed(holdings) for holdings in list(self._clients)), return_exceptions=True)
        left = asyncio.all_tasks() - {asyncio.current_task()}  # whoever waits for them is gone with the program
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=CLOSE_SECONDS_MAX)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # it is not there on every system
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


_LOCK = threading.Lock()
_PORTAL: Portal | None = None


def portal() -> Portal:
    """The one of this process."""
    global _PORTAL
    with _LOCK:
        if _PORTAL is None or not _PORTAL.usable:
            _PORTAL = Portal()
        return _PORTAL


def _new_lock() -> None:
    """A thread of the parent may have held the old one."""
    global _LOCK
    _LOCK = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)
