"""What every conformance test is given: a queue on each backend in turn, its clock, and a way to open more of them.

A new log or a new face joins by one entry in BACKENDS. The tests use the public calls only and know no backend. Flight
runs those of what it has streams for (FLOWN), through calls that are made of these (`flown`).

Clusters take longer than all others together. So one of them runs a few modules (BRIEFLY), and all else is asked for:
`MQUEUE_BACKENDS="1-shard-1-node"`, any number of words out of CLUSTERS, or `clusters` for all of them. The nodes of a
cluster publish in turn; all else is asked of one of them. All tests on all clusters take hours: `MQUEUE_PART="0/9"` is
a ninth of that, each test on one cluster and each cluster with a ninth of the tests; `"1/9"` is the next.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import count, cycle
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from msgspec import Struct
from msgspec.structs import replace

import mqueue
from mqueue.assembly.postgres import UNSYNCED
from mqueue.config import Address, Cluster, Config, Metrics, NamespaceQuotas, Redis, Secret, Server
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.migrate import migrate
from mqueue.model.limits import Limits
from mqueue.model.settings import parse
from mqueue.testing import ManualClock, PostgresServer, RedisServer
from mqueue.testing.server import RunningServer
from tests.conformance.flown import Flown, Line
from tests.conformance.steps import TellingClock

_NUMBERS = count()


class Backend(Struct, frozen=True):
    """`open(clock, folder, **settings)`: an empty queue that goes by that clock and may write below that folder."""

    open: Callable[..., Any]
    embedded: bool
    """Whether the broker itself lives in the process that calls it."""
    nodes: int = 1
    """How many share the work, and so what is counted by time."""


def _memory(clock: ManualClock, folder: Path, **settings: Any) -> mqueue.Broker:
    return mqueue.Broker(clock=clock, **settings)


def _disk(clock: ManualClock, folder: Path, **settings: Any) -> mqueue.Broker:
    return mqueue.Broker(folder, clock=clock, storage=mqueue.Storage(reserve_bytes=0), **settings)


class Remote:
    """Servers of their own, and their clients; only of those that own nothing, if any do. They publish in turn."""

    def __init__(
        self,
        clock: ManualClock,
        encoding: str,
        settings: dict[str, Any],
        nodes: Sequence[Cluster] = (Cluster(),),
        databases: Sequence[str] = (),
        grpc: Address | None = None,
    ) -> None:
        self._databases = databases
        name = settings.pop("name", "")
        config = Config(
            limits=settings.pop("limits", Limits()),
            quotas=NamespaceQuotas(namespaces=settings.pop("quotas", {})),
            topic=parse(settings),
            metrics=Metrics(enabled=False),
            server=Server(grpc=grpc),
        )
        self._servers = [RunningServer(replace(config, cluster=node), clock) for node in nodes]
        asked = [server for server, node in zip(self._servers, nodes, strict=True) if not node.owns] or self._servers
        self._clients = [mqueue.Client(server.url, name=name, encoding=encoding, retry=False) for server in asked]
        self._turns = cycle(self._clients[-self.publishers :])
        self.addresses = self._servers[0].addresses

    publishers = 0
    """How many of them publish; 0: all."""

    def __getattr__(self, name: str) -> Any:
        return getattr(next(self._turns) if name.startswith("publish") else self._clients[-1], name)

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *ending: object) -> None:
        self.close()

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def end(self) -> None:
        self.close()
        for server in self._servers:
            server.close()
        for database in self._databases:
            _postgres().drop(database)


def _json(clock: ManualClock, folder: Path, **settings: Any) -> Remote:
    return Remote(clock, "json", settings)


def _arrow(clock: ManualClock, folder: Path, **settings: Any) -> Remote:
    return Remote(clock, "arrow", settings)


def _flight(clock: ManualClock, folder: Path, **settings: Any) -> Flown:
    remote = Remote(clock, "json", settings, grpc=Address("127.0.0.1", 0))
    return Flown(remote, Line(remote.addresses["grpc"].port), clock)


@cache
def _postgres() -> PostgresServer:
    return PostgresServer(settings=UNSYNCED)


@cache
def _migrated() -> str:
    """A database that has the schema, to be copied."""
    link = Link(_postgres().create("migrated"), "template")
    migrate(link)
    link.close()
    return "migrated"


@cache
def _redis() -> RedisServer:
    return RedisServer()


class Shape(Struct, frozen=True):
    """A cluster. `idle`: one node more that owns nothing, and it alone is asked."""

    shards: int
    nodes: int
    redis: bool
    idle: bool = False

    def open(self, clock: ManualClock, folder: Path, **settings: Any) -> Remote:
        number = next(_NUMBERS)
        names = [f"conformance_{number}_{shard}" for shard in range(self.shards)]
        databases = tuple(Secret(_postgres().create(name, _migrated())) for name in names)
        redis = Redis()
        if self.redis:
            redis = Redis((f"127.0.0.1:{_redis().port}",), password=Secret(_redis().password))
        nodes = [Cluster(databases, redis) for _ in range(self.nodes)]
        if self.idle:
            nodes.append(Cluster(databases, redis, owns=False))
        return Remote(clock, "json", settings, nodes, names)


CLUSTERS = {
    "1-shard-1-node": Shape(1, 1, redis=False),
    "1-shard-3-nodes": Shape(1, 3, redis=False),
    "3-shards-1-node": Shape(3, 1, redis=False),
    "3-shards-3-nodes": Shape(3, 3, redis=False),
    "1-shard-1-node-redis": Shape(1, 1, redis=True),
    "1-shard-3-nodes-redis": Shape(1, 3, redis=True),
    "3-shards-1-node-redis": Shape(3, 1, redis=True),
    "3-shards-3-nodes-redis": Shape(3, 3, redis=True),
    "idle-node": Shape(2, 2, redis=False, idle=True),
}

BACKENDS = {
    "memory": Backend(_memory, embedded=True),
    "disk": Backend(_disk, embedded=True),
    "json": Backend(_json, embedded=False),
    "arrow": Backend(_arrow, embedded=False),
    "flight": Backend(_flight, embedded=False),
}
SMALLEST = "1-shard-1-node"
BRIEFLY = (
    *("leases", "settle", "order", "retry", "idempotency", "dlq", "groups", "members", "windows"),
    *("policies", "ordered", "fairness"),
)
"""What the smallest cluster runs if nothing is asked for: the tests of delivery, and of reading by time."""
FLOWN = (
    *("publish", "limits", "depth", "idempotency", "schedule", "due_rate", "ttl", "namespaces", "errors"),
    *("leases", "settle", "message", "waiting", "order", "ordered", "fairness", "retry", "policies", "dlq", "groups"),
    *("interleavings", "trace", "numbers", "replay", "windows", "offsets", "retention", "compaction", "arrow"),
)
"""What is run over Flight: the tests that publish, deliver or scan. What else it has are actions, with the JSON of
HTTP."""
_FORGOTTEN = "a stream forgets a lease that is settled: an answer is lost only with its stream, and that gives all back"
_NAMELESS = "a consumer has no name of its own over Flight"
_PLAIN = "an ack over Flight publishes nothing"
_TYPED = "a column of Arrow takes values of its type only, and a text that is UTF-8"
NOT_FLOWN = {
    "test_a_repeated_call_answers_as_the_first": _FORGOTTEN,
    "test_a_repeated_call_does_not_touch_the_next_lease": _FORGOTTEN,
    "test_repeated_within_ten_minutes_only": _FORGOTTEN,
    "test_a_nack_that_ended_dead_can_be_repeated": _FORGOTTEN,
    "test_a_nack_that_ended_expired_can_be_repeated": _FORGOTTEN,
    "test_a_table_is_settled_as_a_whole": _FORGOTTEN,
    "test_an_unsettled_lease_names_its_consumer": _NAMELESS,
    "test_the_story_of_a_death": _NAMELESS,
    "test_a_life": _NAMELESS,
    "test_explain_leased": _NAMELESS,
    "test_messages_of_another_broker_are_refused": "about objects of our own client",
    "test_woken_by_what_follows_an_ack": _PLAIN,
    "test_what_cannot_be_sent_is_refused": _TYPED,
    "test_bad_headers_are_refused": _TYPED,
    "test_bad_keys_are_refused": _TYPED,
    "test_bad_idempotency_keys_are_refused": _TYPED,
    "test_a_huge_value_does_not_make_a_huge_sentence": _TYPED,
}
_ASKED = os.environ.get("MQUEUE_BACKENDS", "").split()
if unknown := set(_ASKED) - {"clusters", *CLUSTERS}:
    raise ValueError(f"MQUEUE_BACKENDS names {', '.join(unknown)}; there are clusters: {', '.join(CLUSTERS)}")
for _name, _shape in CLUSTERS.items():
    if _name in _ASKED or "clusters" in _ASKED or (_name == SMALLEST and not _ASKED):
        BACKENDS[_name] = Backend(_shape.open, embedded=False, nodes=_shape.nodes + _shape.idle)


_PART, _, _PARTS = os.environ.get("MQUEUE_PART", "").partition("/")


def _is_one_of(item, modules: Sequence[str]) -> bool:
    return item.module.__name__.removeprefix("tests.conformance.test_") in modules


def _is_left_out(item) -> bool:
    asked = getattr(item, "callspec", None) and item.callspec.params.get("backend")
    if asked == "flight":
        return item.originalname in NOT_FLOWN or not _is_one_of(item, FLOWN)
    if asked not in CLUSTERS:
        return False
    if not _ASKED:
        return not _is_one_of(item, BRIEFLY)
    turn = crc32(item.nodeid.replace(asked, "").encode()) + list(CLUSTERS).index(asked)
    return bool(_PARTS) and turn % int(_PARTS) != int(_PART)


def pytest_collection_modifyitems(config, items) -> None:
    """Leave out what takes too long and is not asked for."""
    left_out = [item for item in items if _is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


@pytest.fixture(params=BACKENDS)
def backend(request) -> Backend:
    return BACKENDS[request.param]


@pytest.fixture
def embedded(backend) -> None:
    """For what only a broker in this very process can do."""
    if not backend.embedded:
        pytest.skip("the broker lives in another process")


@pytest.fixture
def whole_quotas(backend) -> None:
    """For what only one server can be exact about. Of several each has a share; tests/cluster tests what they lend."""
    if backend.nodes > 1:
        pytest.skip("nodes share the quotas of namespaces")


@pytest.fixture
def one_publisher(monkeypatch) -> None:
    """For what each node does for itself: how its ids rise, which partition it takes next, how many priorities it knows
    of before it asks the owner."""
    monkeypatch.setattr(Remote, "publishers", 1)


@pytest.fixture
def clock() -> ManualClock:
    return TellingClock()


@pytest.fixture
def make(backend, clock, tmp_path) -> Iterator[Callable[..., Any]]:
    """`make(**settings)`: a queue of its own, closed when the test is over."""
    opened: list[Any] = []

    def open(**settings: Any) -> Any:
        opened.append(backend.open(clock, tmp_path / str(len(opened)), **settings))
        return opened[-1]

    yield open
    for queue in opened:
        queue.end() if isinstance(queue, Remote | Flown) else queue.close()


@pytest.fixture
def q(make) -> Any:
    return make()
