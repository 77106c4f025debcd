"""Frames that should not come: each is answered with its code, on its channel or connection, and hurts nobody else."""

from __future__ import annotations

import random
import re
import socket
from collections.abc import Iterator
from urllib.request import urlopen

import pytest
from pamqp import commands, frame, header, heartbeat

from mqueue.testing.server import RunningServer
from tests.integration.amqp_line import GREETING, AmqpLine, raw
from tests.integration.rabbits import connected, eventually, port_of, serving, take

SEED = 20260101


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def port(server: RunningServer) -> int:
    return port_of(server)


@pytest.fixture(autouse=True)
def others_are_served(port: int) -> Iterator[None]:
    """Whatever one connection does, another one works before and after."""
    with connected(port) as other:
        yield
        channel = other.channel()
        channel.queue_declare("bystander", auto_delete=True)
        channel.basic_publish("", "bystander", b"well")
        assert take(channel, "bystander", 1)[0][2] == b"well"


def closing(line: AmqpLine) -> int:
    """The code with which a connection ends."""
    told = line.read()
    assert isinstance(told, commands.Connection.Close), told
    line.say(commands.Connection.CloseOk(), 0)
    assert line.read() is None
    return int(told.reply_code)


def test_another_protocol_is_told_ours(port: int) -> None:
    for begin in (b"GET / HTTP/1.1\r\n\r\n", b"AMQP\x00\x01\x00\x00", b"\x00" * 8):
        with AmqpLine(port) as line:
            line.send(begin)
            assert line.socket.recv(8) == GREETING
            assert line.socket.recv(1) == b""


def test_what_a_server_says_it_can(port: int) -> None:
    with AmqpLine(port) as line:
        line.send(GREETING)
        told = line.read().server_properties["capabilities"]
        assert {name for name, there in told.items() if not there} == {"connection.blocked"}
    with AmqpLine.opened(port) as line:  # what of the rest is a method, or an argument
        for asked in (
            commands.Exchange.Bind(destination="amq.fanout", source="amq.topic", routing_key="k"),
            commands.Basic.Qos(prefetch_count=1),
            commands.Queue.Declare(queue="able"),
            commands.Basic.Consume(queue="able", arguments={"x-priority": 1}),
            commands.Basic.Consume(queue="amq.rabbitmq.reply-to", no_ack=True),
            commands.Confirm.Select(),
        ):
            assert not isinstance(answer := line.ask(asked), commands.Channel.Close | commands.Connection.Close), answer
        line.publish("able", b"x")
        told = [line.read() for _ in range(4)]
        assert {frame.name for frame in told if hasattr(frame, "name")} >= {"Basic.Ack", "Basic.Deliver"}
        delivered = next(frame for frame in told if isinstance(frame, commands.Basic.Deliver))
        line.say(commands.Basic.Nack(delivered.delivery_tag))
        assert isinstance(line.read(), commands.Basic.Deliver)


def test_a_greeting_may_come_byte_by_byte(port: int) -> None:
    with AmqpLine(port) as line:
        for number in range(len(GREETING)):
            line.send(GREETING[number : number + 1])
        assert isinstance(line.read(), commands.Connection.Start)


def test_frames_may_come_byte_by_byte(port: int) -> None:
    with AmqpLine.opened(port) as line:
        for byte in frame.marshal(commands.Queue.Declare(queue="bytes", auto_delete=True), 1):
            line.send(bytes([byte]))
        assert isinstance(line.read(), commands.Queue.DeclareOk)


@pytest.mark.parametrize(
    ("code", "bad"),
    [
        (501, raw(1, 1, b"x" * 131_073)),
        (501, b"\x01\x00\x01\xff\xff\xff\xff" + b"x" * 64),
        (501, raw(1, 1, b"\x00\x3c\x00\x28", end=b"\xcd")),
        (501, raw(1, 1, b"\x00")),
        (501, raw(8, 0, b"late")),
        (502, raw(1, 1, b"\x00\x32\x00\x0a\x00\x00\xff")),
        (502, raw(1, 1, b"\x00\x3c\x00\x28\x00\x00\xff\xff")),
        (504, raw(1, 9, b"\x00\x3c\x00\x28")),
        (504, frame.marshal(commands.Channel.Open(), 1)),
        (530, frame.marshal(commands.Channel.Open(), 2048)),
        (505, raw(2, 1, b"\x00\x3c\x00\x00" + bytes(10))),
        (505, raw(3, 1, b"body")),
        (505, raw(7, 1, b"")),
        (505, raw(3, 0, b"body")),
        (503, frame.marshal(commands.Connection.TuneOk(1, 131_072, 0), 0)),
        (540, raw(1, 1, b"\x00\x63\x00\x01")),
        (503, frame.marshal(commands.Basic.QosOk(), 1)),
        (503, frame.marshal(commands.Connection.Open(), 1)),
    ],
)
def test_bad_frames_end_the_connection(port: int, code: int, bad: bytes) -> None:
    with AmqpLine.opened(port) as line:
        line.send(bad)
        assert closing(line) == code


@pytest.mark.parametrize(
    ("code", "frames"),
    [
        (505, [commands.Basic.Publish(), commands.Basic.Publish()]),
        (505, [commands.Basic.Publish(), commands.Queue.Declare(queue="q")]),
        (505, [commands.Basic.Publish(), commands.Basic.Ack(1)]),
        (505, [commands.Basic.Publish(), header.ContentHeader(0, 5), header.ContentHeader(0, 5)]),
    ],
)
def test_frames_out_of_order_end_the_connection(port: int, code: int, frames: list[object]) -> None:
    with AmqpLine.opened(port) as line:
        for one in frames:
            line.say(one)
        assert closing(line) == code


def test_a_body_that_is_too_long_and_properties_that_are_none(port: int) -> None:
    with AmqpLine.opened(port) as line:
        line.say(commands.Basic.Publish())
        line.say(header.ContentHeader(0, 2))
        line.send(raw(3, 1, b"long"))
        assert closing(line) == 501
    for properties in (b"\xff\xff", b"\x20\x00\x00\x00\x00\xff", b"\x80\x00\x05ab"):
        with AmqpLine.opened(port) as line:
            line.ask(commands.Queue.Declare(queue="q"))
            line.say(commands.Basic.Publish(routing_key="q"))
            line.send(raw(2, 1, b"\x00\x3c\x00\x00" + bytes(8) + properties))
            assert closing(line) == 502


def test_a_channel_that_was_closed_ignores_what_was_on_its_way(port: int) -> None:
    with AmqpLine.opened(port) as line:
        told = line.ask(commands.Basic.Ack(7))
        assert isinstance(told, commands.Channel.Close)
        assert told.reply_code == 406
        line.publish("nowhere", b"late")
        line.say(commands.Channel.CloseOk())
        assert isinstance(line.ask(commands.Channel.Open()), commands.Channel.OpenOk)
        assert isinstance(line.ask(commands.Confirm.Select()), commands.Confirm.SelectOk)


def test_what_nobody_wants_comes_back_at_once(port: int) -> None:
    with AmqpLine.opened(port) as line:  # which does not ask for confirms: nothing else is sent to it
        line.say(commands.Basic.Publish(exchange="", routing_key="nowhere", mandatory=True))
        line.say(header.ContentHeader(0, 0))
        told = line.read()
        assert isinstance(told, commands.Basic.Return)
        assert (told.reply_code, told.routing_key) == (312, "nowhere")


def test_no_channel_before_the_connection_is_open(port: int) -> None:
    with AmqpLine(port) as line:
        line.send(GREETING)
        line.read()
        assert isinstance(line.ask(commands.Channel.Open()), commands.Connection.Close)


def test_a_virtual_host_that_cannot_be(port: int) -> None:
    with AmqpLine(port) as line:
        line.send(GREETING)
        line.read()
        line.ask(commands.Connection.StartOk({}, "AMQPLAIN", "", "en_US"), 0)
    with AmqpLine(port) as line:
        line.send(GREETING)
        line.read()
        line.ask(commands.Connection.StartOk({}, "PLAIN", "\0a\0b", "en_US"), 0)
        line.say(commands.Connection.TuneOk(0, 0, 0), 0)
        told = line.ask(commands.Connection.Open("no such/name"), 0)
        assert isinstance(told, commands.Connection.Close)
        assert told.reply_code == 530


def test_a_client_that_leaves_in_the_middle(port: int) -> None:
    with AmqpLine.opened(port) as line:
        line.ask(commands.Queue.Declare(queue="halfway"))
        line.say(commands.Basic.Publish(routing_key="halfway"))
        line.say(header.ContentHeader(0, 100))
        line.send(raw(3, 1, b"half"))
        line.socket.shutdown(socket.SHUT_WR)
        assert line.read() is None
    with connected(port) as other:
        assert other.channel().queue_declare("halfway", passive=True).method.message_count == 0


def test_heartbeats_are_sent_and_expected(port: int) -> None:
    with AmqpLine.opened(port, heartbeat=1) as line:
        assert isinstance(line.read(), heartbeat.Heartbeat)
        assert line.read_past(heartbeat.Heartbeat) is None  # nothing was heard of us


def test_a_slow_reader_gets_no_more_than_its_buffer_holds(server: RunningServer, port: int) -> None:
    body = b"x" * 100_000
    with connected(port) as other, AmqpLine.opened(port) as line:
        channel = other.channel()
        channel.queue_declare("flood")
        channel.confirm_delivery()
        for _ in range(300):
            channel.basic_publish("", "flood", body)
        line.say(commands.Basic.Consume(queue="flood", no_ack=False))
        assert isinstance(line.read(), commands.Basic.ConsumeOk)
        seen = -1
        while (left := channel.queue_declare("flood", passive=True).method.message_count) != seen:
            seen = left
        assert left > 200  # 30 MB, of which the socket and one buffer take some
        for _ in range(300):
            while not isinstance(line.read(), commands.Basic.Deliver):
                pass
        line.say(commands.Basic.Ack(300, True))
        channel.queue_delete("flood")


def test_a_client_has_no_more_in_hand_than_it_may(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a prefetch: by bytes."""
    monkeypatch.setattr("mqueue.server.amqp.connection.HANDED_BYTES_MAX", 1_000_000)
    with connected(port) as other:
        channel = other.channel()
        channel.queue_declare("heavy")
        channel.confirm_delivery()
        for _ in range(200):
            channel.basic_publish("", "heavy", b"x" * 100_000)
        got: list[int] = []
        channel.basic_consume("heavy", lambda c, m, p, b: got.append(m.delivery_tag))
        eventually(other, lambda: len(got) >= 10)
        for _ in range(50):  # all that is on its way comes, and then no more
            left = channel.queue_declare("heavy", passive=True).method.message_count
        assert left > 0
        while len(got) < 200:
            channel.basic_ack(got[-1], multiple=True)
            seen = len(got)
            eventually(other, lambda seen=seen: len(got) > seen)
        channel.queue_delete("heavy")


def test_what_is_counted(server: RunningServer, port: int) -> None:
    with connected(port) as other:
        channel = other.channel()
        channel.queue_declare("counted", auto_delete=True)
        channel.confirm_delivery()
        channel.basic_publish("", "counted", b"1")
        channel.basic_publish("", "nowhere", b"2")
        take(channel, "counted", 1)
        with urlopen(f"{server.url}/metrics") as page:
            text = page.read().decode()
    for line in (
        'messages_total{event="published"}',
        'messages_total{event="unrouted"}',
        "connections",
        "faults_total",
    ):
        (value,) = re.findall(rf"^mqueue_amqp_{re.escape(line)} (\S+)$", text, re.MULTILINE)
        assert float(value) >= 1


def test_garbage_in_the_middle_of_a_session(port: int) -> None:
    rng = random.Random(SEED)
    with AmqpLine.opened(port) as line:
        line.ask(commands.Queue.Declare(queue="target"))
    good = [
        frame.marshal(commands.Basic.Publish(routing_key="target"), 1),
        frame.marshal(header.ContentHeader(0, 4, commands.Basic.Properties(headers={"a": 1, "b": [1, {"c": "d"}]})), 1),
        raw(3, 1, b"body"),
        frame.marshal(commands.Queue.Declare(queue="target", arguments={"x-message-ttl": 5}), 1),
        frame.marshal(commands.Basic.Consume(queue="target"), 1),
        frame.marshal(commands.Basic.Ack(1), 1),
        frame.marshal(commands.Tx.Select(), 1),
    ]
    for _ in range(60):
        data = bytearray(b"".join(rng.choice(good) for _ in range(rng.randrange(1, 6))))
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with AmqpLine.opened(port) as line:
            line.send(bytes(data))
            line.socket.shutdown(socket.SHUT_WR)
            while line.socket.recv(65536):
                pass
