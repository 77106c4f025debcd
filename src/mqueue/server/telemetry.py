"""What a server tells OpenTelemetry: a span for each call that publishes or settles, one for each delivery.

It goes on with the trace that the request came with. Messages that are published without one get the span of their
publish, so that who receives them finds back to it; a delivery links to the spans its messages were published in. Calls
that gave nothing are not told. Where few are told of, that is decided before a span is made: of those that are not told
nothing is put together. Loaded only where telemetry was asked for; knows no exporter.
"""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import time_ns

from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider, set_span_in_context, use_span

from mqueue.broker.remote import Handed, HandedTable
from mqueue.server.http.answer import Answer, Streamed
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Route
from mqueue.wire import spans
from mqueue.wire.arrow import text

_KINDS = {"publish": "send", "settle": "settle"}
_NOBODY: Mapping[str, str] = {}
_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]([0-9a-f])")
_TOLD = frozenset("13579bdf")
"""How the flags of a trace end that is told where it began."""


class ServerSpans:
    """A `mqueue.server.http.service.Telemetry`. May be used from any thread.

    `ratio`: so many of the traces that begin here are told, whatever they are; None: the provider decides of each.
    """

    def __init__(
        self, provider: TracerProvider, ratio: float | None = None, chance: Callable[[], float] = random.random
    ) -> None:
        self._tracer = spans.tracer_of(provider)
        self._ratio = ratio
        self._chance = chance

    def now(self) -> int:
        """When something began, for `handed`."""
        return time_ns()

    async def told(self, call: Call, route: Route, work: Awaitable[Answer | Streamed]) -> Answer | Streamed:
        """The answer to a call, which is a span if it does something to messages."""
        kind = _KINDS.get(route.verb)
        if kind is None or self._is_silent(call.headers):
            return await work
        verb = route.path.rpartition("/")[2] if kind == "settle" else "publish"
        topics = [call.names["topic"]] if "topic" in call.names else []
        span = self._tracer.start_span(
            spans.name_of(verb, topics),
            spans.context_of(call.headers),
            kind=SpanKind.SERVER,
            attributes=spans.attributes(kind, verb, call.namespace, topics, 0) | {"http.route": route.path},
        )
        if not span.is_recording():
            return await work
        if "traceparent" not in call.headers:
            call.headers = {**call.headers, **spans.carried(set_span_in_context(span))}
        with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                answer = await work
            except Exception as error:
                spans.failed(span, error)
                raise
            span.set_attribute("http.response.status_code", answer.status)
            if answer.status >= 500:
                span.set_status(Status(StatusCode.ERROR))
            return answer

    @contextmanager
    def calling(
        self, verb: str, namespace: str, topics: Sequence[str], count: int, headers: Iterable[Mapping[str, str | bytes]]
    ) -> Iterator[None]:
        """A call of another face: a trace of its own, linked to those of its messages."""
        if self._is_silent({}):
            yield
            return
        span = self._tracer.start_span(
            spans.name_of(verb, topics),
            Context(),
            kind=SpanKind.SERVER,
            attributes=spans.attributes(_KINDS.get(verb, "settle"), verb, namespace, topics, count),
            links=spans.links_of(headers),
        )
        with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield
            except Exception as error:
                spans.failed(span, error)
                raise

    def handed(
        self,
        namespace: str,
        group: str,
        handed: Sequence[Handed | HandedTable],
        since: int,
        asked: Mapping[str, str] = _NOBODY,
        consumer: str = "",
    ) -> None:
        """Messages were handed out: a span for each lease."""
        if self._is_silent(asked):
            return
        for lease in handed:
            count = lease.table.num_rows if isinstance(lease, HandedTable) else len(lease.messages)
            span = self._tracer.start_span(
                spans.name_of("deliver", [lease.topic]),
                spans.context_of(asked),
                kind=SpanKind.SERVER,
                attributes=spans.attributes("receive", "deliver", namespace, [lease.topic], count, group),
                links=spans.links_of(_headers(lease)),
                start_time=since,
            )
            if consumer and span.is_recording() and isinstance(lease, Handed):
                span.set_attribute("messaging.client.id", consumer)
            span.end()

    def _is_silent(self, headers: Mapping[str, str]) -> bool:
        """Whether nobody is told: a trace that began elsewhere is told if it is told there."""
        if self._ratio is None:
            return False
        parent = _PARENT.match(headers.get("traceparent", ""))
        return self._chance() >= self._ratio if parent is None else parent[1] not in _TOLD


def _headers(lease: Handed | HandedTable) -> Iterable[Mapping[str, str | bytes]]:
    """Of as many messages as a span may have links."""
    if isinstance(lease, Handed):
        return [message.headers for message in lease.messages[: spans.LINKS_MAX]]
    if "headers" not in lease.table.schema.names:
        return []
    rows = lease.table.column("headers").slice(0, spans.LINKS_MAX).to_pylist()
    return [{pair["key"]: text(pair["value"]) for pair in row} for row in rows if row]
