"""Which calls of a server are told of, where only some are: decided before anything is put together for a span."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mqueue.server.telemetry import ServerSpans

ROUTE: Any = SimpleNamespace(verb="publish", path="/v1/topics/{topic}/messages")
PARENT = f"00-{'a' * 32}-{'b' * 16}-"


def told(headers: dict[str, str], ratio: float | None, chance: Callable[[], float]) -> int:
    """How many spans a publish with these headers makes."""
    made = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(made))
    call: Any = SimpleNamespace(headers=headers, names={"topic": "orders"}, namespace="default")

    async def work() -> Any:
        return SimpleNamespace(status=200)

    answer = asyncio.run(ServerSpans(provider, ratio, chance).told(call, ROUTE, work()))
    assert answer.status == 200
    return len(made.get_finished_spans())


@pytest.mark.parametrize(("thrown", "spans"), [(0.0, 1), (0.24, 1), (0.25, 0), (0.9, 0)])
def test_of_traces_that_begin_here_so_many(thrown: float, spans: int) -> None:
    assert told({}, 0.25, lambda: thrown) == spans
    assert told({"traceparent": "nonsense"}, 0.25, lambda: thrown) == spans


@pytest.mark.parametrize(("flags", "spans"), [("00", 0), ("01", 1), ("02", 0), ("03", 1)])
def test_one_that_began_elsewhere_as_it_is_told_there(flags: str, spans: int) -> None:
    assert told({"traceparent": PARENT + flags}, 0.25, lambda: 1 / 0) == spans


def test_without_a_ratio_the_provider_decides() -> None:
    assert told({}, None, lambda: 1 / 0) == 1
