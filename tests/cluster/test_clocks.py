"""Whose clock counts: PostgreSQL's. Nodes whose clocks are wrong are right about delays and leases."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from uuid import uuid4

import pytest

import mqueue
from mqueue.config import Cluster, Config, Metrics, Secret
from mqueue.log.postgres import owning
from mqueue.log.postgres.link import Link
from mqueue.policy.routing import virtual_shard
from mqueue.testing import NodeServer, PostgresServer
from mqueue.testing.server import RunningServer
from tests.cluster.patience import wait_until

SKEW_SECONDS = 1_000
"""Far more than what one node says to another is believed for."""
HOUR_MS = 3_600_000
# The wall clock of one process, wrong by so many seconds.
SKEWED = """\
import sys, time

skew = int(sys.argv.pop(1))
wall, wall_ns, gettime_ns = time.time, time.time_ns, time.clock_gettime_ns
time.time = lambda: wall() + skew
time.time_ns = lambda: wall_ns() + skew * 1_000_000_000
time.clock_gettime_ns = lambda clock: gettime_ns(clock) + skew * 1_000_000_000 * (clock == time.CLOCK_REALTIME)

from mqueue.cli.main import main

sys.exit(main())
"""

NEVER_FALLS = "select bool_and(later) from (select at >= lag(at) over (order by base) as later from mqueue.frames) x"


@pytest.fixture(scope="module")
def skewed(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[NodeServer]]:
    """Two nodes: one ahead of PostgreSQL, one behind it."""
    database = postgres_server.create("skewed")
    script = tmp_path_factory.mktemp("clocks") / "skewed.py"
    script.write_text(SKEWED, encoding="utf-8")
    nodes: list[NodeServer] = []
    try:
        for skew in (SKEW_SECONDS, -SKEW_SECONDS):
            program = (sys.executable, str(script), str(skew))
            nodes.append(NodeServer({"cluster.databaseUrls": [database]}, program=program))
        yield nodes
    finally:
        for node in nodes:
            node.close()


def clock(postgres: PostgresServer) -> int:
    return int(postgres.run("select (extract(epoch from clock_timestamp()) * 1000)::bigint"))


def test_delays_and_leases_go_by_the_clock_of_postgresql(postgres: PostgresServer, skewed: list[NodeServer]) -> None:
    """Both nodes, here as publisher and there as owner: what they say lies between two looks at that clock."""
    topics = [f"t{number}" for number in range(8)]
    with mqueue.Client(skewed[0].url) as ahead, mqueue.Client(skewed[1].url) as behind:
        for publisher, consumer in ((ahead, behind), (behind, ahead)):
            for topic in topics:
                before = clock(postgres)
                publisher.publish(topic, b"now")
                publisher.publish(topic, b"later", delay="1h")
                after = clock(postgres)
                (scheduled,) = consumer.scheduled(topic)
                assert before + HOUR_MS <= millis(scheduled.deliver_at) <= after + HOUR_MS
                leased_from = clock(postgres)
                (message,) = consumer.receive(topic, visibility="1h", wait="60s")
                leased_until = clock(postgres)
                assert message.payload == b"now"
                assert before <= millis(message.published_at) <= after
                delivered = consumer.trace(message.id).events[-1]
                assert delivered.kind == "DELIVERED"
                assert leased_from <= millis(delivered.time) <= leased_until
                message.ack()
                consumer.cancel(scheduled.id)


def test_nothing_is_early(skewed: list[NodeServer], postgres: PostgresServer) -> None:
    """Neither what is delayed nor what is leased by somebody else."""
    with mqueue.Client(skewed[0].url) as ahead, mqueue.Client(skewed[1].url) as behind:
        before = clock(postgres)
        ahead.publish("a", b"1", delay="1s")
        behind.publish("b", b"1", delay="1s")
        for client, topic in ((behind, "a"), (ahead, "b")):
            (first,) = client.receive(topic, visibility="1s", wait="60s")
            assert clock(postgres) >= before + 1000
            (second,) = client.receive(topic, wait="60s")
            delivered = [millis(e.time) for e in client.trace(second.id).events if "DELIVERED" in e.kind]
            assert (first.id, second.attempt, len(delivered)) == (second.id, 2, 2)
            assert before + 1000 <= delivered[0] <= delivered[1] - 1000
            assert delivered[1] <= clock(postgres)


def test_time_does_not_fall_when_the_clock_of_postgresql_is_set_back(postgres: PostgresServer, database: str) -> None:
    """By an hour: what is appended then is not older than what was there, and a delay still is one."""
    config = Config(metrics=Metrics(enabled=False), cluster=Cluster((Secret(database),)))
    name = database.rpartition("/")[2]
    with RunningServer(config) as node, mqueue.Client(node.url) as client:
        client.publish("t", b"1")
        postgres.run(
            "create or replace function mqueue.now_ms() returns bigint language sql volatile as"
            " $$ select (extract(epoch from clock_timestamp()) * 1000)::bigint - 3600000 $$",
            name,
        )
        for payload in (b"2", b"3"):
            client.publish("t", payload)
        found = client.receive("t", limit=9)
        assert [message.payload for message in found] == [b"1", b"2", b"3"]
        client.ack(found)
    assert postgres.run(NEVER_FALLS, name) == "t"
    with RunningServer(config) as node, mqueue.Client(node.url) as client:  # a new one knows no better time
        client.publish("t", b"4")
        assert [message.payload for message in client.receive("t", limit=9, wait="60s")] == [b"4"]
    assert postgres.run(NEVER_FALLS, name) == "t"


def millis(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def test_nobody_waits_for_a_session_that_began_before_the_clock_was_set_back(database: str) -> None:
    """Its node died then: by the clock of the server it lasts for another hour."""
    link = Link(database, "test")
    config = Config(metrics=Metrics(enabled=False), cluster=Cluster((Secret(database),)))
    with RunningServer(config) as server, mqueue.Client(server.url, timeout="120s") as client, closing(link):
        client.publish("t", b"1")
        dead, vshard = uuid4(), virtual_shard("default", "t")
        assert owning.beat(link, dead, 1000, "http://127.0.0.1:9", HOUR_MS)
        link.call(
            "update mqueue.vshards set owner = %b, owner_epoch = owner_epoch + 1 where vshard = %b", (dead, vshard)
        )

        def taken_back() -> bool:
            return all(owner != dead for *_, owner in owning.owners(link))

        wait_until(taken_back)
        (message,) = client.receive("t", wait="60s")
        message.ack()
