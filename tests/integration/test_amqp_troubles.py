"""A store that cannot be asked for a moment: what was to be done then is done later, and nothing is held for good."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pamqp import commands
from pika.exceptions import ChannelClosedByBroker

import mqueue
from mqueue import AsyncBroker
from mqueue.model.errors import ShardDown
from mqueue.server.amqp.vhost import Vhost
from mqueue.testing.server import RunningServer
from tests.integration.amqp_line import AmqpLine
from tests.integration.rabbits import PATIENCE_SECONDS, connected, eventually, port_of, serving, take


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with serving() as server:
        yield server


@pytest.fixture
def connection(server: RunningServer) -> Iterator[pika.BlockingConnection]:
    with connected(port_of(server)) as connection:
        yield connection


class Outage:
    """Calls of brokers that fail, each so many times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.left: dict[str, int] = {}

    def of(self, verb: str, times: int = 1) -> None:
        self.left[verb] = times
        whole = getattr(AsyncBroker, verb)

        async def failing(broker: AsyncBroker, *args: Any, **kwargs: Any) -> Any:
            if self.left[verb]:
                self.left[verb] -= 1
                raise ShardDown("the shard is down")
            return await whole(broker, *args, **kwargs)

        self._monkeypatch.setattr(AsyncBroker, verb, failing)


def test_a_namespace_that_cannot_be_reached_holds_up_no_other(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(port_of(server), "lost"), connected(port_of(server), "found") as connection:
        run_once = Vhost.run_once

        async def failing(vhost: Vhost) -> None:
            if vhost.namespace == "lost":
                raise ShardDown("the shard is down")
            await run_once(vhost)

        monkeypatch.setattr(Vhost, "run_once", failing)
        channel = connection.channel()
        channel.queue_declare("brief", arguments={"x-expires": 1})

        def gone() -> bool:
            try:
                connection.channel().queue_declare("brief", passive=True)
            except ChannelClosedByBroker as error:
                return error.reply_code == 404
            return False

        eventually(connection, gone)


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch) -> Outage:
    return Outage(monkeypatch)


def test_the_dead_wait_for_room(connection: pika.BlockingConnection) -> None:
    """One of two queues that they go to is full for a while: it gets them when it has room, the other one once."""
    channel = connection.channel()
    channel.queue_declare("small", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.queue_declare("wide")
    for queue in ("small", "wide"):
        channel.queue_bind(queue, "amq.fanout")
    channel.queue_declare("orders", arguments={"x-dead-letter-exchange": "amq.fanout"})
    for number in range(3):
        channel.basic_publish("", "orders", b"%d" % number)
    for _ in range(3):
        method, _, _ = channel.basic_get("orders")
        channel.basic_reject(method.delivery_tag, requeue=False)
    bodies = [b"0", b"1", b"2"]
    assert [body for _, _, body in take(channel, "small", 3)] == bodies
    assert [body for _, _, body in take(channel, "wide", 3)] == bodies
    assert channel.basic_get("wide") == (None, None, None)


@pytest.mark.parametrize("farewell", ["nack", "close", "leave"])
def test_what_cannot_be_given_back_is_given_back_later(
    server: RunningServer, connection: pika.BlockingConnection, outage: Outage, farewell: str
) -> None:
    channel = connection.channel()
    with AmqpLine.opened(port_of(server)) as line:
        line.ask(commands.Queue.Declare(queue="orders"))
        line.publish("orders", b"held")
        assert isinstance(line.ask(commands.Basic.Consume(queue="orders")), commands.Basic.ConsumeOk)
        delivered = line.read()
        line.read(), line.read()
        outage.of("nack", times=2)
        if farewell == "nack":
            line.say(commands.Basic.Nack(delivered.delivery_tag, requeue=True))
            assert isinstance(line.ask(commands.Basic.Cancel(delivered.consumer_tag)), commands.Basic.CancelOk)
        elif farewell == "close":
            assert isinstance(line.ask(commands.Channel.Close(200, "", 0, 0)), commands.Channel.CloseOk)
    method, _, body = take(channel, "orders", 1)[0]
    assert (method.redelivered, body, outage.left["nack"]) == (True, b"held", 0)


def test_an_ack_that_cannot_be_written_ends_the_connection_and_the_message_comes_again(
    server: RunningServer, connection: pika.BlockingConnection, outage: Outage
) -> None:
    channel = connection.channel()
    with AmqpLine.opened(port_of(server)) as line:
        line.ask(commands.Queue.Declare(queue="orders"))
        line.publish("orders", b"held")
        line.ask(commands.Basic.Consume(queue="orders"))
        tag = line.read().delivery_tag
        line.read(), line.read()
        outage.of("ack")
        told = line.ask(commands.Basic.Ack(tag))
        assert isinstance(told, commands.Connection.Close), told
        method, _, body = take(channel, "orders", 1)[0]
    assert (method.redelivered, body) == (True, b"held")


@pytest.mark.parametrize("verb", ["publish_many", "delete_topic"])
def test_queues_that_are_to_go_go_later(
    server: RunningServer, connection: pika.BlockingConnection, outage: Outage, verb: str
) -> None:
    """With their connection, or their last consumer; then the names are free."""
    with connected(port_of(server)) as other:
        channel = other.channel()
        names = ["mine", "my own", "passing"]
        for name in names:
            channel.queue_declare(name, exclusive=name != "passing", auto_delete=name == "passing")
            channel.queue_bind(name, "amq.fanout")
        channel.basic_consume("passing", lambda *_: None)
        outage.of(verb, times=4)
    with mqueue.Client(server.url) as native:
        eventually(connection, lambda: not {"mine", "my._20own", "passing"} & {*native.topics()})
    for name in names:
        connection.channel().queue_declare(name, arguments={"x-max-length": 1})
        connection.channel().queue_delete(name)


def test_a_queue_that_is_declared_while_it_is_deleted_is_whole(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()
    delete_topic = AsyncBroker.delete_topic

    async def slow(broker: AsyncBroker, topic: str) -> None:
        begun.set()
        await asyncio.to_thread(may_end.wait, PATIENCE_SECONDS)
        await delete_topic(broker, topic)

    with AmqpLine.opened(port_of(server)) as one, AmqpLine.opened(port_of(server)) as other:
        declare = commands.Queue.Declare(queue="orders", arguments={"x-max-length": 5})
        one.ask(declare)
        monkeypatch.setattr(AsyncBroker, "delete_topic", slow)
        one.say(commands.Queue.Delete(queue="orders"))
        assert begun.wait(PATIENCE_SECONDS)
        other.say(declare)
        for _ in range(20):  # time enough for it
            with connected(port_of(server)):
                pass
        may_end.set()
        assert isinstance(one.read(), commands.Queue.DeleteOk)
        assert isinstance(other.read(), commands.Queue.DeclareOk)
    with mqueue.Client(server.url) as native:
        assert native.settings("orders")["max_depth"] == 5


def test_what_is_not_acked_by_hand_is_acked_later(
    server: RunningServer, connection: pika.BlockingConnection, outage: Outage
) -> None:
    channel = connection.channel()
    channel.queue_declare("orders")
    outage.of("ack")
    got: list[bytes] = []
    channel.basic_consume("orders", lambda *told: got.append(told[3]), auto_ack=True)
    channel.basic_publish("", "orders", b"once")
    with mqueue.Client(server.url) as native:
        eventually(connection, lambda: bool(got) and not native.stats("orders").groups["default"].leased)
        assert native.stats("orders").groups["default"].acked == 1
    assert got == [b"once"]
