"""A confirm is a promise: it comes after the disk has the message, and a server that is killed keeps it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pamqp import commands

from mqueue.broker.commits import Commits
from tests.integration.amqp_line import AmqpLine
from tests.integration.process import Process
from tests.integration.rabbits import PATIENCE_SECONDS, connected, port_of, serving, take


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A disk that syncs while this is set."""
    works, sync = threading.Event(), Commits.sync
    works.set()

    def waiting(self: Commits, batch: int) -> None:
        assert works.wait(PATIENCE_SECONDS)
        sync(self, batch)

    monkeypatch.setattr(Commits, "sync", waiting)
    yield works
    works.set()


def test_nothing_is_confirmed_before_it_is_synced(tmp_path: Path, disk: threading.Event) -> None:
    with serving(tmp_path) as server, AmqpLine.opened(port_of(server)) as line:
        line.ask(commands.Queue.Declare(queue="orders", durable=True))
        line.ask(commands.Confirm.Select())
        disk.clear()
        for number in range(3):
            line.publish("orders", b"%d" % number)
        for number in range(2, 50):  # the server has seen them, and time enough
            assert isinstance(line.ask(commands.Channel.Open(), number), commands.Channel.OpenOk)
        disk.set()
        told = line.read()
        while told.delivery_tag < 3:
            told = line.read()
        assert isinstance(told, commands.Basic.Ack)


@pytest.mark.parametrize("farewell", [True, False])
def test_what_was_sent_before_the_end_is_done(tmp_path: Path, disk: threading.Event, farewell: bool) -> None:
    """Who does not wait for confirms publishes and leaves, while the disk is slow and much is left to do."""
    with serving(tmp_path) as server:
        with AmqpLine.opened(port_of(server)) as line:
            line.ask(commands.Queue.Declare(queue="orders"))
            disk.clear()
            for number in range(2, 102):  # each comes alone: more than may be under way
                line.publish("orders", b"%d" % number)
                line.ask(commands.Channel.Open(), number)
            if farewell:
                line.say(commands.Connection.Close(200, "", 0, 0), 0)
            else:
                line.socket.shutdown(socket.SHUT_WR)
                assert line.read() is None
            disk.set()
            assert not farewell or isinstance(line.read(), commands.Connection.CloseOk)
        with connected(port_of(server)) as other:
            bodies = [body for _, _, body in take(other.channel(), "orders", 100)]
            assert bodies == [b"%d" % number for number in range(2, 102)]


def test_what_was_confirmed_outlives_a_kill(tmp_path: Path) -> None:
    confirmed = 0
    words = ("--data-dir", "data", "--amqp", "127.0.0.1:0")
    with Process(tmp_path, *words) as server, AmqpLine.opened(port(server)) as line:
        line.ask(commands.Queue.Declare(queue="orders", durable=True))
        line.ask(commands.Confirm.Select())
        for number in range(3_000):
            line.publish("orders", b"%d" % number)
        while confirmed < 1_000:
            told = line.read()
            assert isinstance(told, commands.Basic.Ack)
            confirmed = max(confirmed, told.delivery_tag)
        server.kill()
    with Process(tmp_path, *words) as server, connected(port(server)) as connection:
        channel = connection.channel()
        assert channel.queue_declare("orders", passive=True).method.message_count >= confirmed
        bodies = [body for _, _, body in take(channel, "orders", confirmed)]
        assert bodies == [b"%d" % number for number in range(confirmed)]


def port(server: Process) -> int:
    return int(server.addresses["amqp"].rpartition(":")[2])
