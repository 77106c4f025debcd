"""Consuming without end: as a loop, or by a handler that is called in the background. Event loops do it in `aio`.

While a consumer of this process works on messages their leases renew themselves; what is left in the end is given back.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from mqueue.broker.deliver import leases_of
from mqueue.broker.engine import Engine, Shut
from mqueue.broker.message import Message
from mqueue.broker.waiting import wait_in_loop, wait_in_thread
from mqueue.heart.group import Lease
from mqueue.heart.topic import Topic
from mqueue.model.errors import Closed, LeaseLost, Refused
from mqueue.model.limits import WAIT_MS_MAX

M = TypeVar("M")

LOGGER = logging.getLogger("mqueue")


class Supply(Protocol[M]):
    """Where a consumer gets its messages, wherever they come from: `Source` is that of an embedded broker."""

    @property
    def stopped(self) -> bool: ...

    def take(self, limit: int) -> list[M]:
        """The next messages; none only if it was stopped, or after a while."""

    async def take_async(self, limit: int) -> list[M]: ...

    def stop(self) -> None:
        """Take no more; whoever waits comes back at once."""

    def give_back(self) -> None:
        """Let go of everything that is not settled."""


class Source(Generic[M]):
    """Where a consumer gets its messages: the leases it holds are kept alive until it lets go."""

    def __init__(
        self, engine: Engine, topics: Callable[[int], Sequence[Topic]], look: Callable[[int, int], list[M]]
    ) -> None:
        self._engine = engine
        self._topics = topics
        self._look = look
        self._leases: list[Lease] = []
        self.stopped = False

    def take(self, limit: int) -> list[M]:
        """The next messages; none only if it was stopped, or after a while."""
        return wait_in_thread(self._engine, self._topics, self._keeping(limit), WAIT_MS_MAX, lambda: self.stopped)

    async def take_async(self, limit: int) -> list[M]:
        return await wait_in_loop(self._engine, self._topics, self._keeping(limit), WAIT_MS_MAX, lambda: self.stopped)

    def stop(self) -> None:
        """Take no more; whoever waits comes back at once."""
        self.stopped = True
        with suppress(Closed), self._engine.lock:
            self._engine.wake_all()

    def give_back(self) -> None:
        """Let go of everything that is not settled. A broker that is closed has done so itself.

        The garbage collector may call this in the middle of anything, so it does not wait for the lock: if somebody
        has it, whoever comes next gives the leases back.
        """
        engine = self._engine
        engine.abandoned.extend(self._leases)
        self._leases = []
        lock = engine.lock
        if isinstance(lock, Shut) or not lock.acquire(blocking=False):
            return
        try:
            engine.tick()
        except Closed:
            pass
        finally:
            lock.release()

    def _keeping(self, limit: int) -> Callable[[int], list[M]]:
        def look(now: int) -> list[M]:
            found = self._look(limit, now)
            self._leases = [lease for lease in self._leases if lease.open]
            for lease in leases_of(found):
                lease.keep_ms = lease.until - now
                self._leases.append(lease)
            return found

        return look


def consume(source: Supply[Message], prefetch: int) -> Iterator[Message]:
    """Messages one by one, `prefetch` of them held at a time."""
    try:
        while True:
            yield from source.take(prefetch)
    except Closed:
        return
    finally:
        source.give_back()


class Subscription:
    """A handler at work in background threads."""

    def __init__(self, source: Supply[Message], handler: Callable[[Message], Any], concurrency: int) -> None:
        check_concurrency(concurrency)
        self._source = source
        self._handler = handler
        self._threads = [
            threading.Thread(target=self._work, name=f"mqueue-subscription-{number}", daemon=True)
            for number in range(concurrency)
        ]
        for thread in self._threads:
            thread.start()

    def close(self, timeout: float | None = None) -> None:
        """Take no more messages and wait until those at hand are done."""
        self._source.stop()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout)
        self._source.give_back()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _work(self) -> None:
        try:
            while not self._source.stopped:
                for message in self._source.take(1):
                    self._handle(message)
        except Closed:
            return

    def _handle(self, message: Message) -> None:
        try:
            with message:
                self._handler(message)
        except LeaseLost as error:
            LOGGER.warning("message %s of %s was no longer ours: %s", message.id, message.topic, error)
        except Closed:
            raise
        except BaseException:  # also one that wants to end the program: a thread cannot, and must not end silently
            LOGGER.exception(
                "handler failed on message %s of %s, attempt %s", message.id, message.topic, message.attempt
            )


def check_concurrency(concurrency: int) -> None:
    if type(concurrency) is not int or not 1 <= concurrency <= 1024:
        raise Refused(f"concurrency {concurrency!r:.80}; it takes 1 to 1024", code="bad_concurrency")
