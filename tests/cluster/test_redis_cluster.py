"""A Redis Cluster: keys are spread over masters, ours lie at one of them; Sentinels that do not know the name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any
from uuid import UUID

import pytest
from redis import Redis
from redis.exceptions import RedisError

from mqueue.assembly.process import free_port
from mqueue.cluster.redis.line import Access, Away, Line
from mqueue.testing import RedisServer
from tests.cluster.patience import wait_until

PASSWORD = "together"
SLOTS = 16_384
MASTERS = 3
BUS_PORT_MAX = 65_535 - 10_000
SETTINGS = ("cluster-enabled yes", "cluster-node-timeout 1000", "cluster-replica-validity-factor 0")
CLUSTERS = [UUID(int=number) for number in range(12)]
"""Enough for every master to have the keys of some."""


def made() -> RedisServer:
    while (port := free_port()) > BUS_PORT_MAX:
        pass
    return RedisServer(port=port, password=PASSWORD, more=SETTINGS)


def ask(server: RedisServer, *command: Any) -> Any:
    with closing(Redis("127.0.0.1", server.port, password=PASSWORD)) as client:
        return client.execute_command(*command)


@pytest.fixture(scope="module")
def servers() -> Iterator[list[RedisServer]]:
    """Three masters, and a replica of the first."""
    with ExitStack() as stack:
        found = [stack.enter_context(made()) for _ in range(MASTERS + 1)]
        for number, server in enumerate(found[:MASTERS]):
            slots = range(SLOTS * number // MASTERS, SLOTS * (number + 1) // MASTERS)
            ask(server, "CLUSTER", "ADDSLOTS", *slots)
        for server in found[1:]:
            ask(server, "CLUSTER", "MEET", "127.0.0.1", found[0].port)
        wait_until(lambda: all(b"cluster_known_nodes:4" in ask(one, "CLUSTER", "INFO") for one in found))
        wait_until(lambda: b"cluster_state:ok" in ask(found[0], "CLUSTER", "INFO"))
        first = ask(found[0], "CLUSTER", "MYID")
        wait_until(lambda: _tried(found[MASTERS], "CLUSTER", "REPLICATE", first))
        wait_until(lambda: _role(found[MASTERS])[0] == b"slave" and _role(found[MASTERS])[3] == b"connected")
        wait_until(lambda: all(b"cluster_state:ok" in ask(one, "CLUSTER", "INFO") for one in found))
        yield found


def _tried(server: RedisServer, *command: Any) -> bool:
    try:
        ask(server, *command)
    except RedisError:
        return False
    return True


def _role(server: RedisServer) -> Any:
    return ask(server, "ROLE")


def test_every_server_of_it_tells_where_our_keys_are(servers: list[RedisServer]) -> None:
    for server in servers:
        for cluster in CLUSTERS:
            with closing(Line.of(Access((f"127.0.0.1:{server.port}",), password=PASSWORD), cluster)) as line:
                key = line.key("frame", 1)
                assert line.do(lambda client, key=key: client.set(key, b"x"))
                assert line.do(lambda client, key=key: client.get(key)) == b"x"


def test_who_has_our_keys_fails_and_its_replica_takes_over(servers: list[RedisServer]) -> None:
    access = Access(tuple(f"127.0.0.1:{server.port}" for server in servers), password=PASSWORD)
    lines = [Line.of(access, cluster) for cluster in CLUSTERS]
    try:
        servers[0].kill()
        for line in lines:
            wait_until(lambda line=line: _works(line))
        servers[0].start()
        for line in lines:
            wait_until(lambda line=line: _works(line))
    finally:
        for line in lines:
            line.close()


def _works(line: Line) -> bool:
    try:
        return bool(line.do(lambda client: client.set(line.key("frame", 1), b"y")))
    except Away:
        return False


def test_sentinels_that_do_not_know_the_name_are_no_use(redis_server: RedisServer) -> None:
    with RedisServer(sentinel_of=redis_server, password="") as sentinel:
        given = Access((f"127.0.0.1:{sentinel.port}",), password=redis_server.password, sentinel="somebody")
        with closing(Line.of(given, UUID(int=7))) as line:
            assert line.is_away
            with pytest.raises(Away, match="Sentinel 'somebody'"):
                line.do(lambda client: client.ping())
