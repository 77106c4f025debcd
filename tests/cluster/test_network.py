"""What a node does when the network between it and others is slow, silent or one-way: nobody else waits for that, and
nobody waits for ever."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import mqueue
from mqueue.assembly.process import free_port
from mqueue.cluster.time import ShardClock
from mqueue.config import Cluster, Config, Metrics, Secret
from mqueue.log.postgres import migrate
from mqueue.log.postgres.link import Link
from mqueue.model.errors import Unavailable
from mqueue.policy.routing import virtual_shard
from mqueue.testing import NodeServer, PostgresServer
from mqueue.testing.server import RunningServer
from tests.cluster.faults.stage import moved, port_of
from tests.cluster.network.proxy import Weather
from tests.cluster.network.wires import HOLE, Wire, Wires

HOLE_SECONDS = 10.0
"""As long as a statement is waited for, at least."""


@pytest.fixture(scope="module")
def wires() -> Iterator[Wires]:
    with Wires() as wires:
        yield wires


def topic_on(server: int, servers: int = 2) -> str:
    return next(name for name in map("t{}".format, range(100)) if virtual_shard("default", name) % servers == server)


def over_wires(wires: Wires, urls: list[str]) -> tuple[Config, list[Wire]]:
    lines = [wires.open(port_of(url)) for url in urls]
    moved_urls = tuple(Secret(moved(url, wire.port)) for url, wire in zip(urls, lines, strict=True))
    return Config(metrics=Metrics(enabled=False), cluster=Cluster(moved_urls)), lines


# Slow


@pytest.mark.long
def test_a_node_joins_a_shard_that_is_far_away(wires: Wires, database: str) -> None:
    """Its clock cannot be read as well as one that is near: that makes things late, and nothing more."""
    link = Link(database, "test")
    migrate.migrate(link)
    link.close()
    config, (wire,) = over_wires(wires, [database])
    wire.set(Weather(latency=0.03))
    with RunningServer(config) as node, mqueue.Client(node.url) as client:
        client.publish("t", b"1", delay="200ms")
        published = time.monotonic()
        (message,) = client.receive("t", wait="30s")
        assert message.payload == b"1"
        assert time.monotonic() - published > 0.1
        message.ack()


def test_a_clock_keeps_what_a_long_look_does_not_contradict() -> None:
    clock = ShardClock()
    assert not clock.set(1_000_000, 3_000_000)
    assert not clock.is_set
    assert clock.set(1_000_000, 1_000)
    assert 1_000_000 <= clock.now() < 1_000_000 + 5_000
    before = clock.shown()
    assert clock.set(before - 300, 500_000)
    assert clock.shown() >= before
    assert clock.set(before + 60_000, 500_000)
    assert clock.now() >= before + 60_000
    assert clock.set(before, 500_000)  # set back: time stands still, and what the server shows does not
    assert before <= clock.shown() < before + 30_000
    assert clock.now() >= before + 60_000


def test_who_knows_nothing_takes_a_long_look_for_the_earliest_that_it_can_mean() -> None:
    clock = ShardClock()
    assert clock.set(1_000_000, 800_000)
    assert 1_000_000 <= clock.now() < 1_000_000 + 400


def test_an_answer_that_was_late_turns_no_clock_back() -> None:
    """It left the server 200 ms ago, and what was known is a little more than it allows: a lease that is handed out by
    such a clock would end 200 ms before whoever has it thinks, once somebody has looked again."""
    clock = ShardClock()
    assert clock.set(1_000_000, 20_000)
    before, begun = clock.shown(), time.monotonic()
    assert before < 1_000_000 + 10, "it may have been that early when the answer left"
    assert clock.set(1_000_000 - 200, 200_000)
    assert clock.shown() - before >= (time.monotonic() - begun) * 1000 - 25


# Silent


def test_a_shard_that_is_silent_holds_up_nobody_who_asks_for_what_another_has(
    wires: Wires, postgres: PostgresServer
) -> None:
    """Which server has a message is asked of all of them."""
    urls = [postgres.create(f"silent_{number}") for number in range(2)]
    config, lines = over_wires(wires, urls)
    with RunningServer(config) as node, mqueue.Client(node.url, timeout="60s") as client:
        ids = [client.publish(topic_on(server), b"1").id for server in range(2)]
        lines[1].set(HOLE)
        try:
            begun = time.monotonic()
            for _ in range(20):  # more than there are threads
                assert client.trace(ids[0]).events
            assert time.monotonic() - begun < HOLE_SECONDS
        finally:
            lines[1].heal()


@pytest.mark.long
def test_an_owner_that_is_silent_is_not_waited_for(wires: Wires, database: str, tmp_path: Path) -> None:
    """It lives, and its session goes on; only the others do not reach it."""
    with ExitStack() as open_now:
        port = free_port()
        wire = wires.open(port)
        owner = open_now.enter_context(
            NodeServer(
                {"cluster.databaseUrls": [database], "cluster.address": f"http://127.0.0.1:{wire.port}"},
                tmp_path / "owner",
                port=port,
            )
        )
        other = open_now.enter_context(
            NodeServer({"cluster.databaseUrls": [database], "cluster.owns": False}, tmp_path / "other")
        )
        at_owner = open_now.enter_context(mqueue.Client(owner.url))
        at_other = open_now.enter_context(mqueue.Client(other.url, retry=False, timeout="120s"))
        at_other.publish("t", b"1")
        at_other.receive("t", wait="60s")[0].ack()
        wire.set(HOLE)
        at_other.publish("t", b"2")
        begun = time.monotonic()
        with pytest.raises(Unavailable) as told:
            at_other.receive("t", wait="1s")
        assert told.value.code == "owner_unreachable"
        assert time.monotonic() - begun < 60  # and not until an answer is due
        (message,) = at_owner.receive("t", wait="60s")
        message.ack()
        wire.heal(reset=True)
        at_other.publish("t", b"3")
        (message,) = at_other.receive("t", wait="60s")
        assert message.payload == b"3"
        message.ack()


@pytest.mark.long
def test_a_node_ends_soon_though_all_its_shards_are_silent(wires: Wires, postgres: PostgresServer) -> None:
    """What it cannot give back ends with its session."""
    config, lines = over_wires(wires, [postgres.create(f"ending_{number}") for number in range(4)])
    with RunningServer(config) as node:
        with mqueue.Client(node.url) as client:
            for server in range(4):
                client.publish(topic_on(server, 4), b"1")
                assert client.receive(topic_on(server, 4), wait="60s")
        for wire in lines:
            wire.set(HOLE)
        begun = time.monotonic()
    assert time.monotonic() - begun < 60


# Gone without a word


def test_the_kernel_looks_after_connections_of_callers(database: str) -> None:
    config = Config(metrics=Metrics(enabled=False), cluster=Cluster((Secret(database),)))
    with RunningServer(config) as node:
        port = port_of(f"{node.url}/")
        with socket.create_connection(("127.0.0.1", port)) as caller:
            caller.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
            assert caller.recv(12) == b"HTTP/1.1 200"
            assert _timers(port, caller.getsockname()[1]) == ["02"]


def _timers(port: int, caller: int) -> list[str]:
    """Of the side of a server: 02 is the timer that asks whether the other side is there."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
    return [row[5][:2] for row in rows if row[1].endswith(f":{port:04X}") and row[2].endswith(f":{caller:04X}")]


def test_the_server_looks_after_connections_of_ours(database: str) -> None:
    link = Link(database, "test")
    try:
        names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
        found = link.call("select current_setting(n) from unnest(%s::text[]) n", (list(names),))
    finally:
        link.close()
    assert [row[0] for row in found] == ["15", "5", "3", "30000"]
