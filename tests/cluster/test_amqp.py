"""AMQP at the nodes of a cluster: what is declared at one is there at the other, and so are the messages."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pika
import pytest

import mqueue
from mqueue.testing import DevCluster
from tests.cluster.patience import PATIENCE_SECONDS, wait_until
from tests.integration.rabbits import PERSISTENT, connected, eventually, take
from tests.integration.test_amqp_celery import Workers


@pytest.fixture(scope="module")
def cluster() -> Iterator[DevCluster]:
    with DevCluster(shards=2, nodes=2, settings={"broker.listeners.amqp": "127.0.0.1:0"}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def ports(cluster: DevCluster) -> list[int]:
    return [int(node.addresses["amqp"].rpartition(":")[2]) for node in cluster.nodes]


@pytest.fixture
def ends(ports: list[int], request: pytest.FixtureRequest) -> Iterator[list[pika.BlockingConnection]]:
    """A connection to each node, in a vhost of the test."""
    with connected(ports[0], request.node.name) as one, connected(ports[1], request.node.name) as other:
        yield [one, other]


def test_a_queue_is_the_same_at_both_nodes(ends: list[pika.BlockingConnection]) -> None:
    here, there = (end.channel() for end in ends)
    here.queue_declare("orders", durable=True, arguments={"x-max-priority": 5})
    there.queue_declare("orders", durable=True, passive=True)
    here.confirm_delivery()
    bodies = [b"%d" % number for number in range(50)]
    for body in bodies:
        here.basic_publish("", "orders", body, PERSISTENT, mandatory=True)
    assert [body for _, _, body in take(there, "orders", 50)] == bodies
    here.basic_publish("", "orders", b"again", PERSISTENT)
    method, _, _ = there.basic_get("orders")
    there.basic_nack(method.delivery_tag, requeue=True)
    method, _, body = take(here, "orders", 1)[0]
    assert (method.redelivered, body) == (True, b"again")


def test_those_who_publish_one_by_one_share_calls_and_nothing_else(
    ports: list[int], request: pytest.FixtureRequest
) -> None:
    """Each is told of his own message: of some one is refused, which costs nobody else anything."""
    clients, rounds = 8, 10
    too_much = pika.BasicProperties(delivery_mode=2, headers={"note": "x" * 70_000})

    def publish(number: int) -> int:
        refused = 0
        with connected(ports[number % 2], request.node.name) as connection:
            channel = connection.channel()
            channel.queue_declare("orders", durable=True)
            channel.confirm_delivery()
            for turn in range(rounds):
                channel.basic_publish("", "orders", b"%d of %d" % (turn, number), PERSISTENT, mandatory=True)
                try:
                    channel.basic_publish("", "orders", b"?", too_much if number % 4 == 0 else PERSISTENT)
                except pika.exceptions.NackError:
                    refused += 1
        return refused

    with ThreadPoolExecutor(clients) as threads:
        refused = list(threads.map(publish, range(clients)))
    assert refused == [0 if number % 4 else rounds for number in range(clients)]
    with connected(ports[0], request.node.name) as connection:
        found = [body for _, _, body in take(connection.channel(), "orders", 2 * clients * rounds - sum(refused))]
    assert found.count(b"?") == clients * rounds - sum(refused)
    for number in range(clients):
        own = [body for body in found if body.endswith(b" of %d" % number)]
        assert own == [b"%d of %d" % (turn, number) for turn in range(rounds)], "in order, each once"


def test_a_fan_out_over_servers(
    ends: list[pika.BlockingConnection], cluster: DevCluster, request: pytest.FixtureRequest
) -> None:
    """Some queues live at one PostgreSQL server, some at the other: confirmed when all have it."""
    here, there = (end.channel() for end in ends)
    here.exchange_declare("events", "fanout", durable=True)
    names = [f"q{number}" for number in range(8)]
    for name in names:
        there.queue_declare(name, durable=True)
        there.queue_bind(name, "events")
    here.confirm_delivery()
    with mqueue.Client(cluster.urls[0], namespace=request.node.name) as client:
        eventually(ends[0], lambda: _reaches_all(here, client, names))


def _reaches_all(
    channel: pika.adapters.blocking_connection.BlockingChannel, client: mqueue.Client, names: list[str]
) -> bool:
    """What was bound at the other node is seen within a second: until then a message goes to some."""
    before = {name: client.stats(name).published for name in names}
    channel.basic_publish("events", "", b"all", PERSISTENT)
    return all(client.stats(name).published == before[name] + 1 for name in names)


def test_a_purge_leaves_what_the_other_node_handed_out(ends: list[pika.BlockingConnection]) -> None:
    here, there = (end.channel() for end in ends)
    here.queue_declare("orders", durable=True)
    here.confirm_delivery()
    for body in (b"held", b"1", b"2"):
        here.basic_publish("", "orders", body, PERSISTENT)
    method, _, _ = there.basic_get("orders")
    assert here.queue_purge("orders").method.message_count == 2
    there.basic_nack(method.delivery_tag, requeue=True)
    method, _, body = take(here, "orders", 1)[0]
    assert (method.redelivered, body) == (True, b"held")
    assert there.queue_purge("orders").method.message_count == 0


def test_what_is_dropped_from_the_head_is_a_dead_letter(ends: list[pika.BlockingConnection]) -> None:
    here, there = (end.channel() for end in ends)
    there.queue_declare("graves", durable=True)
    dead = {"x-max-length": 3, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves"}
    here.queue_declare("orders", durable=True, arguments=dead)
    there.queue_declare("orders", durable=True, passive=True)
    for channel in (here, there):
        channel.confirm_delivery()
    for number in range(20):
        (here, there)[number % 2].basic_publish("", "orders", b"%d" % number, PERSISTENT)
    found = take(there, "graves", 17)
    assert sorted(int(body) for _, _, body in found) == list(range(17)), "both nodes hand them on, side by side"
    assert {properties.headers["x-death"][0]["reason"] for _, properties, _ in found} == {"maxlen"}
    assert [body for _, _, body in take(here, "orders", 3)] == [b"17", b"18", b"19"]


def test_what_consumers_have_fills_no_queue(ends: list[pika.BlockingConnection]) -> None:
    here, there = (end.channel() for end in ends)
    there.queue_declare("graves", durable=True)
    dead = {"x-max-length": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves"}
    here.queue_declare("orders", durable=True, arguments=dead)
    there.queue_declare("orders", durable=True, passive=True)
    for channel in (here, there):
        channel.confirm_delivery()
    for number in range(2):
        here.basic_publish("", "orders", b"%d" % number, PERSISTENT)
        there.basic_get("orders")
    for number in range(2, 6):
        (here, there)[number % 2].basic_publish("", "orders", b"%d" % number, PERSISTENT)
    assert sorted(body for _, _, body in take(there, "graves", 3)) == [b"2", b"3", b"4"]
    assert [body for _, _, body in take(here, "orders", 1)] == [b"5"]


def test_dead_letters_and_their_queues(ends: list[pika.BlockingConnection]) -> None:
    here, there = (end.channel() for end in ends)
    there.queue_declare("graves", durable=True)
    here.queue_declare(
        "orders", durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves"}
    )
    here.basic_publish("", "orders", b"dead", PERSISTENT)
    method, _, _ = take(here, "orders", 1, ack=False)[0]
    here.basic_reject(method.delivery_tag, requeue=False)
    _, properties, body = take(there, "graves", 1)[0]
    assert (body, properties.headers["x-death"][0]["queue"]) == (b"dead", "orders")


def test_a_consumer_is_told_when_its_queue_is_deleted_at_another_node(ends: list[pika.BlockingConnection]) -> None:
    here, there = (end.channel() for end in ends)
    here.queue_declare("orders", durable=True)
    cancelled: list[object] = []
    here.add_on_cancel_callback(cancelled.append)
    here.basic_consume("orders", lambda *_: None)
    there.queue_delete("orders")
    eventually(ends[0], lambda: bool(cancelled))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_celery_over_two_nodes(ports: list[int], tmp_path: Path) -> None:
    """Whoever sends is at one node, the worker at the other."""
    sender, there = Workers(ports[0], "celery", tmp_path), Workers(ports[1], "celery", tmp_path)
    try:
        there.start("--pool", "solo")
        assert sender.send("add", 2, 3).get(timeout=PATIENCE_SECONDS) == 5
        assert sender.send("twice", "t").get(timeout=PATIENCE_SECONDS) == "t"
        wait_until(lambda: sender.app.control.ping() == [{"w@test": {"ok": "pong"}}])
    finally:
        there.close()
        sender.close()
