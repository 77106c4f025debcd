"""Calls of one address are limited over all nodes: hardly more, hardly less, whatever becomes of Redis."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from random import Random
from uuid import UUID, uuid4

import pytest

import mqueue
from mqueue.cluster import rates
from mqueue.cluster.rates import SharedRate
from mqueue.cluster.redis.lending import Lender, rate_pots
from mqueue.cluster.redis.line import Line, Nothing
from mqueue.cluster.shares import WANTS_MAX
from mqueue.config import Cluster as ClusterSettings
from mqueue.config import Config, Metrics, RateLimit, Secret, Security
from mqueue.model.errors import QuotaExceeded
from mqueue.server.security import peers
from mqueue.testing import RedisServer
from mqueue.testing.server import RunningServer
from tests.cluster.patience import wait_until
from tests.cluster.redis_nodes import access, config, nodes

TICK_MS = 200
STEP_MS = 20
START_MS = 1_800_000_000_000
PEER = "2001:db8::/64"
Calls = Callable[[int], list[int]]


class Cluster:
    """Nodes that share a limit, in a time that is moved by hand. One bucket of the whole limit, and half a burst more,
    judges what they let through."""

    def __init__(self, lines: list[Line], per_second: int, burst: int) -> None:
        self.now, self.per_second = START_MS, per_second
        self.alive = len(lines)
        self.admitted = self.refused = 0
        self.judge = peers.RateLimit(per_second, burst + -(-burst // 2))
        self.rates = [SharedRate().paced(per_second, burst) for _ in lines]
        self.lenders = [
            Lender(line, rate.buckets, number, lambda: self.alive, lambda: self.now, rate_pots)
            for number, (line, rate) in enumerate(zip(lines, self.rates, strict=True))
        ]
        for lender in self.lenders:
            lender.join()

    def call(self, node: int, peer: str = PEER) -> bool:
        try:
            self.rates[node].admit(peer, self.now)
        except QuotaExceeded:
            self.refused += 1
            return False
        self.judge.admit(peer, self.now)  # raises if that was too much
        self.admitted += 1
        return True

    def run(self, seconds: float, calls: Calls) -> float:
        """`calls(step)` are the nodes that are called then. How much of the limit was used."""
        before = self.admitted
        for step in range(int(seconds * 1000) // STEP_MS):
            self.now += STEP_MS
            if step % (TICK_MS // STEP_MS) == 0:
                for lender in self.lenders[: self.alive]:
                    lender.run_once()
            for node in calls(step):
                self.call(node)
        return (self.admitted - before) / (self.per_second * seconds)


@contextmanager
def cluster(server: RedisServer, per_second: int, burst: int, nodes: int = 3) -> Iterator[Cluster]:
    name = uuid4()
    with ExitStack() as stack:
        lines = [stack.enter_context(closing(Line.of(access(server), name))) for _ in range(nodes)]
        yield Cluster(lines, per_second, burst)


def flood(nodes: list[int], count: int) -> Calls:
    return lambda step: [node for node in nodes for _ in range(count)]


PACES = [(10, 20), (100, 100), (1_000, 1_000), (50, 1_000), (2, 10)]
HASTY = (1_000, 200)
"""A burst is used up, and there again, before anybody can lend."""


@pytest.mark.parametrize(("per_second", "burst"), PACES)
@pytest.mark.parametrize("nodes", [[2], [0, 1], [0, 1, 2]])
def test_no_more_and_hardly_less(redis_server, nodes: list[int], per_second: int, burst: int) -> None:
    with cluster(redis_server, per_second, burst) as mine:
        mine.run(20, flood(nodes, 1 + per_second // 40))
        assert mine.run(30, flood(nodes, 1 + per_second // 40)) >= 0.9


def test_a_burst_of_less_than_a_second_is_hard_to_lend(redis_server) -> None:
    with cluster(redis_server, *HASTY) as mine:
        mine.run(20, flood([2], 25))
        assert mine.run(30, flood([2], 25)) >= 0.6


def test_who_keeps_to_the_limit_at_one_node_is_hardly_ever_refused(redis_server) -> None:
    with cluster(redis_server, 10, 20) as mine:
        assert mine.run(60, lambda step: [1] if step % 6 == 0 else []) > 0.8
        assert mine.refused <= 5


@pytest.mark.parametrize(("per_second", "burst"), [*PACES, HASTY])
def test_no_more_whoever_comes(redis_server, per_second: int, burst: int) -> None:
    seed = Random().randrange(1 << 32)
    print("seed", seed)
    chance = Random(seed)
    with cluster(redis_server, per_second, burst) as mine:
        for _ in range(25):
            busy = chance.sample(range(3), chance.randrange(4))
            mine.run(chance.choice([0.2, 0.6, 1, 3]), flood(busy, chance.randrange(1, 4 + per_second // 20)))


def test_without_redis_each_has_a_share() -> None:
    with RedisServer() as server, cluster(server, 50, 100) as mine:
        mine.run(10, flood([0], 3))
        server.kill()
        wait_until(lambda: mine.run(1, flood([0], 3)) >= 0 and all(line._line.is_away for line in mine.lenders))
        mine.run(10, flood([0], 3))
        assert 0.3 < mine.run(30, flood([0], 3)) < 0.34
        assert mine.run(30, flood([0, 1, 2], 3)) >= 0.99
        server.start()
        wait_until(lambda: not any(line._line.is_away for line in mine.lenders))
        mine.run(10, flood([0], 3))
        assert mine.run(30, flood([0], 3)) >= 0.9, "nothing jumped, and it goes on"


def test_no_redis_at_all() -> None:
    mine = Cluster([Nothing(UUID(int=1)) for _ in range(2)], 50, 100)
    mine.run(10, flood([0], 3))
    assert 0.49 < mine.run(30, flood([0], 3)) < 0.51
    mine.alive = 1
    mine.run(5, flood([0], 3))
    assert mine.run(30, flood([0], 3)) > 0.99


def test_addresses_are_counted_apart_and_not_without_end(redis_server, monkeypatch) -> None:
    monkeypatch.setattr(rates, "PEERS_MAX", 3_000)
    with cluster(redis_server, 1, 1, nodes=2) as mine:
        for number in range(10_000):
            mine.call(0, f"10.0.{number // 256}.{number % 256}")
        assert len(mine.rates[0].buckets._buckets) <= 6_000
        assert len(mine.rates[0].buckets.wants(mine.now)) <= WANTS_MAX
        mine.run(1, lambda step: [])


def test_a_limit_that_is_changed_holds_from_then_on() -> None:
    rate = SharedRate().paced(1, 2)
    assert _let_through(rate, START_MS) == 2
    assert rate.paced(1, 2) is rate
    assert _let_through(rate, START_MS) == 0, "what was spent stays spent"
    assert rate.paced(10, 5) is rate
    assert rate.is_same(10, 5)
    assert _let_through(rate, START_MS + 300) == 3
    assert _let_through(rate, START_MS + 60_000) == 5


def _let_through(rate: SharedRate, now: int) -> int:
    """How many calls are, until one is refused."""
    for count in itertools.count():  # noqa: B007 - it is wanted afterwards
        try:
            rate.admit("10.0.0.1", now)
        except QuotaExceeded as refusal:
            told = refusal.code, refusal.message
            break
    assert told == ("rate_limited", "too many calls from here")
    return count


# Nodes

PER_SECOND, BURST = 20, 20
LIMITED = Security(rate_limit=RateLimit(PER_SECOND, BURST))


@pytest.mark.long
def test_nodes_lend_each_other_and_do_without_redis(database: str) -> None:
    with RedisServer() as server, nodes(2, config(database, server, security=LIMITED)) as (one, other):
        wait_until(lambda: _rate([one]) > 0.8)
        assert _rate([one, other]) < 1.3
        server.kill()
        wait_until(lambda: 0.35 < _rate([one]) < 0.65)
        assert 0.7 < _rate([one, other]) < 1.3
        server.start()
        wait_until(lambda: _rate([one]) > 0.8)


def test_nodes_without_redis_have_a_share_each(database: str) -> None:
    cluster = ClusterSettings((Secret(database),))
    with nodes(2, Config(metrics=Metrics(enabled=False), cluster=cluster, security=LIMITED)) as (one, other):
        wait_until(lambda: 0.35 < _rate([one]) < 0.65)
        assert 0.7 < _rate([one, other]) < 1.3


def _rate(servers: list[RunningServer], seconds: float = 3.0) -> float:
    """What is let through of calls that come as fast as they can, as a part of the limit; their bursts are spent."""
    _count(servers, 0.5)
    return _count(servers, seconds) / (PER_SECOND * seconds)


def _count(servers: list[RunningServer], seconds: float) -> int:
    end, done = time.monotonic() + seconds, 0
    with ExitStack() as stack:
        clients = [stack.enter_context(mqueue.Client(server.url, retry=False)) for server in servers]
        while time.monotonic() < end:
            for client in clients:
                try:
                    client.topics()
                    done += 1
                except QuotaExceeded:
                    pass
            threading.Event().wait(0.01)
    return done
