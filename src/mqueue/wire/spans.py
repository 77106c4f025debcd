"""What clients and servers have in common in the words of OpenTelemetry: the trace in headers, links, attributes.

A trace travels as W3C says, in the headers `traceparent` and `tracestate`, of requests and of messages. Loaded only
where telemetry was asked for; knows no exporter and no settings: whoever has a provider hands it in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, Status, StatusCode, Tracer, TracerProvider, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from mqueue.model.errors import Error

LINKS_MAX = 128
"""Of one span. The messages of a batch mostly have one trace in common, and are one link."""

_W3C = TraceContextTextMapPropagator()
_NAMES = ("traceparent", "tracestate")


def tracer_of(provider: TracerProvider) -> Tracer:
    return provider.get_tracer("mqueue", version("mqueue"))


def context_of(headers: Mapping[str, str | bytes]) -> Context:
    """The trace that a request or a message belongs to; what does not read as one is none."""
    if _NAMES[0] not in headers:
        return Context()
    return _W3C.extract({name: value for name in _NAMES if isinstance(value := headers.get(name), str)}, Context())


def carried(context: Context | None = None) -> dict[str, str]:
    """The headers that say which span this is; empty where there is none. None: the span that is current."""
    headers: dict[str, str] = {}
    _W3C.inject(headers, context)
    return headers


def links_of(messages: Iterable[Mapping[str, str | bytes]]) -> list[Link]:
    """To the spans that messages with these headers were published in, each once."""
    distinct: dict[str, Mapping[str, str | bytes]] = {}
    for headers in messages:
        parent = headers.get(_NAMES[0]) if headers else None
        if isinstance(parent, str) and parent not in distinct:
            distinct[parent] = headers
            if len(distinct) == LINKS_MAX:
                break
    found = (get_current_span(context_of(headers)).get_span_context() for headers in distinct.values())
    return [Link(context) for context in found if context.is_valid]


def attributes(
    kind: str, verb: str, namespace: str, topics: Sequence[str], count: int, group: str = ""
) -> dict[str, Any]:
    """Of something that is done to messages, by the names that OpenTelemetry has for messaging.

    `kind`: send, receive, process or settle; `verb`: what we call it.
    """
    found: dict[str, Any] = {
        "messaging.system": "mqueue",
        "messaging.operation.type": kind,
        "messaging.operation.name": verb,
        "messaging.destination.name": topics[0] if len(topics) == 1 else ",".join(topics),
        "mqueue.namespace": namespace,
    }
    if count:
        found["messaging.batch.message_count"] = count
    if group:
        found["messaging.consumer.group.name"] = group
    return found


def name_of(verb: str, topics: Sequence[str]) -> str:
    """`publish orders`; without the topics where they are several: names of spans are to be few."""
    return f"{verb} {topics[0]}" if len(topics) == 1 else verb


def failed(span: Span, error: BaseException) -> None:
    """Say why. Sentences may hold what users typed, so only of our own errors they are told."""
    if isinstance(error, Error):
        span.set_attribute("error.type", error.code)
        span.set_status(Status(StatusCode.ERROR, error.message))
    else:
        span.set_attribute("error.type", type(error).__name__)
        span.set_status(Status(StatusCode.ERROR))
