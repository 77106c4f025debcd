"""A client that takes without reading, settling or committing: what it makes us keep is bounded, whatever it does."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pika
import pytest
from pamqp import commands, frame, header

from mqueue.server.amqp.vhost import Vhost
from mqueue.testing.server import RunningServer
from tests.integration.amqp_line import AmqpLine, raw
from tests.integration.rabbits import PATIENCE_SECONDS, connected, eventually, port_of, serving
from tests.integration.test_amqp_durable import disk as disk

BODY = b"x" * 100_000


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with serving() as server:
        yield server


@pytest.fixture
def port(server: RunningServer) -> int:
    return port_of(server)


def published(key: str, **told: bool) -> bytes:
    """A message of 100,000 bytes, as it travels."""
    method = frame.marshal(commands.Basic.Publish(exchange="", routing_key=key, **told), 1)
    return method + frame.marshal(header.ContentHeader(0, len(BODY)), 1) + raw(3, 1, BODY)


def unrouted(server: RunningServer) -> int:
    with urlopen(f"{server.url}/metrics") as page:
        text = page.read().decode()
    found = re.search(r'mqueue_amqp_messages_total\{event="unrouted"\} (\S+)', text)
    assert found is not None
    return int(float(found[1]))


def test_who_reads_no_answers_is_not_read(server: RunningServer, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer is as long as its question: 60 MB of messages that come back, of which nobody reads one."""
    monkeypatch.setattr("mqueue.server.amqp.connection.ANSWERS_BYTES_MAX", 1_000_000)
    monkeypatch.setattr("mqueue.server.amqp.session.WAITING_BYTES_MAX", 1_000_000)
    with AmqpLine.opened(port) as line, connected(port) as other:
        channel = other.channel()
        channel.queue_declare("bystander")
        flood = threading.Thread(target=line.send, args=(published("nowhere", mandatory=True) * 600,), daemon=True)
        flood.start()
        seen, same = -1, 0
        while same < 20:  # until nothing is done for it any more, though others are served
            channel.queue_declare("bystander", passive=True)
            before, seen = seen, unrouted(server)
            same = same + 1 if seen == before > 0 else 0
        assert seen < 400  # some are in the buffers of the sockets
        back = 0
        while back < 600:  # it reads again: all is done
            back += isinstance(line.read(), commands.Basic.Return)
        flood.join(PATIENCE_SECONDS)
        assert unrouted(server) == 600


def test_a_transaction_has_an_end(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqueue.server.amqp.connection.HELD_BYTES_MAX", 1_000_000)
    with AmqpLine.opened(port) as line:
        line.ask(commands.Queue.Declare(queue="orders"))
        line.ask(commands.Tx.Select())
        for done in (commands.Tx.Commit(), commands.Tx.Rollback(), commands.Tx.Commit()):
            line.send(published("orders") * 6)
            assert line.ask(done).name in ("Tx.CommitOk", "Tx.RollbackOk")
        line.send(published("orders") * 12)
        told = line.read()
        assert isinstance(told, commands.Connection.Close)
        assert (told.reply_code, "1000000 bytes" in told.reply_text) == (506, True)
    with connected(port) as other:
        assert other.channel().queue_declare("orders", passive=True).method.message_count == 12


def test_what_is_got_counts_as_in_hand_and_not_as_prefetched(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqueue.server.amqp.connection.HANDED_BYTES_MAX", 1_000_000)
    with connected(port) as connection:
        channel = connection.channel()
        channel.queue_declare("heavy")
        channel.confirm_delivery()
        for _ in range(13):
            channel.basic_publish("", "heavy", BODY)
        for _ in range(9):
            channel.basic_get("heavy")
        channel.basic_qos(prefetch_count=1, global_qos=True)
        got: list[int] = []
        channel.basic_consume("heavy", lambda c, m, p, b: got.append(m.delivery_tag))
        eventually(connection, lambda: len(got) == 1)
        with pytest.raises(Exception, match=r"406.*1000020 bytes"):
            channel.basic_get("heavy")
        channel = connection.channel()
        assert sum(channel.basic_get("heavy", auto_ack=True)[0] is not None for _ in range(13)) == 13


def test_properties_count_like_bodies(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqueue.server.amqp.connection.HANDED_BYTES_MAX", 1_000_000)
    monkeypatch.setattr("mqueue.server.amqp.connection.HELD_BYTES_MAX", 1_000_000)
    laden = pika.BasicProperties(headers={"note": b"x" * 60_000})
    with connected(port) as connection:
        channel = connection.channel()
        channel.queue_declare("heavy")
        channel.confirm_delivery()
        for _ in range(30):
            channel.basic_publish("", "heavy", b"", laden)
        got: list[int] = []
        tag = channel.basic_consume("heavy", lambda c, m, p, b: got.append(m.delivery_tag))
        eventually(connection, lambda: len(got) >= 17)
        with pytest.raises(Exception, match=r"406.*bytes"):
            connection.channel().basic_get("heavy")
        channel.basic_cancel(tag)
        channel.basic_nack(0, multiple=True)
        assert all(connection.channel().basic_get("heavy")[0] is not None for _ in range(17))
    with AmqpLine.opened(port) as line:
        properties = commands.Basic.Properties(headers={"note": bytearray(60_000)})
        for number in range(2, 40):  # of each message the body is still to come
            line.say(commands.Channel.Open(), number)
            line.say(commands.Basic.Publish(exchange="", routing_key="heavy"), number)
            line.say(header.ContentHeader(0, 1, properties), number)
        told = line.read_past(commands.Channel.OpenOk)
        assert (told.name, told.reply_code) == ("Connection.Close", 506)


def test_namespaces_that_are_empty_are_forgotten(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those in which somebody is, or something, none is."""
    followed: set[str] = set()
    run_once = Vhost.run_once

    async def seen(vhost: Vhost) -> None:
        followed.add(vhost.namespace)
        await run_once(vhost)

    monkeypatch.setattr(Vhost, "run_once", seen)
    monkeypatch.setattr("mqueue.server.amqp.face._FORGET_SECONDS", 0)
    with connected(port, "inhabited") as connection:
        with connected(port, "furnished") as other:
            other.channel().queue_declare("orders")
        for number in range(10):
            with connected(port, f"empty{number}"):
                pass

        def forgotten() -> bool:
            before = followed.copy()
            followed.clear()
            return before == {"inhabited", "furnished"}

        eventually(connection, forgotten)
        with connected(port, "empty0") as again:
            again.channel().queue_declare("orders")


def test_no_confirm_for_a_channel_that_was_closed(tmp_path: Path, disk: threading.Event) -> None:
    """Its number may be that of a new one by then."""
    with serving(tmp_path) as server, AmqpLine.opened(port_of(server)) as line:
        line.ask(commands.Queue.Declare(queue="orders", durable=True))
        line.ask(commands.Confirm.Select())
        disk.clear()
        line.publish("orders", b"on its way")
        line.say(commands.Basic.Publish(exchange="nowhere"))
        line.say(header.ContentHeader(0, 0))
        assert line.read().reply_code == 404
        line.say(commands.Channel.CloseOk())
        assert isinstance(line.ask(commands.Channel.Open()), commands.Channel.OpenOk)
        disk.set()
        assert isinstance(line.ask(commands.Confirm.Select()), commands.Confirm.SelectOk)
        line.publish("orders", b"after it")
        assert line.read().delivery_tag == 1


def test_a_channel_that_is_closed_while_something_is_done_for_it(tmp_path: Path, disk: threading.Event) -> None:
    """It gets a consumer, and then it has none: the queue goes with it."""
    with serving(tmp_path) as server, AmqpLine.opened(port_of(server)) as line, connected(port_of(server)) as other:
        line.ask(commands.Queue.Declare(queue="passing", auto_delete=True))
        disk.clear()
        line.say(commands.Basic.Consume(queue="passing"))
        line.ask(commands.Channel.Open(), 2)  # the server is at it
        line.say(commands.Basic.Publish(exchange="", routing_key="passing"))
        line.say(header.ContentHeader(0, 1 << 40))
        assert line.read().reply_code == 406
        line.say(commands.Channel.CloseOk())
        disk.set()

        def gone() -> bool:
            try:
                other.channel().queue_declare("passing", passive=True)
            except Exception as error:
                return "404" in str(error)
            return False

        eventually(other, gone)
