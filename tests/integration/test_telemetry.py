"""Spans of clients, workers and servers, as a real collector is told of them over OTLP."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator
from urllib.request import urlopen

import pyarrow as pa
import pytest
from msgspec.structs import replace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

import mqueue
from mqueue.assembly.server import Serving
from mqueue.assembly.telemetry import exporting_of
from mqueue.config import BadConfig, Config, Metrics, Secret, Telemetry, load
from mqueue.model.errors import BadSetting, NotFound
from mqueue.testing.server import RunningServer
from tests.integration.asking import Asking
from tests.integration.collector import Collector
from tests.integration.test_metrics import numbers, of

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
AT_ONCE = {"OTEL_BSP_SCHEDULE_DELAY": "20"}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Spans go out at once. Loggers of the SDK are as they were afterwards."""
    for name, value in AT_ONCE.items():
        monkeypatch.setenv(name, value)
    loggers = [logging.getLogger(f"opentelemetry.{name}") for name in ("exporter", "sdk")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as made:
        yield made


@pytest.fixture
def told() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(told: InMemorySpanExporter) -> Iterator[TracerProvider]:
    """That of a program with its own OpenTelemetry."""
    made = TracerProvider(shutdown_on_exit=False)
    made.add_span_processor(SimpleSpanProcessor(told))
    yield made
    made.shutdown()


def config(url: str, **more: object) -> Config:
    return Config(telemetry=Telemetry(f"{url}/v1/traces", **more), metrics=Metrics(interval_ms=0))


def hexed(context) -> tuple[str, str]:
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


def parts(message) -> tuple[str, str]:
    """The trace and the span that a message was published in."""
    _, trace, span, _ = message.headers["traceparent"].split("-")
    return trace, span


# Server


def test_a_server_tells_of_publish_deliver_and_settle(collector: Collector) -> None:
    with RunningServer(config(collector.url, service_name="queue-1")) as server:
        ask = Asking(server.url)
        Asking(server.url, traceparent=PARENT, tracestate="v=1").publish("orders", "a", "b")
        lease = ask("POST", "/v1/topics/orders/receive", {"limit": 5}).json["lease"]
        ask("POST", f"/v1/leases/{lease}/ack", {})
        publish, deliver, settle = collector.named("publish orders", "deliver orders", "ack")
    assert (publish.trace, publish.parent) == (PARENT[3:35], PARENT[36:52])
    assert publish.service == "queue-1"
    assert publish.attributes["messaging.operation.type"] == "send"
    assert deliver.links == [(PARENT[3:35], PARENT[36:52])]  # one: both messages are of one trace
    assert deliver.attributes["messaging.batch.message_count"] == 2
    assert deliver.attributes["messaging.consumer.group.name"] == "default"
    assert settle.attributes["messaging.operation.type"] == "settle"
    assert {publish.kind, deliver.kind, settle.kind} == {2}  # SERVER


def test_messages_that_came_without_a_trace_get_that_of_their_publish(collector: Collector) -> None:
    with RunningServer(config(collector.url)) as server:
        ask = Asking(server.url)
        ask.publish("orders", "a")
        [message] = ask("POST", "/v1/topics/orders/receive", {}).json["messages"]
        publish, deliver = collector.named("publish orders", "deliver orders")
    assert message["headers"]["traceparent"].split("-")[1:3] == [publish.trace, publish.span]
    assert deliver.links == [(publish.trace, publish.span)]


def test_who_waits_in_vain_and_who_only_looks_is_no_span(collector: Collector) -> None:
    with RunningServer(config(collector.url)) as server:
        ask = Asking(server.url)
        ask("POST", "/v1/topics/orders/receive", {})
        ask("GET", "/v1/topics")
        ask.publish("orders", "a")
        collector.named("publish orders")
    assert [span.name for span in collector.spans] == ["publish orders"]


def test_what_is_refused_is_a_span_that_failed(collector: Collector) -> None:
    with RunningServer(config(collector.url)) as server:
        ask = Asking(server.url)
        assert ask("POST", "/v1/topics/orders/messages", b"{").status == 400
        [publish] = collector.named("publish orders")
    assert publish.failed
    assert publish.attributes["error.type"] == "bad_json"


def test_messages_that_are_pushed_are_delivered_too(collector: Collector) -> None:
    with RunningServer(config(collector.url)) as server:
        Asking(server.url).publish("orders", "a")
        with urlopen(f"{server.url}/v1/topics/orders/stream", timeout=120) as stream:
            while not stream.readline().startswith(b"event: message"):
                pass
            [deliver] = collector.named("deliver orders")
    assert len(deliver.links) == 1


def test_only_so_many_traces_are_told(collector: Collector) -> None:
    with RunningServer(config(collector.url, sample_ratio=0.0)) as server:
        ask = Asking(server.url)
        ask.publish("orders", "a")
        Asking(server.url, traceparent=PARENT).publish("orders", "b")  # sampled where it began, so here as well
        [message, _] = ask("POST", "/v1/topics/orders/receive", {"limit": 2}).json["messages"]
        collector.named("publish orders")
    assert [span.name for span in collector.spans] == ["publish orders"]
    assert "headers" not in message


def test_a_collector_gets_the_headers_it_wants(collector: Collector) -> None:
    asked = config(collector.url, headers=Secret("x-tenant=a%20b,authorization=Bearer 7"))
    with RunningServer(asked) as server:
        Asking(server.url).publish("orders", "a")
        collector.named("publish orders")
    path, headers = collector.requests[0]
    assert (path, headers["x-tenant"], headers["authorization"]) == ("/v1/traces", "a b", "Bearer 7")


# Trouble


def test_a_collector_that_is_away_costs_spans_and_nothing_else(monkeypatch, caplog) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1000000")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with RunningServer(config("http://127.0.0.1:1")) as server:
        ask = Asking(server.url)
        for _ in range(50):
            ask.publish("orders", "a")  # none of them fails
        found = numbers(ask)
        gone = {r: of(found, "mqueue_telemetry_spans_total", result=r) for r in ("exported", "failed", "dropped")}
        waiting = of(found, "mqueue_telemetry_spans_waiting")
    assert gone["exported"] == 0
    assert gone["failed"] + gone["dropped"] + waiting >= 46
    assert waiting <= 4
    assert [r.message for r in caplog.records if "spans do not get to" in r.message]


def test_what_a_collector_refuses_is_counted_and_told_once(collector: Collector, caplog) -> None:
    caplog.set_level(logging.INFO, "mqueue.server")
    collector.status = 400
    with RunningServer(config(collector.url)) as server:
        ask = Asking(server.url)
        for number in range(1, 4):
            ask.publish("orders", "a")
            collector.wait(lambda number=number: len(collector.requests) >= number)
        collector.status = 200
        ask.publish("orders", "b")
        collector.named("publish orders")
    said = [record.message for record in caplog.records if "spans" in record.message]
    assert said == [
        f"spans do not get to {collector.url}/v1/traces; they are dropped until it takes them",
        f"spans get to {collector.url}/v1/traces again",
    ]


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"MQUEUE_TELEMETRY_ENDPOINT": "collector:4318"}, "MQUEUE_TELEMETRY_ENDPOINT is 'collector:4318'; it takes"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://u:p@c:4318"}, "no password in the URL"),
        ({"MQUEUE_TELEMETRY_SAMPLE_RATIO": "2"}, "a number from 0 to 1"),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "canary"}, "it takes name=value"),
    ],
)
def test_bad_settings_are_named(variables: dict[str, str], problem: str) -> None:
    with pytest.raises(BadConfig) as raised:
        load(None, variables, {})
    assert problem in str(raised.value)
    assert "canary" not in str(raised.value)


def test_variables_of_opentelemetry_are_respected() -> None:
    found = load(None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/", "OTEL_SERVICE_NAME": "q"}, {}).telemetry
    assert (found.endpoint, found.service_name) == ("http://c:4318/v1/traces", "q")
    asked = Config(telemetry=found)
    assert exporting_of(asked, {"OTEL_SDK_DISABLED": "true"}) is None
    assert exporting_of(asked, {"OTEL_TRACES_EXPORTER": "none"}) is None
    with pytest.raises(BadSetting, match="OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc'; spans are sent as http/protobuf"):
        exporting_of(asked, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    with pytest.raises(BadSetting, match="OTEL_BSP_MAX_QUEUE_SIZE is 'many'"):
        exporting_of(asked, {"OTEL_BSP_MAX_QUEUE_SIZE": "many"})
    assert exporting_of(Config(), {}) is None


def test_without_the_extra_there_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("mqueue.client.telemetry", "mqueue.wire.spans"))]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("opentelemetry.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BadSetting, match=r"telemetry.endpoint needs .*: pip install 'mqueue\[telemetry\]'"):
        asyncio.run(Serving(replace(config("http://127.0.0.1:1"), data=Config().data)).start())
    with pytest.raises(BadSetting, match=r"telemetry needs .*: pip install 'mqueue\[telemetry\]'"):
        mqueue.AsyncClient(telemetry=True)


def test_who_did_not_ask_loads_nothing_of_it() -> None:
    import subprocess

    code = (
        "import sys, mqueue, mqueue.assembly.server, mqueue.client.sync, mqueue.assembly.worker;"
        "mqueue.Client('http://127.0.0.1:1'); mqueue.Worker('memory:');"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Clients


def test_a_trace_goes_from_the_producer_to_the_consumer(provider, told) -> None:
    tracer = provider.get_tracer("test")
    with RunningServer(Config()) as server, mqueue.Client(server.url, telemetry=provider) as q:
        with tracer.start_as_current_span("checkout"):
            q.publish_many("orders", ["a", "b", "c"])
        [first, *_] = messages = q.receive("orders", limit=10)
        q.ack(messages)
    publish, checkout, receive, ack = told.get_finished_spans()
    assert [span.name for span in (publish, receive, ack)] == ["publish orders", "receive orders", "ack orders"]
    assert publish.parent.span_id == checkout.context.span_id
    assert publish.kind is SpanKind.PRODUCER
    assert publish.attributes["messaging.batch.message_count"] == 3  # one span, not one a message
    assert parts(first) == hexed(publish.context)
    assert [hexed(link.context) for link in receive.links] == [hexed(publish.context)]
    assert [hexed(link.context) for link in ack.links] == [hexed(publish.context)]


def test_client_and_server_are_one_trace(collector: Collector, provider, told) -> None:
    with RunningServer(config(collector.url)) as server, mqueue.Client(server.url, telemetry=provider) as q:
        q.publish("orders", "a")
        with q.receive("orders")[0]:
            pass
        served = collector.named("publish orders", "deliver orders", "ack")
    publish, receive, ack = told.get_finished_spans()
    for there, here in zip(served, (publish, receive, ack), strict=True):
        assert (there.trace, there.parent) == hexed(here.context)


def test_messages_keep_a_trace_of_their_own_and_are_linked_to(provider, told) -> None:
    with RunningServer(Config()) as server, mqueue.Client(server.url, telemetry=provider) as q:
        q.publish("orders", "a", headers={"traceparent": PARENT})
        assert q.receive("orders")[0].headers["traceparent"] == PARENT
    assert [hexed(link.context) for link in told.get_finished_spans()[0].links] == [(PARENT[3:35], PARENT[36:52])]


def test_tables_are_traced_too(provider, told) -> None:
    with RunningServer(Config()) as server, mqueue.Client(server.url, telemetry=provider) as q:
        q.publish_arrow("orders", pa.table({"payload": [b"a", b"b"]}))
        q.receive_arrow("orders").ack()
        assert len(q.receive_arrow("orders")) == 0
    publish, receive, ack = told.get_finished_spans()
    for span in (receive, ack):
        assert [hexed(link.context) for link in span.links] == [hexed(publish.context)]
        assert span.attributes["messaging.batch.message_count"] == 2


def test_a_producer_keeps_each_message_in_the_trace_of_who_handed_it_in(provider, told) -> None:
    tracer = provider.get_tracer("test")
    with RunningServer(Config()) as server, mqueue.Client(server.url, telemetry=provider) as q:
        with q.producer("orders", linger="1h") as producer:
            for name in ("one", "two"):
                with tracer.start_as_current_span(name):
                    producer.publish(name)
        got = {m.text(): parts(m) for m in q.receive("orders", limit=2)}
    spans = {span.name: span for span in told.get_finished_spans()}
    assert got == {name: hexed(spans[name].context) for name in ("one", "two")}
    assert spans["publish orders"].parent is None
    assert {hexed(link.context) for link in spans["publish orders"].links} == {
        hexed(spans[name].context) for name in ("one", "two")
    }


def test_calls_that_fail_say_so(provider, told) -> None:
    with mqueue.Client("http://127.0.0.1:1", retry=False, telemetry=provider) as q:
        with pytest.raises(mqueue.Error):
            q.publish("orders", "a")
        with pytest.raises(mqueue.Error):
            q.receive("orders")
    assert [span.attributes["error.type"] for span in told.get_finished_spans()] == ["unreachable"] * 2
    assert not any(span.status.is_ok for span in told.get_finished_spans())


@pytest.mark.parametrize("awaited", [True, False])
def test_a_handler_goes_on_with_the_trace_of_its_message(provider, told, awaited: bool) -> None:
    with RunningServer(Config()) as server, mqueue.Client(server.url, telemetry=provider) as q:
        app = mqueue.Worker(server.url, telemetry=provider)
        if awaited:

            @app.handler("orders")
            async def ship(text: str) -> None:
                provider.get_tracer("test").start_span("inside").end()
                app.stop()
        else:

            @app.handler("orders")
            def ship(text: str) -> None:
                provider.get_tracer("test").start_span("inside").end()
                app.stop()

        q.publish("orders", "a")
        asyncio.run(app.serve())
    spans = {span.name: span for span in told.get_finished_spans()}
    process = spans["process orders"]
    assert hexed(process.parent) == hexed(spans["publish orders"].context)
    assert process.attributes["mqueue.verdict"] == "ack"
    assert process.attributes["messaging.message.id"].isdecimal()
    for inside in ("inside", "ack orders"):
        assert hexed(spans[inside].parent) == hexed(process.context)


def test_a_handler_that_fails_is_a_span_that_failed(provider, told) -> None:
    with RunningServer(Config()) as server, mqueue.Client(server.url) as q:
        app = mqueue.Worker(server.url, telemetry=provider)

        @app.handler("orders", reject_on=(ValueError,))
        def ship(text: str) -> None:
            app.stop()
            raise ValueError("no such address")

        q.publish("orders", "a")
        asyncio.run(app.serve())
    process = next(span for span in told.get_finished_spans() if span.name == "process orders")
    assert process.attributes["mqueue.verdict"] == "reject"
    assert not process.status.is_ok
    assert process.events[0].attributes["exception.message"] == "no such address"


def test_a_worker_of_an_embedded_broker_has_spans_of_its_handlers(provider, told) -> None:
    async def work() -> None:
        async with mqueue.AsyncBroker() as q:
            await q.publish("orders", "a", headers={"traceparent": PARENT})
            app = mqueue.Worker(queue=q, telemetry=provider)

            @app.handler("orders")
            async def ship(text: str) -> None:
                app.stop()

            await app.serve()

    asyncio.run(work())
    [process] = told.get_finished_spans()
    assert hexed(process.parent) == (PARENT[3:35], PARENT[36:52])


def test_what_is_no_provider_is_refused() -> None:
    with pytest.raises(BadSetting, match="telemetry 'yes'; it takes true, false or a TracerProvider"):
        mqueue.Client("http://127.0.0.1:1", telemetry="yes")


def test_reading_carries_the_trace_and_is_no_span(provider, told) -> None:
    with RunningServer(Config()) as server, mqueue.Client(server.url, telemetry=provider) as q:
        with pytest.raises(NotFound):
            q.stats("nowhere")
        assert q.topics() == []
    assert told.get_finished_spans() == ()
