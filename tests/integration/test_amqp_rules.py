"""Rules of RabbitMQ that are easy to get nearly right: the default exchange, names, copies, what others publish."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

import mqueue
from mqueue.testing.server import RunningServer
from tests.integration.rabbits import PERSISTENT, connected, eventually, port_of, serving, take


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with serving() as server:
        yield server


@pytest.fixture
def connection(server: RunningServer) -> Iterator[pika.BlockingConnection]:
    with connected(port_of(server)) as connection:
        yield connection


@pytest.mark.parametrize(
    ("code", "call"),
    [
        (403, lambda c: c.exchange_declare("")),
        (403, lambda c: c.exchange_declare("", passive=True)),
        (403, lambda c: c.exchange_delete("")),
        (403, lambda c: c.exchange_delete("amq.nowhere")),
        (403, lambda c: c.queue_bind("bystander", "", "k")),
        (403, lambda c: c.queue_unbind("bystander", "", "k")),
        (403, lambda c: c.exchange_bind("amq.topic", "", "k")),
        (403, lambda c: c.exchange_bind("", "amq.topic", "k")),
        (404, lambda c: c.exchange_bind("amq.topic", "nowhere", "k")),
        (404, lambda c: c.queue_declare("", passive=True)),
        (404, lambda c: c.basic_consume("", print)),
        (405, lambda c: c.queue_declare("bystander", exclusive=True)),
        (406, lambda c: c.basic_consume("bystander", print, arguments={"x-priority": "high"})),
        (406, lambda c: c.basic_consume("bystander", print, arguments={"x-priority": True})),
        (406, lambda c: c.queue_bind("bystander", "amq.headers", "", {"x-match": "some"})),
        (406, lambda c: c.basic_publish("", "bystander", b"", pika.BasicProperties(headers={"CC": "text"}))),
        (406, lambda c: c.basic_publish("", "bystander", b"", pika.BasicProperties(expiration="-1"))),
        (406, lambda c: c.basic_publish("", "bystander", b"", pika.BasicProperties(expiration="soon"))),
        (406, lambda c: c.basic_publish("", "bystander", b"", pika.BasicProperties(expiration="1_000"))),
    ],
)
def test_what_ends_a_channel_and_no_more(connection: pika.BlockingConnection, code: int, call: Any) -> None:
    connection.channel().queue_declare("bystander")
    channel = connection.channel()
    channel.confirm_delivery()
    with pytest.raises(ChannelClosedByBroker, match=f"^\\({code}, "):
        call(channel)
    assert connection.channel().queue_declare("bystander", passive=True)


def test_a_key_that_is_not_named_is_the_last_queue(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    channel.confirm_delivery()
    name = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind("", "amq.direct", "")
    channel.basic_publish("amq.direct", name, b"found", mandatory=True)
    channel.queue_unbind("", "amq.direct", "")
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("amq.direct", name, b"lost", mandatory=True)


@pytest.mark.parametrize("name", ["n" * 255, "队" * 85, "a b/c@d\n", "._2E", "x.dlq"])
def test_names_of_every_kind(connection: pika.BlockingConnection, name: str) -> None:
    channel = connection.channel()
    channel.confirm_delivery()
    channel.exchange_declare(name, "fanout")
    assert channel.queue_declare(name).method.queue == name
    channel.queue_bind(name, name)
    channel.basic_publish(name, "", b"by exchange", PERSISTENT)
    channel.basic_publish("", name, b"straight", PERSISTENT)
    found = take(channel, name, 2)
    assert [(method.exchange, method.routing_key) for method, _, _ in found] == [(name, ""), ("", name)]
    channel.exchange_delete(name)
    channel.queue_delete(name)


def test_copies_go_to_each_queue_once(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    channel.confirm_delivery()
    for queue in ("one", "two", "three"):
        channel.queue_declare(queue, arguments={"x-dead-letter-exchange": "amq.direct"})
        channel.queue_bind(queue, "amq.direct", queue)
    channel.queue_declare("graves")
    channel.queue_bind("graves", "amq.direct", "two")
    copies = pika.BasicProperties(headers={"CC": ["two", "one", "nowhere"], "BCC": ["three"], "own": 1})
    for exchange in ("", "amq.direct"):
        channel.basic_publish(exchange, "one", b"copied", copies, mandatory=True)
        for queue in ("one", "two", "three"):
            (method, properties, _) = channel.basic_get(queue, auto_ack=queue != "three")
            assert (method.routing_key, method.message_count) == ("one", 0)
            assert properties.headers == {"CC": ["two", "one", "nowhere"], "own": 1}
        if not exchange:
            channel.basic_ack(method.delivery_tag)
    take(channel, "graves", 1)  # the second one, by its copy
    channel.basic_reject(method.delivery_tag, requeue=False)
    _, properties, _ = take(channel, "graves", 1)[0]  # it died in the third, and goes by its keys: to two, too
    assert properties.headers["x-death"][0]["routing-keys"] == ["one", "two", "one", "nowhere"]


def test_a_commit_that_a_full_queue_refuses_is_none(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    channel.queue_declare("small", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.tx_select()
    for body in (b"1", b"2"):
        channel.basic_publish("", "small", body)
    with pytest.raises(ChannelClosedByBroker, match=r"^\(406, .*partial tx completion"):
        channel.tx_commit()
    connection.channel().queue_delete("small")


@pytest.mark.parametrize("farewell", ["delete", "cancel", "close"])
def test_the_dead_outlive_their_queue(server: RunningServer, farewell: str) -> None:
    """What was rejected just before a queue goes is where it belongs all the same."""
    with connected(port_of(server)) as other, connected(port_of(server)) as connection:
        other.channel().queue_declare("graves")
        channel = connection.channel()
        channel.confirm_delivery()
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves"}
        channel.queue_declare("brief", auto_delete=True, exclusive=farewell == "close", arguments=dead)
        for number in range(300):
            channel.basic_publish("", "brief", b"%d" % number, PERSISTENT)
        got: list[int] = []
        tag = channel.basic_consume("brief", lambda c, m, p, b: got.append(m.delivery_tag))
        eventually(connection, lambda: len(got) == 300)
        channel.basic_nack(300, multiple=True, requeue=False)
        if farewell == "delete":
            channel.queue_delete("brief")
        elif farewell == "cancel":
            channel.basic_cancel(tag)
        else:
            connection.close()
        assert len(take(other.channel(), "graves", 300)) == 300


def test_the_dead_are_kept_no_longer_than_they_wait(server: RunningServer, connection: pika.BlockingConnection) -> None:
    """Long properties are no hindrance: for others they are not copied."""
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("graves")
    channel.queue_declare("brief", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves"})
    for size in (10, 60_000):
        channel.basic_publish("", "brief", b"x", pika.BasicProperties(headers={"note": "y" * size}))
        method, _, _ = channel.basic_get("brief")
        channel.basic_reject(method.delivery_tag, requeue=False)
        _, properties, _ = take(channel, "graves", 1)[0]
        assert (len(properties.headers["note"]), properties.headers["x-death"][0]["count"]) == (size, 1)
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", "brief", b"x", pika.BasicProperties(headers={"note": "y" * 66_000}))
    with mqueue.Client(server.url) as native:
        eventually(connection, lambda: not list(native.scan("brief.dlq")))


@pytest.mark.parametrize("header", ["hello", "\0\5a", "\0\1qgarbage", b"\0\5a", b"\0\1q\xff\xff\xff", b"", "\x90"])
def test_a_header_of_somebody_else(server: RunningServer, connection: pika.BlockingConnection, header: Any) -> None:
    """Who publishes another way may mean something else by the name: it is a header like others."""
    with mqueue.Client(server.url) as native:
        native.publish("native", b"payload", headers={"amqp": header})
    method, properties, body = take(connection.channel(), "native", 1)[0]
    assert (method.exchange, method.routing_key, body) == ("", "native", b"payload")
    (kept,) = properties.headers.values()
    assert kept in (header, header.decode("utf-8", "ignore") if isinstance(header, bytes) else header)
