"""One small run of each fault that a cluster has to get over; more of them, and larger ones: `make cluster-faults`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqueue.testing import PostgresServer
from tests.cluster.faults.breaking import FAULTS, Fault
from tests.cluster.faults.run import HELD_BRIEFLY, run
from tests.cluster.faults.stage import Stage

SEED = 0
QUICK = {"hand over": 800, "end session": 800}
"""With so many messages. Nobody has to wait until a session is over."""
MESSAGES = 3_000
NETWORK = {"shard: black hole": 600}
"""The same; a session has to end."""
REDIS = {"wal: flush redis": 800}
SERVERS = {"kill server", "pause server"}
BY_NAME = {fault.name: fault for fault in FAULTS}
ALONE = [fault for fault in FAULTS if fault.name not in QUICK and not fault.redis and not fault.wired]
WITH_REDIS = [fault for fault in FAULTS if fault.name not in REDIS and fault.redis and not fault.wired]


@pytest.fixture(scope="module")
def small(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Two nodes, and two shards on the server that all tests share, with wires between all of them."""
    databases = [postgres.create(f"faults_{number}") for number in range(2)]
    with Stage(tmp_path_factory.mktemp("faults"), nodes=2, databases=databases, wired=True) as stage:
        yield stage


@pytest.fixture(scope="module")
def copied(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The same without wires, and with a Redis of our own."""
    databases = [postgres.create(f"faults_redis_{number}") for number in range(2)]
    with Stage(tmp_path_factory.mktemp("faults"), nodes=2, databases=databases, redis=True) as stage:
        yield stage


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Three nodes, and two servers of our own: they are going to be killed."""
    with Stage(tmp_path_factory.mktemp("faults"), servers=2) as stage:
        yield stage


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """And a Redis of our own."""
    with Stage(tmp_path_factory.mktemp("faults"), servers=2, redis=True) as stage:
        yield stage


def test_the_faults_are_told_apart_by_their_names() -> None:
    assert len(BY_NAME) == len(FAULTS)
    assert QUICK.keys() | NETWORK.keys() | REDIS.keys() | SERVERS <= BY_NAME.keys()


@pytest.mark.parametrize("name", QUICK)
def test_a_cluster_gets_over_what_is_quick(small: Stage, name: str) -> None:
    small.restore()
    outcome = run(small, BY_NAME[name], SEED, QUICK[name], held=HELD_BRIEFLY)
    assert not outcome.wrong, str(outcome)
    assert outcome.back < float("inf"), str(outcome)


@pytest.mark.parametrize("name", NETWORK)
def test_a_cluster_gets_over_a_network_that_fails(small: Stage, name: str) -> None:
    small.restore()
    outcome = run(small, BY_NAME[name], SEED, NETWORK[name], held=HELD_BRIEFLY)
    assert not outcome.wrong, str(outcome)
    assert outcome.back < float("inf"), str(outcome)


@pytest.mark.parametrize("name", REDIS)
def test_a_cluster_gets_over_a_redis_that_forgets(copied: Stage, name: str) -> None:
    copied.restore()
    outcome = run(copied, BY_NAME[name], SEED, REDIS[name], held=HELD_BRIEFLY)
    assert not outcome.wrong, str(outcome)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", ALONE, ids=lambda fault: fault.name)
def test_a_cluster_gets_over_it(large: Stage, fault: Fault) -> None:
    large.restore()
    outcome = run(large, fault, SEED, MESSAGES)
    assert not outcome.wrong, str(outcome)
    assert outcome.back < float("inf"), str(outcome)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", WITH_REDIS, ids=lambda fault: fault.name)
def test_a_cluster_with_redis_gets_over_it(complete: Stage, fault: Fault) -> None:
    complete.restore()
    outcome = run(complete, fault, SEED, MESSAGES)
    assert not outcome.wrong, str(outcome)
    assert outcome.back < float("inf"), str(outcome)
