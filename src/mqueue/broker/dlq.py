"""The dead-letter queue of a topic, as users see it: look at the dead, bring them back, or be rid of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mqueue.broker.deliver import check_receive
from mqueue.broker.engine import Engine
from mqueue.broker.envelope import EmbeddedDeadMessage
from mqueue.broker.message import DeadMessage
from mqueue.broker.redrive import Deletion, Graveyard, Redrive, Redriving, matcher
from mqueue.broker.sorting import DeadErrors, Sorted
from mqueue.broker.waiting import never, wait_in_thread
from mqueue.store.redrive import discard

T = TypeVar("T")


class Dlq:
    _message_type: type[DeadMessage] = EmbeddedDeadMessage

    def __init__(self, engine: Engine, namespace: str, topic: str) -> None:
        self._engine = engine
        self._yard = Graveyard(engine, namespace, topic, self._message_type)

    def messages(
        self, limit: int = 100, *, filter: str | Callable[[DeadMessage], bool] | None = None
    ) -> list[DeadMessage]:
        """The dead that nobody has dealt with: not acked by group `default` of the dead-letter queue, not redriven."""
        check_receive(limit, "at_least_once")
        matches = matcher(filter)
        found: list[DeadMessage] = []
        with self._engine.lock:
            self._engine.tick()
            for message in self._yard.messages():
                if matches(message):
                    found.append(message)
                    if len(found) == limit:
                        break
        return found

    def redrive(
        self,
        *,
        filter: str | Callable[[DeadMessage], bool] | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        rate: float | None = None,
    ) -> Redrive:
        """Make what is dead now ready again, each in the group that it died in. What dies again stays dead.

        `rate`: so many messages per second. What is interrupted goes on when it is called again.
        """
        redriving = Redriving(self._yard, filter, limit, dry_run, rate)
        return self._walk(redriving, lambda: redriving.done)

    def delete(
        self,
        *,
        filter: str | Callable[[DeadMessage], bool] | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> Deletion:
        """Be rid of what is dead now: it is listed no more, and cannot be redriven. The originals stay as they are."""
        deleting = Redriving(self._yard, filter, limit, dry_run, act=discard)
        return self._walk(deleting, lambda: Deletion(*deleting.counted, dry_run))

    def errors(self) -> list[DeadErrors]:
        """What the dead died of, the most frequent first. Errors that differ in numbers, ids or times are one."""
        found = Sorted()
        return self._walk(Redriving(self._yard, found, None, dry_run=True), lambda: found.entries)

    def _walk(self, redriving: Redriving, give: Callable[[], T]) -> T:
        """Step by step to the end, and then what it gives."""
        engine = self._engine
        while redriving.step():
            while pause_ms := redriving.pause_ms(engine.clock.now()):
                wait_in_thread(engine, lambda now: redriving.topics, lambda now: [], pause_ms, never)
        return give()

    def __len__(self) -> int:
        with self._engine.lock:
            self._engine.tick()
            return sum(1 for _ in self._yard.messages())
