"""What is done over AMQP and Flight is told of as what is done over HTTP: in the histograms, and as spans."""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest
from msgspec.structs import replace

from mqueue.config import Config, Metrics, Telemetry
from mqueue.testing.server import RunningServer
from tests.integration.asking import Asking
from tests.integration.collector import Collector
from tests.integration.flying import Flying, batch, with_flight
from tests.integration.rabbits import config as with_amqp
from tests.integration.rabbits import connected, port_of
from tests.integration.test_metrics import numbers, of

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
LINK = (PARENT[3:35], PARENT[36:52])


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    with Collector() as made:
        yield made


def told(config: Config, collector: Collector) -> Config:
    return replace(config, telemetry=Telemetry(f"{collector.url}/v1/traces"), metrics=Metrics(interval_ms=0))


def counts(server: RunningServer) -> dict[str, float]:
    """How many publishes, deliveries and settle calls the histograms have."""
    found = numbers(Asking(server.url))
    return {verb: of(found, f"mqueue_{verb}_seconds_count") for verb in ("publish", "deliver", "settle")}


def test_amqp(collector: Collector) -> None:
    with RunningServer(told(with_amqp(None), collector)) as server:
        before = counts(server)
        with connected(port_of(server)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("orders")
            about = pika.BasicProperties(headers={"traceparent": PARENT})
            channel.basic_publish("", "orders", b"1", about)
            channel.basic_publish("", "orders", b"2", about)
            method, _, body = next(channel.consume("orders"))
            assert body == b"1"
            channel.basic_ack(method.delivery_tag)
            channel.cancel()
            assert channel.basic_get("orders", auto_ack=True)[2] == b"2"
        publish, deliver, ack = collector.named("publish orders", "deliver orders", "ack orders")
        after = counts(server)
    assert [one.links for one in (publish, deliver, ack)] == [[LINK]] * 3
    assert deliver.attributes["messaging.consumer.group.name"] == "default"
    assert ack.attributes["messaging.operation.type"] == "settle"
    assert publish.attributes["messaging.operation.type"] == "send"
    least = {"publish": 2, "deliver": 1, "settle": 2}  # a retry is no measure of a delivery
    assert all(after[verb] - before[verb] >= count for verb, count in least.items()), after


def test_flight(collector: Collector) -> None:
    with RunningServer(told(with_flight(), collector)) as server:
        f = Flying(server)
        f.put("t", batch(b"1", b"2"))
        with f.exchange("t") as stream:
            lease, _ = stream.receive(5)
            stream.ask(ack={"lease": lease})
        publish, deliver, _ = collector.named("publish t", "deliver t", "ack t")
        after = counts(server)
    assert [one.attributes["messaging.batch.message_count"] for one in (publish, deliver)] == [2, 2]
    assert after == {"publish": 1, "deliver": 1, "settle": 1}
