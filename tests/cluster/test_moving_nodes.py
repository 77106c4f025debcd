"""Nodes whose virtual shards move: whoever is asked, the answer is that of the cluster; and what nodes make of servers
that contradict each other, movers that died, and servers that they do not know."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import mqueue
from mqueue.cluster import atlas
from mqueue.cluster.moving import growing, healing, mover
from mqueue.cluster.moving.fleet import Fleet
from mqueue.cluster.moving.mover import Mover
from mqueue.config import Cluster, Config, Metrics, Secret
from mqueue.log.postgres import appends, migrate, moving
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.problems import lost
from mqueue.model.errors import BadSetting, Conflict, Unavailable
from mqueue.policy.routing import virtual_shard
from mqueue.testing import PostgresServer
from mqueue.testing.server import RunningServer
from tests.cluster.faults.run import HELD_BRIEFLY, run
from tests.cluster.faults.stage import Stage
from tests.cluster.moves.going import GOING
from tests.cluster.patience import wait_until
from tests.postgres.shards import DEADLINE_SECONDS, in_thread

VSHARD = virtual_shard("default", "jobs")
HOME = VSHARD % 2
_PATIENT = {"timeout": "60s"}


class Died(Exception):
    """What happens to who moves something."""


def dies_at(last: str) -> Callable[[Sequence[int], str], None]:
    def told(vshards: Sequence[int], step: str) -> None:
        if step == last:
            raise Died

    return told


@pytest.fixture
def urls(postgres: PostgresServer, database: str) -> list[str]:
    return [database, *(postgres.create(f"{database.rpartition('/')[2]}_{name}") for name in "bc")]


@pytest.fixture
def node() -> Iterator[Callable[[Sequence[str]], RunningServer]]:
    running: list[RunningServer] = []

    def start(urls: Sequence[str]) -> RunningServer:
        cluster = Cluster(tuple(Secret(url) for url in urls))
        running.append(RunningServer(Config(metrics=Metrics(enabled=False), cluster=cluster)))
        return running[-1]

    yield start
    for server in running:
        server.close()


@pytest.fixture
def fleet(urls: list[str]) -> Iterator[Fleet]:
    found = Fleet([Link(url, "test", 60_000) for url in urls[:2]])
    yield found
    found.close()


def test_everything_goes_along(node, urls, fleet) -> None:
    """Leases, acks, delays, dead letters, keys, transactions and who waits: two nodes, there and back."""
    with (
        mqueue.Client(node(urls[:2]).url, **_PATIENT) as one,
        mqueue.Client(node(urls[:2]).url, **_PATIENT) as other,
        ThreadPoolExecutor(1) as threads,
    ):
        one.configure("jobs", max_retries=0)
        one.publish_many("jobs", ["acked", "leased", "dead", "ready"])
        later = one.publish("jobs", "later", delay="1h")
        before = one.publish("jobs", "once", idempotency_key="k")
        acked, leased, dead = one.receive("jobs", limit=3, visibility="10m")
        acked.ack()
        dead.reject("no good")
        one.stage("tx", "jobs", [mqueue.Draft(b"staged")])
        waiting = threads.submit(other.receive, "waited", wait="60s")
        wait_until(lambda: "waited" in other.topics())  # made by who waits there
        for target in (1 - HOME, HOME):
            vshards = [VSHARD, virtual_shard("default", "tx"), virtual_shard("default", "waited")]
            list(fleet.move(fleet.to(vshards, target)))
            for client in (one, other):
                again = client.publish("jobs", "once", idempotency_key="k")
                assert (again.id, again.offset, again.duplicate) == (before.id, before.offset, True)
                stats = client.stats("jobs")
                assert (stats.leased, stats.acked, stats.dead, stats.scheduled) == (1, 1, 1, 1)
            assert [m.payload for m in other.dlq("jobs").messages()] == [b"dead"]
            assert one.topics() == other.topics() == ["jobs", "jobs.dlq", "waited"]
        other.publish("waited", "here")
        assert [m.payload for m in waiting.result(60)] == [b"here"]
        one.commit("tx")
        leased.ack()
        other.reschedule(later.id, delay="0s")
        found: list[bytes] = []
        while len(found) < 4:
            messages = other.receive("jobs", limit=10, wait="10s")
            assert messages, found
            found += [message.payload for message in messages]
            other.ack(messages)
        assert sorted(found) == [b"later", b"once", b"ready", b"staged"]
        assert [event.kind for event in other.trace(leased.id).events] == ["PUBLISHED", "DELIVERED", "ACKNOWLEDGED"]
        assert other.dlq("jobs").redrive().redriven == 1


def test_what_moved_away_before_it_could_be_looked_up_is_in_doubt(node, urls, fleet, monkeypatch) -> None:
    """It was stored, nobody answered, and where it was stored nothing is left of it: sent again, it would be there
    twice."""
    append = appends.append

    def unanswered(link: Link, *args: Any, **more: Any) -> Any:
        monkeypatch.setattr(appends, "append", append)
        append(link, *args, **more)
        list(fleet.move({(HOME, 1 - HOME): [VSHARD]}, force=True))
        raise lost(link.server, "the line broke")

    with mqueue.Client(node(urls[:2]).url, retry=False, **_PATIENT) as client:
        client.publish("jobs", "0")
        monkeypatch.setattr(appends, "append", unanswered)
        with pytest.raises(Unavailable) as told:
            client.publish("jobs", "1")
        assert (told.value.code, told.value.applied) == ("not_owner", None)
        assert sorted(m.payload for m in client.scan("jobs")) == [b"0", b"1"], "whoever owned it before does not answer"


def test_whoever_owned_it_before_does_not_hide_what_came_later(node, urls, fleet) -> None:
    """What was answered at one node is seen at all of them, also at one that has not looked where things are now."""
    with (
        mqueue.Client(node(urls[:2]).url, **_PATIENT) as one,
        mqueue.Client(node(urls[:2]).url, **_PATIENT) as other,
    ):
        for number in range(6):
            one.publish("jobs", str(number))
            assert len(list(one.scan("jobs"))) == len(list(other.scan("jobs"))) == 2 * number + 1
            list(fleet.move(fleet.to([VSHARD], 1 - fleet.map().homes[VSHARD])))
            one.publish("jobs", "moved")
            assert len(list(other.scan("jobs"))) == len(list(one.scan("jobs"))) == 2 * number + 2


def test_nodes_finish_what_a_dead_mover_left(node, urls, fleet, monkeypatch) -> None:
    monkeypatch.setattr(healing, "GRACE_SECONDS", 0.5)
    source, target = fleet.servers[HOME], fleet.servers[1 - HOME]
    with mqueue.Client(node(urls[:2]).url, **_PATIENT) as client:
        client.publish("jobs", "1")
        with pytest.raises(Died):
            list(Mover(source, target, told=dies_at("copied")).move([VSHARD]))
        client.publish("jobs", "2")
        with pytest.raises(Died):
            list(Mover(source, target, told=dies_at("left")).move([VSHARD]))
        assert client.publish("jobs", "3").offset == 2, "it was waited for"
        assert fleet.map().homes[VSHARD] == target.place
        wait_until(lambda: not any(row.remains != "none" for row in moving.rows(source.link)))
        assert [message.payload for message in client.receive("jobs", limit=10)] == [b"1", b"2", b"3"]


def test_nodes_do_not_wait_for_a_mover_that_stands_still(node, urls, fleet, monkeypatch, caplog) -> None:
    """It was stopped between two steps: its connections live, and its locks with them."""
    monkeypatch.setattr(healing, "GRACE_SECONDS", 0.2)
    monkeypatch.setattr(healing, "LATE_SECONDS", 0.5)
    monkeypatch.setattr(mover, "STILL_SECONDS", 3600.0)
    source, target = fleet.servers[HOME], fleet.servers[1 - HOME]
    goes_on = threading.Event()

    def told(vshards: Sequence[int], step: str) -> None:
        if step == "left":
            assert goes_on.wait(DEADLINE_SECONDS)

    with mqueue.Client(node(urls[:2]).url, **_PATIENT) as client:
        client.publish("jobs", "1")
        with caplog.at_level(logging.ERROR, "mqueue.cluster"):
            stopped = in_thread(lambda: list(Mover(source, target, told=told).move([VSHARD])))
            wait_until(lambda: "somebody is moving virtual shards away" in caplog.text)
        monkeypatch.setattr(mover, "STILL_SECONDS", 0.2)
        assert client.publish("jobs", "2").offset == 1
        goes_on.set()
        with pytest.raises(Unavailable) as lost:
            stopped.result(DEADLINE_SECONDS)
        assert lost.value.code == "mover_lost"
        assert fleet.map().homes[VSHARD] == target.place
        assert [message.payload for message in client.receive("jobs", limit=10)] == [b"1", b"2"]


def test_the_higher_epoch_is_served_and_the_other_one_named(node, urls, fleet, monkeypatch, caplog) -> None:
    """A server comes back from a backup of before something left it."""
    monkeypatch.setattr(atlas, "STAYS_SECONDS", 1.0)
    source, target = fleet.servers[HOME], fleet.servers[1 - HOME]
    server = node(urls[:2])
    with mqueue.Client(server.url, **_PATIENT) as client:
        client.publish("jobs", "1")
        list(Mover(source, target).move([VSHARD]))
        source.link.call(
            "update mqueue.vshards set state = 'active', map_epoch = 1, moved_to = null where vshard = %b", (VSHARD,)
        )
        with caplog.at_level(logging.ERROR, "mqueue.cluster"):
            wait_until(lambda: "the servers contradict each other" in caplog.text)
        assert f"server {source.place} has it at epoch 1, but it went on to epoch 2" in caplog.text
        assert client.publish("jobs", "2").offset == 1
        (trouble,) = fleet.map().troubles
        assert (trouble.code, trouble.place, trouble.vshard) == ("stale", source.place, VSHARD)
        with pytest.raises(Conflict) as refused:
            fleet.rebalanced()
        assert refused.value.code == "map_conflict"
        source.link.call("update mqueue.vshards set map_epoch = 2 where vshard = %b", (VSHARD,))
        wait_until(lambda: "servers 0, 1 have it at epoch 2" in caplog.text)
    with mqueue.Client(server.url, retry=False, **_PATIENT) as client:
        with pytest.raises(mqueue.Unavailable, match="servers 0, 1 have it at epoch 2") as neither:
            client.publish("jobs", "3")
        assert neither.value.code == "map_conflict"


def test_a_node_that_knows_fewer_servers_serves_what_those_have(node, urls, fleet) -> None:
    server = node(urls[:2])
    third = Fleet([Link(url, "third", 60_000) for url in urls])
    try:
        with mqueue.Client(server.url, retry=False, **_PATIENT) as client:
            client.publish("jobs", "1")
            client.publish("stays", "1")
            assert growing.add([one.link for one in fleet.servers], third.servers[2].link) == 2
            assert growing.add([one.link for one in fleet.servers], third.servers[2].link) == 2, "again, to the end"
            third.check()
            assert migrate.place_of(third.servers[2].link) == 2
            plan = third.to([VSHARD], 2)
            with pytest.raises(mqueue.Refused) as missing:
                list(third.move(plan))
            assert missing.value.code == "node_missing"
            list(third.move(plan, force=True))
            with pytest.raises(mqueue.Unavailable, match="has gone to server 2, which this node does not know") as gone:
                client.publish("jobs", "2")
            assert gone.value.code == "shard_down"
            client.publish("stays", "2")
        with mqueue.Client(node(urls).url, **_PATIENT) as other:
            assert other.publish("jobs", "2").offset == 1
        with mqueue.Client(node(urls[:2]).url, **_PATIENT) as short:
            assert short.publish("stays", "3").offset == 2, "it may be started again with what it knew"
        with pytest.raises(BadSetting, match="is shard 0 of 3, not 0 of 1"):
            node(urls[:1])
    finally:
        third.close()


def test_histories_hold_while_topics_move(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A small one; more of them, and movers that die: `make moves`."""
    databases = [postgres.create(f"going_{number}") for number in range(2)]
    with Stage(tmp_path_factory.mktemp("moves"), nodes=2, databases=databases) as stage:
        outcome = run(stage, GOING[0], 0, 600, held=HELD_BRIEFLY)
    assert not outcome.wrong, str(outcome)
