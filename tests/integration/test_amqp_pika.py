"""pika, as released: publish and confirm, consume and settle, exchanges, the rules of queues."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker, NackError, UnroutableError

import mqueue
from mqueue.testing.server import RunningServer
from tests.integration.rabbits import PERSISTENT, connected, eventually, port_of, serving, take


@pytest.fixture(scope="module", params=["memory", "disk"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    directory: Path | None = tmp_path_factory.mktemp("data") if request.param == "disk" else None
    with serving(directory) as server:
        yield server


@pytest.fixture
def connection(server: RunningServer, request: pytest.FixtureRequest) -> Iterator[pika.BlockingConnection]:
    with connected(port_of(server), vhost=name_of(request)) as connection:
        yield connection


@pytest.fixture
def channel(connection: pika.BlockingConnection) -> BlockingChannel:
    channel = connection.channel()
    channel.confirm_delivery()
    return channel


@pytest.fixture
def native(server: RunningServer, request: pytest.FixtureRequest) -> Iterator[mqueue.Client]:
    """The same namespace, as everybody else sees it."""
    with mqueue.Client(server.url, namespace=name_of(request)) as client:
        yield client


def name_of(request: pytest.FixtureRequest) -> str:
    """Each test has a namespace of its own."""
    return "".join(sign if sign.isalnum() else "-" for sign in request.node.name)


def closed_with(code: int) -> Any:
    return pytest.raises(ChannelClosedByBroker, match=f"^\\({code}, ")


# Publish and consume


def test_what_was_confirmed_comes_in_order(channel: BlockingChannel) -> None:
    channel.queue_declare("orders", durable=True)
    bodies = [b"%d" % number for number in range(200)]
    for body in bodies:
        channel.basic_publish("", "orders", body, PERSISTENT)
    assert channel.queue_declare("orders", passive=True).method.message_count == 200
    assert [body for _, _, body in take(channel, "orders", 200)] == bodies
    assert channel.queue_declare("orders", passive=True).method.message_count == 0


def test_properties_come_as_they_were_sent(channel: BlockingChannel) -> None:
    channel.queue_declare("orders")
    sent = pika.BasicProperties(
        content_type="application/json",
        content_encoding="utf-8",
        headers={"text": "t", "number": 7, "big": 1 << 40, "yes": True, "list": [1, "a", {"b": None}]},
        delivery_mode=1,
        priority=4,
        correlation_id="c",
        reply_to="r",
        expiration="60000",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        user_id="guest",
        app_id="a",
    )
    channel.basic_publish("", "orders", b"{}", sent)
    channel.basic_publish("", "orders", b"")
    (method, got, body), (_, bare, empty) = take(channel, "orders", 2)
    assert (method.exchange, method.routing_key, method.redelivered, body) == ("", "orders", False, b"{}")
    assert vars(got) == vars(sent)
    assert vars(bare) == vars(pika.BasicProperties())
    assert empty == b""


def test_large_messages_travel_in_many_frames(channel: BlockingChannel) -> None:
    channel.queue_declare("orders")
    body = bytes(range(256)) * 4000
    channel.basic_publish("", "orders", body)
    assert take(channel, "orders", 1)[0][2] == body


def test_a_message_that_is_too_large_ends_the_channel(channel: BlockingChannel) -> None:
    channel.queue_declare("orders")
    with closed_with(406):
        channel.basic_publish("", "orders", b"x" * (1 << 20 | 1))


def test_what_is_given_back_comes_again_at_once_and_says_so(channel: BlockingChannel) -> None:
    channel.queue_declare("orders")
    for body in (b"1", b"2"):
        channel.basic_publish("", "orders", body)
    method, _, _ = channel.basic_get("orders")
    assert not method.redelivered
    channel.basic_nack(method.delivery_tag, requeue=True)
    assert [(m.redelivered, body) for m, _, body in take(channel, "orders", 2)] == [(True, b"1"), (False, b"2")]


def test_what_a_connection_held_comes_back_when_it_ends(
    server: RunningServer, channel: BlockingChannel, request: Any
) -> None:
    channel.queue_declare("orders")
    for number in range(10):
        channel.basic_publish("", "orders", b"%d" % number)
    with connected(port_of(server), vhost=name_of(request)) as other:
        held = take(other.channel(), "orders", 5, ack=False)
        assert len(held) == 5
    found = take(channel, "orders", 10)
    assert sorted(body for _, _, body in found) == [b"%d" % number for number in range(10)]
    assert sum(method.redelivered for method, _, _ in found) >= 5


def test_acks_of_many_and_unknown_tags(connection: pika.BlockingConnection, channel: BlockingChannel) -> None:
    channel.queue_declare("orders")
    for number in range(5):
        channel.basic_publish("", "orders", b"%d" % number)
    tags = [channel.basic_get("orders")[0].delivery_tag for _ in range(5)]
    channel.basic_ack(tags[3], multiple=True)
    channel.basic_nack(tags[4], requeue=False)
    assert channel.queue_declare("orders", passive=True).method.message_count == 0
    channel.basic_ack(99)
    with closed_with(406):
        channel.queue_declare("orders", passive=True)
    assert connection.is_open
    again = connection.channel()
    assert again.basic_get("orders") == (None, None, None)


def test_prefetch_of_consumers_and_of_channels(connection: pika.BlockingConnection, channel: BlockingChannel) -> None:
    channel.queue_declare("orders")
    for number in range(20):
        channel.basic_publish("", "orders", b"%d" % number)
    consumer = connection.channel()
    consumer.basic_qos(prefetch_count=3)
    got: list[int] = []
    consumer.basic_consume("orders", lambda c, m, p, b: got.append(m.delivery_tag))
    eventually(connection, lambda: len(got) == 3)
    channel.queue_declare("orders", passive=True)  # all that was on its way has come
    assert len(got) == 3
    consumer.basic_ack(got[1], multiple=True)
    eventually(connection, lambda: len(got) == 5)
    consumer.basic_qos(prefetch_count=4, global_qos=True)
    consumer.basic_consume("orders", lambda c, m, p, b: got.append(m.delivery_tag))
    eventually(connection, lambda: len(got) == 6)
    channel.queue_declare("orders", passive=True)
    assert len(got) == 6


def test_consumers_take_turns(connection: pika.BlockingConnection, channel: BlockingChannel) -> None:
    channel.queue_declare("orders")
    counts = [0, 0]
    for number in (0, 1):

        def count(c: Any, m: Any, p: Any, b: Any, number: int = number) -> None:
            counts[number] += 1

        channel.basic_consume("orders", count, auto_ack=True)
    for _ in range(20):
        channel.basic_publish("", "orders", b"x")
    eventually(connection, lambda: sum(counts) == 20)
    assert counts == [10, 10]


def test_recover_brings_back_all_that_is_not_settled(channel: BlockingChannel) -> None:
    channel.queue_declare("orders")
    channel.basic_publish("", "orders", b"1")
    assert channel.basic_get("orders")[2] == b"1"
    channel.basic_recover(requeue=True)
    method, _, body = channel.basic_get("orders")
    assert (method.redelivered, body) == (True, b"1")


def test_a_consumer_is_told_when_its_queue_is_deleted(
    connection: pika.BlockingConnection, channel: BlockingChannel
) -> None:
    channel.queue_declare("orders")
    cancelled: list[str] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = channel.basic_consume("orders", lambda *_: None)
    connection.channel().queue_delete("orders")
    eventually(connection, lambda: cancelled == [tag])


def test_a_slow_client_is_not_flooded(connection: pika.BlockingConnection, channel: BlockingChannel) -> None:
    channel.queue_declare("orders")
    got: list[bytes] = []
    channel.basic_publish("", "orders", b"1")
    channel.basic_consume("orders", lambda c, m, p, b: got.append(b), auto_ack=True)
    eventually(connection, lambda: len(got) == 1)
    channel._impl.flow(False)
    eventually(connection, lambda: channel.queue_declare("orders", passive=True) is not None)
    channel.basic_publish("", "orders", b"2")
    assert channel.queue_declare("orders", passive=True).method.message_count == 1
    channel._impl.flow(True)
    eventually(connection, lambda: len(got) == 2)


# Exchanges


def test_exchanges_of_every_type(channel: BlockingChannel) -> None:
    for kind in ("direct", "fanout", "topic", "headers"):
        channel.exchange_declare(f"x-{kind}", kind)
        channel.queue_declare(f"q-{kind}")
    channel.queue_bind("q-direct", "x-direct", "red")
    channel.queue_bind("q-fanout", "x-fanout", "whatever")
    channel.queue_bind("q-topic", "x-topic", "*.orange.#")
    channel.queue_bind("q-headers", "x-headers", "", {"x-match": "any", "a": 1, "b": "two"})
    sent = [("x-direct", "red", None), ("x-fanout", "", None), ("x-topic", "quick.orange", None)]
    sent += [("x-headers", "", {"b": "two"})]
    for exchange, key, headers in sent:
        channel.basic_publish(exchange, key, exchange.encode(), pika.BasicProperties(headers=headers), mandatory=True)
    for exchange, key, headers in (
        ("x-direct", "blue", None),
        ("x-topic", "orange", None),
        ("x-headers", "", {"a": 2}),
    ):
        with pytest.raises(UnroutableError):
            channel.basic_publish(exchange, key, b"", pika.BasicProperties(headers=headers), mandatory=True)
    for kind in ("direct", "fanout", "topic", "headers"):
        method, _, body = channel.basic_get(f"q-{kind}", auto_ack=True)
        assert (method.exchange, body) == (f"x-{kind}", f"x-{kind}".encode())
        assert channel.basic_get(f"q-{kind}") == (None, None, None)


def test_a_fan_out_lies_in_every_queue(channel: BlockingChannel) -> None:
    for number in range(5):
        channel.queue_declare(f"q{number}")
        channel.queue_bind(f"q{number}", "amq.fanout")
    channel.basic_publish("amq.fanout", "", b"all", mandatory=True)
    assert [channel.basic_get(f"q{number}", auto_ack=True)[2] for number in range(5)] == [b"all"] * 5
    channel.queue_unbind("q0", "amq.fanout")
    channel.queue_delete("q1")
    channel.basic_publish("amq.fanout", "", b"rest", mandatory=True)
    assert channel.basic_get("q0") == (None, None, None)
    assert [channel.basic_get(f"q{number}", auto_ack=True)[2] for number in range(2, 5)] == [b"rest"] * 3


def test_exchanges_bound_to_exchanges_and_alternates(channel: BlockingChannel) -> None:
    channel.exchange_declare("lost", "fanout")
    channel.exchange_declare("inner", "direct")
    channel.exchange_declare("outer", "topic", arguments={"alternate-exchange": "lost"})
    channel.exchange_bind("inner", "outer", "#.red")
    for queue, exchange in (("red", "inner"), ("found", "lost")):
        channel.queue_declare(queue)
        channel.queue_bind(queue, exchange, "a.red")
    channel.basic_publish("outer", "a.red", b"1", mandatory=True)
    channel.basic_publish("outer", "a.blue", b"2", mandatory=True)
    assert channel.basic_get("red", auto_ack=True)[2] == b"1"
    assert channel.basic_get("found", auto_ack=True)[2] == b"2"
    channel.exchange_unbind("inner", "outer", "#.red")
    channel.basic_publish("outer", "a.red", b"3", mandatory=True)
    assert channel.basic_get("found", auto_ack=True)[2] == b"3"


def test_a_delayed_exchange_holds_messages_back(
    connection: pika.BlockingConnection, channel: BlockingChannel, native: mqueue.Client
) -> None:
    channel.exchange_declare("later", "x-delayed-message", arguments={"x-delayed-type": "direct"})
    channel.queue_declare("orders")
    channel.queue_bind("orders", "later", "k")
    channel.basic_publish("later", "k", b"in an hour", pika.BasicProperties(headers={"x-delay": 3_600_000}))
    channel.basic_publish("later", "k", b"soon", pika.BasicProperties(headers={"x-delay": 50}))
    assert native.stats("orders").scheduled >= 1
    assert take(channel, "orders", 1)[0][2] == b"soon"
    assert [m.text() for m in native.scheduled("orders")] == ["in an hour"]


# The rules of queues


def test_priorities_higher_first(channel: BlockingChannel) -> None:
    channel.queue_declare("orders", arguments={"x-max-priority": 5})
    for level in (0, 9, 1, 5, None):
        channel.basic_publish("", "orders", b"%d" % (level or 0), pika.BasicProperties(priority=level))
    assert [body for _, _, body in take(channel, "orders", 5)] == [b"9", b"5", b"1", b"0", b"0"]


def test_the_dead_go_where_they_are_sent(channel: BlockingChannel) -> None:
    channel.exchange_declare("dlx", "topic")
    channel.queue_declare("graves")
    channel.queue_bind("graves", "dlx", "#")
    channel.queue_declare("orders", arguments={"x-dead-letter-exchange": "dlx", "x-message-ttl": 3_600_000})
    channel.basic_publish("", "orders", b"rejected", pika.BasicProperties(headers={"own": "o"}, content_type="a/b"))
    method, _, _ = channel.basic_get("orders")
    channel.basic_reject(method.delivery_tag, requeue=False)
    method, properties, body = take(channel, "graves", 1)[0]
    assert (method.exchange, method.routing_key, body) == ("dlx", "orders", b"rejected")
    assert (properties.content_type, properties.headers["own"]) == ("a/b", "o")
    (death,) = properties.headers["x-death"]
    assert (death["queue"], death["reason"], death["count"], death["exchange"], death["routing-keys"]) == (
        "orders",
        "rejected",
        1,
        "",
        ["orders"],
    )
    channel.basic_publish("", "orders", b"expired", pika.BasicProperties(expiration="1"))
    _, properties, body = take(channel, "graves", 1)[0]
    assert body == b"expired"
    assert properties.expiration is None
    assert properties.headers["x-first-death-reason"] == "expired"
    assert properties.headers["x-death"][0]["original-expiration"] == "1"


def test_retries_by_a_queue_that_waits(channel: BlockingChannel) -> None:
    channel.queue_declare("work", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "wait"})
    channel.queue_declare(
        "wait", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work", "x-message-ttl": 20}
    )
    channel.basic_publish("", "work", b"1")
    for turn in range(3):
        method, properties, _ = take(channel, "work", 1, ack=False)[0]
        deaths = {(d["queue"], d["reason"]): d["count"] for d in (properties.headers or {}).get("x-death", [])}
        assert deaths == ({("work", "rejected"): turn, ("wait", "expired"): turn} if turn else {})
        channel.basic_reject(method.delivery_tag, requeue=False)


def test_a_full_queue_refuses_or_drops_its_head(channel: BlockingChannel) -> None:
    channel.queue_declare("strict", arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    for body in (b"1", b"2"):
        channel.basic_publish("", "strict", body)
    with pytest.raises(NackError):
        channel.basic_publish("", "strict", b"3")
    channel.queue_declare("loose", arguments={"x-max-length": 2})
    for body in (b"1", b"2", b"3"):
        channel.basic_publish("", "loose", body)
    assert [body for _, _, body in take(channel, "loose", 2)] == [b"2", b"3"]
    assert [body for _, _, body in take(channel, "strict", 2)] == [b"1", b"2"]


def test_what_is_dropped_from_the_head_is_a_dead_letter(channel: BlockingChannel) -> None:
    channel.exchange_declare("dead", "direct")
    channel.queue_declare("graves")
    channel.queue_bind("graves", "dead", "orders")
    channel.queue_declare("orders", arguments={"x-max-length": 2, "x-dead-letter-exchange": "dead"})
    for number in range(5):
        channel.basic_publish("", "orders", b"%d" % number, pika.BasicProperties(headers={"number": number}))
    found = take(channel, "graves", 3)
    assert [(body, properties.headers["number"]) for _, properties, body in found] == [(b"0", 0), (b"1", 1), (b"2", 2)]
    for method, properties, _ in found:
        assert (method.exchange, method.routing_key) == ("dead", "orders")
        (death,) = properties.headers["x-death"]
        assert (death["reason"], death["queue"], death["exchange"], death["count"]) == ("maxlen", "orders", "", 1)
        assert properties.headers["x-first-death-reason"] == "maxlen"
    assert [body for _, _, body in take(channel, "orders", 2)] == [b"3", b"4"]


def test_what_consumers_have_fills_no_queue(channel: BlockingChannel, connection: pika.BlockingConnection) -> None:
    """Nor does what is delayed: of what comes meanwhile the last is kept, and the rest goes where the dead go."""
    channel.queue_declare("graves")
    dead = {"x-max-length": 2, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves"}
    channel.queue_declare("orders", arguments=dead)
    channel.exchange_declare("later", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    channel.queue_bind("orders", "later")
    channel.basic_publish("later", "", b"delayed", pika.BasicProperties(headers={"x-delay": 3_600_000}))
    holder = connection.channel()
    holder.basic_qos(prefetch_count=3)
    got: list[bytes] = []
    holder.basic_consume("orders", lambda *told: got.append(told[3]))
    for number in range(10):
        channel.basic_publish("", "orders", b"%d" % number)
        if number == 1:
            eventually(connection, lambda: len(got) == 2)
        if number == 2:
            eventually(connection, lambda: len(got) == 3)
    assert [body for _, _, body in take(channel, "graves", 5)] == [b"3", b"4", b"5", b"6", b"7"]
    assert channel.queue_declare("orders", passive=True).method.message_count == 2
    holder.basic_ack(3, multiple=True)
    eventually(connection, lambda: len(got) == 5)
    assert got == [b"0", b"1", b"2", b"8", b"9"]


def test_what_is_dropped_does_not_go_round(channel: BlockingChannel, native: mqueue.Client) -> None:
    own = {"x-max-length": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders"}
    channel.queue_declare("orders", arguments=own)
    for body in (b"1", b"2"):
        channel.basic_publish("", "orders", body)
    eventually(channel.connection, lambda: native.stats("orders.dlq").groups["default"].acked == 1)
    assert [body for _, _, body in take(channel, "orders", 1)] == [b"2"]


def test_a_delivery_limit_ends_in_the_dead_letters(channel: BlockingChannel) -> None:
    channel.queue_declare("graves")
    channel.queue_declare(
        "orders",
        arguments={"x-delivery-limit": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves"},
    )
    channel.basic_publish("", "orders", b"poison")
    for _ in range(2):
        method, _, _ = take(channel, "orders", 1, ack=False)[0]
        channel.basic_nack(method.delivery_tag, requeue=True)
    assert take(channel, "graves", 1)[0][1].headers["x-death"][0]["reason"] == "delivery_limit"


def test_exclusive_and_automatic_queues_go(
    server: RunningServer,
    connection: pika.BlockingConnection,
    channel: BlockingChannel,
    native: mqueue.Client,
    request: Any,
) -> None:
    name = channel.queue_declare("", exclusive=True).method.queue
    assert name.startswith("amq.gen-")
    with connected(port_of(server), vhost=name_of(request)) as other:
        with closed_with(405):
            other.channel().basic_get(name)
        mine = other.channel().queue_declare("", exclusive=True).method.queue
        assert mine in native.topics()
    eventually(connection, lambda: mine not in native.topics())
    channel.queue_declare("passing", auto_delete=True)
    with closed_with(405):
        connection.channel().queue_declare("passing", auto_delete=True, exclusive=True)
    channel.queue_declare("mine", auto_delete=True, exclusive=True)
    for queue in ("passing", "mine"):
        channel.basic_cancel(channel.basic_consume(queue, lambda *_: None))
        with closed_with(404):
            connection.channel().queue_declare(queue, passive=True)
    assert name in native.topics()


def test_a_queue_that_nobody_uses_expires(
    connection: pika.BlockingConnection, channel: BlockingChannel, native: mqueue.Client
) -> None:
    channel.queue_declare("brief", arguments={"x-expires": 100})
    eventually(connection, lambda: "brief" not in native.topics())


def test_consumers_of_a_higher_priority_come_first(
    connection: pika.BlockingConnection, channel: BlockingChannel
) -> None:
    channel.queue_declare("orders")
    got: dict[str, list[int]] = {"low": [], "plain": [], "high": []}
    channels = {}
    for name, arguments in {"low": {"x-priority": -5}, "plain": None, "high": {"x-priority": 5}}.items():
        channels[name] = connection.channel()
        channels[name].basic_qos(prefetch_count=2)
        channels[name].basic_consume(
            "orders", lambda c, m, p, b, name=name: got[name].append(m.delivery_tag), arguments=arguments
        )

    def publish(count: int, **expected: int) -> None:
        for _ in range(count):
            channel.basic_publish("", "orders", b"x")
        eventually(connection, lambda: {name: len(tags) for name, tags in got.items()} == expected)

    publish(2, high=2, plain=0, low=0)
    publish(3, high=2, plain=2, low=1)
    channels["high"].basic_ack(got["high"][-1], multiple=True)
    publish(1, high=3, plain=2, low=1)
    channels["plain"].basic_ack(got["plain"][-1], multiple=True)
    publish(3, high=4, plain=4, low=1)
    channels["high"].close()
    eventually(connection, lambda: len(got["low"]) == 2)  # what it had comes back: one is left that nobody has room for
    assert channel.queue_declare("orders", passive=True).method.message_count == 1


def test_purge_and_delete(channel: BlockingChannel, connection: pika.BlockingConnection) -> None:
    channel.queue_declare("orders")
    for _ in range(3):
        channel.basic_publish("", "orders", b"x")
    with closed_with(406):
        channel.queue_delete("orders", if_empty=True)
    channel = connection.channel()
    assert channel.queue_purge("orders").method.message_count == 3
    tag = channel.basic_consume("orders", lambda *_: None)
    with closed_with(406):
        channel.queue_delete("orders", if_unused=True)
    channel = connection.channel()
    assert tag
    assert channel.queue_delete("orders", if_empty=True, if_unused=True).method.message_count == 0
    assert channel.queue_delete("orders").method.message_count == 0  # one that is not there is no error


def test_purge_leaves_what_somebody_has(
    channel: BlockingChannel, connection: pika.BlockingConnection, native: mqueue.Client
) -> None:
    channel.exchange_declare("later", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    channel.queue_declare("orders")
    channel.queue_bind("orders", "later")
    for body in (b"got", b"consumed", b"ready", b"too"):
        channel.basic_publish("", "orders", body)
    channel.basic_publish("later", "", b"delayed", pika.BasicProperties(headers={"x-delay": 3_600_000}))
    holder = connection.channel()
    got, _, _ = holder.basic_get("orders")
    holder.basic_qos(prefetch_count=1)
    found: list[Any] = []
    tag = holder.basic_consume("orders", lambda _, method, __, body: found.append((method.delivery_tag, body)))
    eventually(connection, lambda: bool(found))
    assert channel.queue_purge("orders").method.message_count == 2
    assert channel.queue_declare("orders", passive=True).method.message_count == 0
    holder.basic_cancel(tag)
    holder.basic_nack(found[0][0], requeue=True)
    holder.basic_ack(got.delivery_tag)
    (delayed,) = native.scheduled("orders")
    native.reschedule(delayed, delay=0)
    came = [(method.redelivered, body) for method, _, body in take(channel, "orders", 2)]
    assert came == [(True, b"consumed"), (False, b"delayed")]
    assert channel.queue_purge("orders").method.message_count == 0


def test_purge_of_a_topic_that_nobody_declared(channel: BlockingChannel, native: mqueue.Client) -> None:
    native.publish_many("jobs", [b"1", b"2", b"3"])
    assert channel.queue_purge("jobs").method.message_count == 3
    native.publish("jobs", b"4")
    assert [body for _, _, body in take(channel, "jobs", 1)] == [b"4"]


def test_tx(channel: BlockingChannel, connection: pika.BlockingConnection) -> None:
    channel.queue_declare("orders")
    channel.basic_publish("", "orders", b"1")
    tx = connection.channel()
    tx.tx_select()
    method, _, _ = tx.basic_get("orders")
    tx.basic_ack(method.delivery_tag)
    tx.basic_publish("", "orders", b"2")
    assert tx.queue_declare("orders", passive=True).method.message_count == 0
    tx.tx_rollback()
    tx.basic_ack(method.delivery_tag)
    tx.basic_publish("", "orders", b"3")
    tx.tx_commit()
    tx.close()
    assert [body for _, _, body in take(channel, "orders", 1)] == [b"3"]


# Both worlds


def test_topics_are_queues_and_queues_are_topics(channel: BlockingChannel, native: mqueue.Client) -> None:
    native.publish("native", {"n": 1}, headers={"a": "b"})
    method, properties, body = take(channel, "native", 1)[0]
    assert (method.routing_key, body, properties.content_type) == ("native", b'{"n":1}', "application/json")
    assert properties.headers == {"a": "b"}
    channel.queue_declare("orders@home")
    channel.basic_publish(
        "", "orders@home", b"text", pika.BasicProperties(content_type="text/plain", headers={"c": "d"})
    )
    (message,) = native.receive("orders._40home")
    assert (message.payload, message.headers["content-type"], message.headers["c"]) == (b"text", "text/plain", "d")
    message.ack()
    channel.basic_publish("", "native", b"back")
    (message,) = native.receive("native")
    assert (message.payload, dict(message.headers)) != (b"", {})


# What is refused


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (406, {"x-message-ttl": -1}),
        (406, {"x-max-priority": 256}),
        (406, {"x-overflow": "reject-publish-dlx"}),
        (406, {"x-queue-type": "stream"}),
        (406, {"x-dead-letter-routing-key": "k"}),
    ],
)
def test_queues_that_cannot_be(channel: BlockingChannel, code: int, arguments: dict[str, Any]) -> None:
    with closed_with(code):
        channel.queue_declare("orders", arguments=arguments)


def test_what_is_not_there_or_not_the_same(connection: pika.BlockingConnection) -> None:
    def refused(code: int, call: Any) -> None:
        with closed_with(code):
            call(connection.channel())

    refused(404, lambda c: c.queue_declare("nowhere", passive=True))
    refused(404, lambda c: c.basic_consume("nowhere", lambda *_: None))
    refused(404, lambda c: c.exchange_declare("nowhere", passive=True))
    refused(404, lambda c: c.queue_bind("nowhere", "amq.topic", "k"))
    refused(403, lambda c: c.queue_declare("amq.mine"))
    refused(403, lambda c: c.exchange_declare("amq.mine"))
    refused(403, lambda c: c.exchange_delete("amq.topic"))
    connection.channel().queue_declare("orders", durable=True)
    refused(406, lambda c: c.queue_declare("orders", durable=False))
    refused(406, lambda c: c.queue_declare("orders", durable=True, arguments={"x-message-ttl": 1}))
    connection.channel().exchange_declare("events", "topic")
    refused(406, lambda c: c.exchange_declare("events", "direct"))
    channel = connection.channel()
    channel.confirm_delivery()
    with closed_with(404):
        channel.basic_publish("nowhere", "k", b"")


@pytest.mark.parametrize(
    ("code", "call"),
    [
        (540, lambda c: c.basic_qos(prefetch_size=10)),
        (540, lambda c: c.queue_declare("q", arguments={"x-max-length-bytes": 10})),
        (503, lambda c: c.exchange_declare("e", "no-such-type")),
    ],
)
def test_what_ends_the_connection(connection: pika.BlockingConnection, code: int, call: Any) -> None:
    with pytest.raises(ConnectionClosedByBroker, match=f"^\\({code}, "):
        call(connection.channel())
