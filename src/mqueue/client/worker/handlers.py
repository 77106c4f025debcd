"""A handler and its options, parsed and checked when it is decorated. Does not know the queue, nor call anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from mqueue.broker.consume import check_concurrency
from mqueue.broker.deliver import visibility_ms
from mqueue.broker.given import Topics
from mqueue.client.worker.parameters import Parameters, name_of, parameters_of
from mqueue.client.worker.verdict import Rule
from mqueue.model.errors import BadSetting, BadTime, Refused
from mqueue.model.names import check_name
from mqueue.model.times import Duration, duration_ms

VISIBILITY_MS_MIN = 1000
"""A lease is renewed three times as often; shorter ones would be lost to the first hiccup."""
RETRIES_MAX = 1_000_000


class Handler(Struct, frozen=True):
    name: str
    function: Callable[..., Any]
    parameters: Parameters
    topics: tuple[str, ...]
    group: str
    namespace: str | None
    concurrency: int | None
    rule: Rule
    timeout_ms: int | None
    visibility_ms: int
    assigned: bool = False

    def overlaps(self, other: Handler) -> bool:
        """Whether both would get the messages of one topic, each some of them."""
        same = (self.namespace, self.group) == (other.namespace, other.group)
        return same and not set(self.topics).isdisjoint(other.topics)


def handler_of(
    function: Callable[..., Any],
    topic: Topics,
    *,
    group: str,
    namespace: str | None,
    concurrency: int | None,
    retries: int | None,
    backoff: Duration | None,
    backoff_max: Duration,
    reject_on: type[Exception] | tuple[type[Exception], ...],
    timeout: Duration | None,
    visibility: Duration,
    assigned: bool = False,
) -> Handler:
    """A function with its options, all of them good."""
    if concurrency is not None:
        check_concurrency(concurrency)
    topics = _topics(topic)
    if assigned and len(topics) != 1:
        raise BadSetting(f"{len(topics)} topics; a handler that is a member of an assigned group takes one")
    return Handler(
        name_of(function),
        function,
        parameters_of(function),
        topics,
        check_name(group, "group"),
        None if namespace is None else check_name(namespace, "namespace"),
        concurrency,
        Rule(
            _retries(retries),
            None if backoff is None else duration_ms(backoff, "backoff"),
            duration_ms(backoff_max, "backoff_max"),
            _kinds(reject_on),
        ),
        None if timeout is None else _timeout_ms(timeout),
        _visibility_ms(visibility),
        assigned,
    )


def _topics(topic: Topics) -> tuple[str, ...]:
    names = (
        (topic,) if isinstance(topic, str) or not isinstance(topic, list | tuple | set | frozenset) else tuple(topic)
    )
    if not names:
        raise Refused("no topic is named", code="no_topic")
    return tuple(check_name(name, "topic") for name in names)


def _retries(retries: int | None) -> int | None:
    if retries is not None and (type(retries) is not int or not 0 <= retries <= RETRIES_MAX):
        raise BadSetting(f"retries {retries!r:.80}; it takes 0 to {RETRIES_MAX}, or None: as the topic says")
    return retries


def _kinds(reject_on: Any) -> tuple[type[Exception], ...]:
    kinds = reject_on if isinstance(reject_on, tuple) else (reject_on,)
    for kind in kinds:
        if not isinstance(kind, type) or not issubclass(kind, Exception):
            raise BadSetting(f"reject_on {kind!r:.80}; it takes classes of exceptions")
    return kinds


def _timeout_ms(timeout: Duration) -> int:
    lasting = duration_ms(timeout, "timeout")
    if not lasting:
        raise BadTime(f"timeout {timeout!r:.80}; it takes more than 0, or None: as long as it likes")
    return lasting


def _visibility_ms(visibility: Duration) -> int:
    lasting = visibility_ms(visibility)
    if lasting < VISIBILITY_MS_MIN:
        raise BadTime(f"visibility of {lasting} ms; a worker takes at least {VISIBILITY_MS_MIN} ms")
    return lasting
