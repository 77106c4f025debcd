"""What a client and a worker tell OpenTelemetry: a span for each call that publishes, receives or settles, and one for
each message that a handler is called for.

A call is one span, however many messages it carries. Messages carry the trace they were published in; receiving and
settling link to it, and a handler's span goes on with it. Loaded only by who was made with `telemetry`; spans go to the
provider that he gave, or to the one of the program. Knows no exporter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from msgspec.structs import replace

from mqueue.model.errors import BadSetting
from mqueue.model.message import Draft
from mqueue.wire.arrow import text

try:
    from opentelemetry.trace import (
        Span,
        SpanKind,
        Status,
        StatusCode,
        TracerProvider,
        get_tracer_provider,
        use_span,
    )

    from mqueue.wire import spans
except ImportError as error:
    raise BadSetting(f"telemetry needs {error.name}: pip install 'mqueue[telemetry]'") from None

T = TypeVar("T")


class Traced(Protocol):
    """A message, as far as spans tell of it."""

    @property
    def id(self) -> int: ...
    @property
    def namespace(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str | bytes]: ...


def spans_of(telemetry: Any) -> ClientSpans:
    """What a client was made with: True, or a provider."""
    provider = get_tracer_provider() if telemetry is True else telemetry
    if not isinstance(provider, TracerProvider):
        raise BadSetting(f"telemetry {telemetry!r:.80}; it takes true, false or a TracerProvider of OpenTelemetry")
    return ClientSpans(provider)


class ClientSpans:
    """May be used from any thread."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = spans.tracer_of(provider)

    def carried(self) -> dict[str, str]:
        """The headers of a request: who is asked goes on with the trace of who asks."""
        return spans.carried()

    def stamped(self, draft: Draft) -> Draft:
        """A draft that is sent later, by somebody else: it belongs to the trace of who hands it in."""
        headers = draft.headers or {}
        trace = {} if "traceparent" in headers else spans.carried()
        return replace(draft, headers={**headers, **trace}) if trace else draft

    @contextmanager
    def publishing(self, namespace: str, topics: Sequence[str], items: Sequence[Any], count: int) -> Iterator[None]:
        """Messages that have a trace of their own keep it, and are linked to."""
        own = [item.headers for item in items if isinstance(item, Draft) and item.headers]
        with self._call("send", "publish", namespace, topics, count, SpanKind.PRODUCER, own):
            yield

    @contextmanager
    def settling(self, verb: str, messages: Sequence[Traced]) -> Iterator[None]:
        first = messages[0]
        topics = list(dict.fromkeys(message.topic for message in messages))
        headers = [message.headers for message in messages]
        with self._call("settle", verb, first.namespace, topics, len(messages), SpanKind.CLIENT, headers) as span:
            if len(messages) == 1:
                span.set_attribute("messaging.message.id", str(first.id))
            yield

    @contextmanager
    def settling_table(self, verb: str, namespace: str, topic: str, table: pa.Table) -> Iterator[None]:
        headers = _headers(table)
        with self._call("settle", verb, namespace, [topic], table.num_rows, SpanKind.CLIENT, headers):
            yield

    async def receiving(self, namespace: str, topics: Sequence[str], group: str, call: Awaitable[T]) -> T:
        """A call that gave nothing is not told: consumers wait all day."""
        told = spans.attributes("receive", "receive", namespace, topics, 0, group)
        span = self._tracer.start_span(spans.name_of("receive", topics), kind=SpanKind.CONSUMER, attributes=told)
        with use_span(span, record_exception=False, set_status_on_exception=False):
            try:
                found = await call
            except Exception as error:
                spans.failed(span, error)
                span.end()
                raise
        table = found[0] if isinstance(found, tuple) else None
        count = len(found) if table is None else table.num_rows  # type: ignore[arg-type]
        if count and span.is_recording():
            given: Any = found
            headers = [message.headers for message in given] if table is None else _headers(table)
            span.set_attribute("messaging.batch.message_count", count)
            for link in spans.links_of(headers):
                span.add_link(link.context)
            span.end()
        return found

    @contextmanager
    def processing(self, handler: str, group: str, message: Traced) -> Iterator[Span]:
        """A handler at work on one message: the trace of who published it goes on here."""
        told = spans.attributes("process", "process", message.namespace, [message.topic], 0, group)
        told |= {"messaging.message.id": str(message.id), "mqueue.handler": handler, "mqueue.attempt": message.attempt}
        span = self._tracer.start_span(
            spans.name_of("process", [message.topic]),
            spans.context_of(message.headers),
            kind=SpanKind.CONSUMER,
            attributes=told,
        )
        with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            yield span

    def judged(self, span: Span, verb: str, error: object) -> None:
        """What became of the message: a handler that failed is a span that failed."""
        span.set_attribute("mqueue.verdict", verb)
        if isinstance(error, BaseException):
            span.record_exception(error)
            span.set_status(Status(StatusCode.ERROR))

    @contextmanager
    def _call(
        self,
        kind: str,
        verb: str,
        namespace: str,
        topics: Sequence[str],
        count: int,
        span_kind: SpanKind,
        headers: Sequence[Mapping[str, str | bytes]],
    ) -> Iterator[Span]:
        span = self._tracer.start_span(
            spans.name_of(verb, topics),
            kind=span_kind,
            attributes=spans.attributes(kind, verb, namespace, topics, count),
            links=spans.links_of(headers),
        )
        with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield span
            except Exception as error:
                spans.failed(span, error)
                raise


def _headers(table: pa.Table) -> list[dict[str, str | bytes]]:
    """Of as many messages as a span may have links."""
    if "headers" not in table.schema.names:
        return []
    rows = table.column("headers").slice(0, spans.LINKS_MAX).to_pylist()
    return [{pair["key"]: text(pair["value"]) for pair in row} for row in rows if row]
