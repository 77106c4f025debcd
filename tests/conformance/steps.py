"""Steps that many tests share, in the words of the public calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Generic, TypeVar

import pytest

import mqueue
from mqueue.policy.routing import virtual_shard
from mqueue.testing import ManualClock

T = TypeVar("T")

DEADLINE_SECONDS = 120.0
"""A test about waiting fails after this much real time."""


def payloads(messages: Iterable[Any]) -> list[bytes]:
    return [message.payload for message in messages]


def offsets(messages: Iterable[Any]) -> list[int]:
    return [message.offset for message in messages]


def take(q: Any, topic: Any, limit: int = 1000, **options: Any) -> list[bytes]:
    """Receive and ack what is there now: the payloads, in the order they came."""
    messages = q.receive(topic, limit=limit, **options)
    q.ack(messages)
    return payloads(messages)


def receive_one(q: Any, topic: str, **options: Any) -> Any:
    [message] = q.receive(topic, **options)
    return message


def die(q: Any, topic: str, error: object = None, **options: Any) -> int:
    """Receive one message and reject it: its id."""
    message = receive_one(q, topic, **options)
    message.reject(error)
    return message.id


def log(q: Any, topic: str, **options: Any) -> list[bytes]:
    return payloads(q.scan(topic, **options))


def kinds(q: Any, id: Any) -> list[str]:
    return [event.kind for event in q.trace(id).events]


@contextmanager
def refused(kind: type[mqueue.Error], code: str | None = None) -> Iterator[pytest.ExceptionInfo[Any]]:
    """The block has to raise just this error, with this code, and say that nothing was done."""
    with pytest.raises(kind) as caught:
        yield caught
    assert type(caught.value) is kind, repr(caught.value)
    assert caught.value.applied is False
    if code is not None:
        assert caught.value.code == code


def assert_conserved(q: Any, topic: str, group: str = "default", ended_before: int = 0) -> None:
    """Every message ever published is in exactly one state of a group, but for those that ended before it began."""
    stats = q.stats(topic)
    states = stats.groups[group]
    counts = {name: getattr(states, name) for name in STATES}
    assert min(counts.values()) >= 0, counts
    assert stats.published == stats.scheduled + sum(counts.values()) + ended_before, (stats, counts)


STATES = ("ready", "waiting", "leased", "acked", "dead", "expired", "cancelled", "lapsed")


class TellingClock(ManualClock):
    """Stands still, and tells when somebody is about to wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.asleep = threading.Event()

    def timeout(self, ms: int) -> float | None:
        self.asleep.set()
        return super().timeout(ms)


class Background(Generic[T]):
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._done = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:
            self._error = error
        self._done.set()

    def assert_waiting(self) -> None:
        """It does not come back by itself. Whether it has begun to wait nobody knows: a machine may be slow."""
        assert not self._done.wait(0.05), f"came back at once with {self._result or self._error!r}"

    def result(self) -> T:
        assert self._done.wait(DEADLINE_SECONDS), "nobody woke it"
        if self._error is not None:
            raise self._error
        return self._result


def beside(topic: str, name: str, namespace: str = "default") -> str:
    """A name like this one for a topic that lives with another, so that both can change in one commit."""
    home = virtual_shard(namespace, topic)
    names = (f"{name}-{number}" for number in count())
    return next(found for found in names if virtual_shard(namespace, found) == home)
