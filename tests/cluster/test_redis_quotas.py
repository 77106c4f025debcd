"""A quota is that of the cluster: never more, hardly less, whoever is published to and whatever becomes of Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from random import Random
from uuid import uuid4

import pytest

import mqueue
from mqueue.cluster.redis.lending import Lender
from mqueue.cluster.redis.line import Line
from mqueue.cluster.shares import SharedQuotas
from mqueue.config import NamespaceQuotas
from mqueue.model.errors import QuotaExceeded
from mqueue.policy.quota import Quotas
from mqueue.testing import RedisServer
from tests.cluster.patience import wait_until
from tests.cluster.redis_nodes import access, config, nodes

TICK_MS = 200
START_MS = 1_800_000_000_000
Calls = Callable[[int], list[tuple[int, int]]]


class Cluster:
    """Nodes that share a quota, in a time that is moved by hand. One bucket of the whole quota judges what they do."""

    def __init__(self, lines: list[Line], limit: int) -> None:
        self.now = START_MS
        self.alive = len(lines)
        self.limit = limit
        self.admitted = 0
        self.judge = Quotas({"shop": limit})
        self.lines = lines
        self.quotas: dict[int, SharedQuotas] = {}
        self.lenders: dict[int, Lender] = {}
        for number in range(len(lines)):
            self.start(number, number + 1)

    def start(self, number: int, alive: int) -> None:
        """A node that remembers nothing."""
        quotas = self.quotas[number] = SharedQuotas({"shop": self.limit})
        self.lenders[number] = Lender(self.lines[number], quotas, number, lambda: self.alive, lambda: self.now)
        quotas.join(alive, self.now)

    def publish(self, node: int, count: int) -> bool:
        try:
            self.quotas[node].admit("shop", count, self.now)
        except QuotaExceeded:
            return False
        self.judge.admit("shop", count, self.now)  # raises if that was too much
        self.admitted += count
        return True

    def run(self, seconds: int, calls: Calls) -> float:
        """`calls(tick)` are (node, count) of what is published then. How much of the quota was used."""
        before = self.admitted
        for tick in range(seconds * 1000 // TICK_MS):
            self.now += TICK_MS
            for number in range(self.alive):
                self.lenders[number].run_once()
            for node, count in calls(tick):
                self.publish(node, count)
        return (self.admitted - before) / (self.limit * seconds / 60)


@contextmanager
def cluster(server: RedisServer, limit: int, nodes: int = 3) -> Iterator[Cluster]:
    name = uuid4()
    with ExitStack() as stack:
        lines = [stack.enter_context(closing(Line.of(access(server), name))) for _ in range(nodes)]
        yield Cluster(lines, limit)


def flood(nodes: list[int], count: int, size: int) -> Calls:
    """So many calls at each of the nodes every time: more than there is room for."""
    return lambda tick: [(node, size) for node in nodes for _ in range(count)]


@pytest.mark.parametrize("nodes", [[2], [0, 1], [0, 1, 2]])
@pytest.mark.parametrize(("limit", "count", "size"), [(6_000, 25, 1), (100_000, 1, 1_000)])
def test_no_more_and_hardly_less(redis_server, nodes: list[int], limit: int, count: int, size: int) -> None:
    with cluster(redis_server, limit) as mine:
        mine.run(30, flood(nodes, count, size))
        assert mine.run(60, flood(nodes, count, size)) >= 0.99


def test_calls_above_the_share_of_a_node_do_not_wait_for_each_other(redis_server) -> None:
    with cluster(redis_server, 600) as mine:
        mine.run(60, lambda tick: [])
        assert mine.run(240, lambda tick: [(node, 400) for node in range(3)] if tick % 5 == 0 else []) >= 0.5


def test_no_more_whoever_comes(redis_server) -> None:
    seed = Random().randrange(1 << 32)
    print("seed", seed)
    chance = Random(seed)
    with cluster(redis_server, 3_000) as mine:
        for _ in range(12):
            busy = chance.sample(range(3), chance.randrange(4))
            mine.run(chance.randrange(1, 20), flood(busy, chance.randrange(1, 20), chance.choice([1, 3, 100])))


def test_a_call_of_all_there_is_is_let_in_some_time(redis_server) -> None:
    with cluster(redis_server, 1_000) as mine:
        mine.run(120, lambda tick: [])
        assert mine.run(30, lambda tick: [(1, 1_000)] if tick % 5 == 0 else []) > 0


def test_one_message_a_minute(redis_server) -> None:
    with cluster(redis_server, 1) as mine:
        mine.run(60, lambda tick: [])
        assert mine.run(300, lambda tick: [(node, 1) for node in range(3)] if tick % 5 == 0 else []) >= 0.4


def test_without_redis_each_has_a_share() -> None:
    with RedisServer() as server, cluster(server, 6_000) as mine:
        mine.run(20, flood([0], 25, 1))
        server.kill()
        wait_until(lambda: mine.run(1, flood([0], 25, 1)) >= 0 and all(line.is_away for line in mine.lines))
        mine.run(20, flood([0], 25, 1))
        assert 0.3 < mine.run(60, flood([0], 25, 1)) < 0.34
        assert mine.run(30, flood([0, 1, 2], 25, 1)) >= 0.99
        server.start()
        wait_until(lambda: not any(line.is_away for line in mine.lines))
        mine.run(10, flood([0], 25, 1))
        assert mine.run(60, flood([0], 25, 1)) >= 0.99, "nothing jumped, and it goes on"


def test_without_redis_a_node_saves_for_a_large_call() -> None:
    with RedisServer() as server, cluster(server, 600) as mine:
        server.kill()
        wait_until(lambda: mine.run(1, lambda tick: []) >= 0 and all(line.is_away for line in mine.lines))
        mine.quotas[1].lends = False
        assert mine.run(300, lambda tick: [(1, 500)] if tick % 5 == 0 else []) > 0


def test_what_redis_forgets_is_spent(redis_server) -> None:
    with cluster(redis_server, 6_000) as mine:
        for _ in range(10):
            mine.run(2, flood([0], 25, 1))
            redis_server.flush()


def test_who_comes_and_goes_brings_nothing(redis_server) -> None:
    with cluster(redis_server, 6_000) as mine:
        mine.run(30, flood([0, 1], 20, 1))
        for alive in (2, 1, 3, 2, 3):
            for number in range(mine.alive, alive):
                mine.start(number, alive)
            mine.alive = alive
            mine.run(30, flood(list(range(alive)), 20, 1))


@pytest.mark.long
def test_a_node_that_comes_later_gets_of_what_others_have(database: str, redis_server: RedisServer) -> None:
    """A newcomer would have to wait for a minute and a half until its own share suffices."""
    limited = config(database, redis_server, quotas=NamespaceQuotas(100))
    with nodes(2, limited) as (_, later), mqueue.Client(later.url, retry=False) as client:
        wait_until(lambda: _is_admitted(client, 60))


def _is_admitted(client: mqueue.Client, count: int) -> bool:
    try:
        client.publish_many("t", ["x"] * count)
    except QuotaExceeded:
        return False
    return True
