"""What a server tells OpenTelemetry: a span for each call that publishes or settles, one for each delivery.

It goes on with the trace that the request came with. Messages that are published without one get the span of their
publish, so that who receives them finds back to it; a delivery links to the spans its messages were published in. Calls
that gave nothing are not told. Loaded only where telemetry was asked for; knows no exporter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from time import time_ns

from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider, set_span_in_context, use_span

from mqueue.broker.remote import Handed, HandedTable
from mqueue.server.http.answer import Answer, Streamed
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Route
from mqueue.wire import spans
from mqueue.wire.arrow import text

_KINDS = {"publish": "send", "settle": "settle"}


class ServerSpans:
    """A `mqueue.server.http.service.Telemetry`. May be used from any thread."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = spans.tracer_of(provider)

    def now(self) -> int:
        """When something began, for `delivered`."""
        return time_ns()

    async def told(self, call: Call, route: Route, work: Awaitable[Answer | Streamed]) -> Answer | Streamed:
        """The answer to a call, which is a span if it does something to messages."""
        kind = _KINDS.get(route.verb)
        if kind is None:
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

    def delivered(self, call: Call, group: str, handed: Iterable[Handed | HandedTable], since: int) -> None:
        """Messages were handed out: a span for each lease."""
        for lease in handed:
            table = isinstance(lease, HandedTable)
            topic = call.topic if isinstance(lease, HandedTable) else lease.topic
            count = lease.table.num_rows if isinstance(lease, HandedTable) else len(lease.messages)
            span = self._tracer.start_span(
                spans.name_of("deliver", [topic]),
                spans.context_of(call.headers),
                kind=SpanKind.SERVER,
                attributes=spans.attributes("receive", "deliver", call.namespace, [topic], count, group),
                links=spans.links_of(_headers(lease)),
                start_time=since,
            )
            if call.consumer and span.is_recording() and not table:
                span.set_attribute("messaging.client.id", call.consumer)
            span.end()


def _headers(lease: Handed | HandedTable) -> Iterable[Mapping[str, str | bytes]]:
    """Of as many messages as a span may have links."""
    if isinstance(lease, Handed):
        return [message.headers for message in lease.messages[: spans.LINKS_MAX]]
    if "headers" not in lease.table.schema.names:
        return []
    rows = lease.table.column("headers").slice(0, spans.LINKS_MAX).to_pylist()
    return [{pair["key"]: text(pair["value"]) for pair in row} for row in rows if row]
