"""Other clients of RabbitMQ, as released: aio-pika, pika's select connection, kombu, Dramatiq, FastStream."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import aio_pika
import dramatiq
import kombu
import pika
import pytest
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from faststream.rabbit import RabbitBroker, RabbitQueue

from mqueue.testing.server import RunningServer
from tests.integration.rabbits import PATIENCE_SECONDS, parameters, port_of, serving


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def url(server: RunningServer) -> str:
    return f"amqp://guest:guest@127.0.0.1:{port_of(server)}"


def test_aio_pika(url: str) -> None:
    async def run() -> None:
        connection = await aio_pika.connect_robust(f"{url}/aio-pika")
        async with connection, asyncio.timeout(PATIENCE_SECONDS):
            channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
            await channel.set_qos(prefetch_count=10)
            exchange = await channel.declare_exchange("events", aio_pika.ExchangeType.TOPIC, durable=True)
            queue = await channel.declare_queue("orders", durable=True, arguments={"x-max-priority": 3})
            await queue.bind(exchange, "order.*")
            bodies = {b"%d" % number for number in range(50)}
            await asyncio.gather(
                *(exchange.publish(aio_pika.Message(body, delivery_mode=2), "order.made") for body in bodies)
            )
            got: set[bytes] = set()
            async with queue.iterator() as messages:
                async for message in messages:
                    async with message.process(requeue=True):
                        if message.body == b"7" and not message.redelivered:
                            continue
                        got.add(message.body)
                    if got >= bodies - {b"7"}:
                        break
            with pytest.raises(aio_pika.exceptions.DeliveryError):
                await exchange.publish(aio_pika.Message(b""), "nobody", mandatory=True)
            async with (await connection.channel(publisher_confirms=False)).transaction():
                await channel.default_exchange.publish(aio_pika.Message(b"in tx"), "orders")
            await queue.purge()
            await queue.delete(if_unused=False, if_empty=False)

    asyncio.run(run())


def test_pika_select(server: RunningServer) -> None:
    """Callbacks all the way: open, declare, publish, confirm, consume, cancel, close."""
    story: list[str] = []

    def opened(connection: Any) -> None:
        connection.channel(on_open_callback=has_channel)

    def has_channel(channel: Any) -> None:
        channel.queue_declare("select", auto_delete=True, callback=lambda _: declared(channel))

    def declared(channel: Any) -> None:
        channel.confirm_delivery(lambda frame: confirmed(channel, frame))
        channel.basic_publish("", "select", b"hello")

    def confirmed(channel: Any, frame: Any) -> None:
        story.append(type(frame.method).__name__)
        channel.basic_consume("select", delivered)

    def delivered(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        story.append(body.decode())
        channel.basic_ack(method.delivery_tag)
        channel.basic_cancel(method.consumer_tag, callback=lambda _: channel.connection.close())

    def closed(connection: Any, reason: Any) -> None:
        story.append(type(reason).__name__)
        connection.ioloop.stop()

    connection = pika.SelectConnection(
        parameters(port_of(server)), on_open_callback=opened, on_close_callback=closed, on_open_error_callback=closed
    )
    connection.ioloop.call_later(PATIENCE_SECONDS, connection.ioloop.stop)
    connection.ioloop.start()
    connection.ioloop.close()
    assert story == ["Ack", "hello", "ConnectionClosedByClient"]


def test_kombu(url: str) -> None:
    with kombu.Connection(f"{url}/kombu", connect_timeout=PATIENCE_SECONDS) as connection:
        exchange = kombu.Exchange("media", "direct", durable=True)
        queue = kombu.Queue("video", exchange=exchange, routing_key="video")
        with connection.Producer(serializer="json") as producer:
            producer.publish({"n": 1}, exchange=exchange, routing_key="video", declare=[queue], retry=True)
        got: list[object] = []

        def take(body: object, message: Any) -> None:
            got.append(body)
            message.ack()

        with connection.Consumer(queue, callbacks=[take]):
            connection.drain_events(timeout=PATIENCE_SECONDS)
        assert got == [{"n": 1}]
        simple = connection.SimpleQueue("simple")
        simple.put("hello")
        message = simple.get(timeout=PATIENCE_SECONDS)
        assert message.payload == "hello"
        message.ack()
        simple.close()


def test_dramatiq(url: str) -> None:
    """Delays and retries are queues with dead letters: it declares three for each."""
    broker = RabbitmqBroker(url=f"{url}/dramatiq")
    tried: list[int] = []

    def work(number: int) -> None:
        tried.append(number)
        if tried.count(number) == 1 and number == 2:
            raise RuntimeError("once more")

    actor: Any = dramatiq.actor(work, broker=broker, queue_name="jobs", max_retries=3, min_backoff=10, max_backoff=20)
    worker = dramatiq.Worker(broker, worker_threads=2, worker_timeout=100)
    worker.start()
    try:
        actor.send(1)
        actor.send(2)
        actor.send_with_options(args=(3,), delay=20)
        broker.join("jobs", timeout=int(PATIENCE_SECONDS * 1000), min_successes=3)
        worker.join()
    finally:
        worker.stop()
        broker.close()
    assert sorted(tried) == [1, 2, 2, 3]


def test_faststream(url: str) -> None:
    async def run() -> None:
        broker = RabbitBroker(f"{url}/faststream")
        got: asyncio.Queue[dict[str, int]] = asyncio.Queue()

        @broker.subscriber(RabbitQueue("stream", durable=True))
        async def handle(order: dict[str, int]) -> dict[str, int]:
            await got.put(order)
            return {"answer": order["n"] + 1}

        async with broker, asyncio.timeout(PATIENCE_SECONDS):
            await broker.start()
            answer = await broker.request({"n": 1}, queue="stream", timeout=PATIENCE_SECONDS)
            assert await got.get() == {"n": 1}
            assert await answer.decode() == {"answer": 2}

    asyncio.run(run())
