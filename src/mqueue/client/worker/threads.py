"""Threads for handlers that are no coroutines, and the message such a handler sees.

The threads are daemons: a handler that hangs cannot be stopped, and must not keep the process from ending either. They
are kept for the next call, because what handlers keep per thread (connections, sessions) is dear to make.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any

from mqueue.broker.message import AsyncMessage, Message
from mqueue.model.errors import Closed
from mqueue.model.times import Duration

SETTLE_SECONDS = 120
"""How long a thread waits for a settle call in the loop; the call itself has a shorter deadline."""


class Threads:
    """As many as there are calls at a time; whoever calls sees to it that these are not too many."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._count = 0

    def call(self, function: Callable[[], Any]) -> Future[Any]:
        """Call it in a thread, in the context of the caller."""
        future: Future[Any] = Future()
        context = contextvars.copy_context()
        self._calls.put((future, lambda: context.run(function)))
        if not self._idle.acquire(blocking=False):
            name = f"mqueue-worker-{self._name}-{self._count}"
            self._count += 1
            threading.Thread(target=self._work, name=name, daemon=True).start()
        return future

    def close(self) -> None:
        """Let the threads end, each when its call has ended."""
        for _ in range(self._count):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function = call
            tell = _outcome(future, function)
            self._idle.release()  # before it is told: whoever hears of it may have the next call at once
            tell()
            del call, future, function, tell  # nothing of it is to be kept while this thread has no work


def _outcome(future: Future[Any], function: Callable[[], Any]) -> Callable[[], None]:
    """Make a call; what is to be told of it."""
    if not future.set_running_or_notify_cancel():
        return lambda: None
    try:
        answer = function()
    except BaseException as error:  # also one that wants to end the program: a thread cannot, and must not end silently
        return partial(future.set_exception, error)
    return partial(future.set_result, answer)


def _shown(name: str) -> Any:
    return property(lambda self: getattr(self._message, name))


class ThreadMessage(Message, eq=False, gc=True):
    """A message of an event loop, for use in another thread: it is settled in its loop, while the thread waits."""

    _message: AsyncMessage
    _loop: asyncio.AbstractEventLoop

    id = _shown("id")
    namespace = _shown("namespace")
    topic = _shown("topic")
    partition = _shown("partition")
    offset = _shown("offset")
    key = _shown("key")
    payload = _shown("payload")
    headers = _shown("headers")
    priority = _shown("priority")
    attempt = _shown("attempt")
    published_at = _shown("published_at")
    deliver_at = _shown("deliver_at")
    expires_at = _shown("expires_at")
    idempotency_key = _shown("idempotency_key")
    fairness_key = _shown("fairness_key")
    _settled = _shown("_settled")

    def _settle(self, verb: str, wait: Duration | None = None, error: object = None) -> None:
        settling = self._in_loop(verb, wait, error)
        try:
            future = asyncio.run_coroutine_threadsafe(settling, self._loop)
        except RuntimeError as closed:
            settling.close()
            raise Closed(f"cannot {verb} message {self.id}: the worker has ended") from closed
        future.result(SETTLE_SECONDS)

    async def _in_loop(self, verb: str, wait: Duration | None, error: object) -> None:
        await self._message._settle(verb, wait, error)
