"""Nodes that have a Redis, and what tests of them wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from mqueue.cluster.redis.line import Access
from mqueue.config import Cluster, Config, Metrics, Redis, Secret
from mqueue.log.postgres import owning
from mqueue.log.postgres.link import Link
from mqueue.policy.routing import VIRTUAL_SHARDS
from mqueue.testing import RedisServer
from mqueue.testing.server import RunningServer
from tests.cluster.patience import wait_until


def access(server: RedisServer) -> Access:
    return Access((f"127.0.0.1:{server.port}",), password=server.password)


def config(database: str, server: RedisServer, **more: Any) -> Config:
    redis = Redis((f"127.0.0.1:{server.port}",), password=Secret(server.password))
    return Config(metrics=Metrics(enabled=False), cluster=Cluster((Secret(database),), redis), **more)


@contextmanager
def nodes(count: int, config: Config) -> Iterator[list[RunningServer]]:
    running: list[RunningServer] = []
    try:
        for _ in range(count):
            running.append(RunningServer(config))
        _shared_out(config.cluster.databases[0].reveal(), count)
        yield running
    finally:
        for server in running:
            server.close()


def _shared_out(database: str, count: int) -> None:
    """Wait until everybody owns his share: until then virtual shards go from one to another."""
    with closing(Link(database, "test")) as link:
        share = VIRTUAL_SHARDS // count
        wait_until(lambda: sorted(Counter(row[4] for row in owning.owners(link)).values())[0] >= share)
