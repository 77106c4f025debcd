"""The server of a shard fails under a node: what was answered is there, what was not is found out, and nobody who asks
for a standby is answered without one."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import count

import psycopg
import pytest

import mqueue
from mqueue.cluster import mouth
from mqueue.config import Cluster, Config, Metrics, Secret
from mqueue.model.errors import BadSetting, Refused, ShardDown, Unavailable
from mqueue.policy.routing import virtual_shard
from mqueue.testing import PostgresServer, Replicas
from mqueue.testing.server import RunningServer
from tests.cluster.patience import wait_until

_NUMBERS = count(1)
PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def shard() -> Iterator[Replicas]:
    """A primary, and a standby that every commit waits for."""
    with Replicas(2) as shard:
        yield shard


@pytest.fixture
def url(shard: Replicas) -> str:
    shard.rejoin()
    return shard.create(f"failover_{next(_NUMBERS)}")


@contextmanager
def node(*databases: str) -> Iterator[mqueue.Client]:
    config = Config(metrics=Metrics(enabled=False), cluster=Cluster(tuple(map(Secret, databases))))
    with RunningServer(config) as server, mqueue.Client(server.url, retry=False) as client:
        yield client


def waiting_for_standby(shard: Replicas) -> list[str]:
    """The processes whose commit waits."""
    sql = "select pid from pg_stat_activity where wait_event = 'SyncRep' and application_name like '%:append'"
    return shard.primary.run(sql).split()


def wait_for_standbys(server: PostgresServer, names: str) -> None:
    """Commits wait for these from now on; none: for nobody."""
    server.run(f"alter system set synchronous_standby_names = '{names}'")
    server.run("select pg_reload_conf()")


def test_a_commit_that_reached_the_standby_is_found_there(shard: Replicas, url: str) -> None:
    """The primary dies before it can say so. The keys that it claimed are not taken for another's."""
    shard.primary.run(f"alter database {url.rpartition('/')[2]} set synchronous_commit = remote_apply")
    with node(url) as client, ThreadPoolExecutor(1) as threads:
        client.publish("t", "0")
        [standby] = shard.standbys()
        standby.run("select pg_wal_replay_pause()")
        drafts = [mqueue.Draft("a", idempotency_key="k"), mqueue.Draft("b")]
        asked = threads.submit(client.publish_many, "t", drafts)
        wait_until(lambda: bool(waiting_for_standby(shard)))
        shard.primary.kill()
        wait_for_standbys(standby, "")
        shard.promote()
        first, second = asked.result(PATIENCE_SECONDS)
        assert not first.duplicate
        again = client.publish("t", "a", idempotency_key="k")
        assert (again.duplicate, again.id) == (True, first.id)
        found = {(m.partition, m.offset): (m.id, m.payload) for m in client.scan("t")}
        assert len(found) == 3
        assert found[first.partition, first.offset] == (first.id, b"a")
        assert found[second.partition, second.offset] == (second.id, b"b")
    wait_for_standbys(shard.primary, "ANY 1 (s0, s1)")


def test_a_statement_that_did_not_get_there_is_sent_again(shard: Replicas, url: str) -> None:
    """It waits for a lock when the primary dies."""
    with node(url) as client, ThreadPoolExecutor(1) as threads:
        client.publish("t", "0")
        client.configure("t", partitions=1)
        with closing(psycopg.connect(url, target_session_attrs="read-write")) as other:
            ((topic,),) = other.execute("select topic_id from mqueue.topics where name = 't'").fetchall()
            other.execute("select pg_advisory_xact_lock(%s, 0)", (topic,))
            asked = threads.submit(client.publish, "t", "1", idempotency_key="k")
            sql = "select 1 from pg_stat_activity where wait_event = 'advisory' and application_name like '%:append'"
            wait_until(lambda: bool(shard.primary.run(sql)))
            shard.primary.kill()
        [standby] = shard.standbys()
        wait_for_standbys(standby, "")
        shard.promote()
        receipt = asked.result(PATIENCE_SECONDS)
        assert not receipt.duplicate
        assert [m.payload for m in client.scan("t")] == [b"0", b"1"]
    wait_for_standbys(shard.primary, "ANY 1 (s0, s1)")


def test_a_commit_whose_wait_was_cut_short_is_answered_when_a_standby_has_it(shard: Replicas, url: str) -> None:
    """It comes with a warning only, and is seen by everybody."""
    with node(url) as client, ThreadPoolExecutor(1) as threads:
        client.publish("t", "0")
        [standby] = shard.standbys()
        standby.pause()
        try:
            asked = threads.submit(client.publish, "t", "1", durability="quorum")
            wait_until(lambda: bool(waiting_for_standby(shard)))
            [pid] = waiting_for_standby(shard)
            shard.primary.run(f"select pg_cancel_backend({pid})")
            wait_until(lambda: waiting_for_standby(shard) not in ([], [pid]))
            assert not asked.done(), "it was read back, and the standby is asked again"
        finally:
            standby.resume()
        assert asked.result(PATIENCE_SECONDS).durability == "quorum"
        assert [m.payload for m in client.scan("t")] == [b"0", b"1"]


def test_what_cannot_be_told_in_time_is_in_doubt(shard: Replicas, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mouth, "DOUBT_SECONDS", 0.5)
    with node(url) as client, ThreadPoolExecutor(1) as threads:
        client.publish("t", "0")
        [standby] = shard.standbys()
        standby.pause()
        try:
            asked = threads.submit(client.publish, "t", "1")
            wait_until(lambda: bool(waiting_for_standby(shard)))
            for pid in waiting_for_standby(shard):
                shard.primary.run(f"select pg_terminate_backend({pid})")
            with pytest.raises(ShardDown) as caught:
                asked.result(PATIENCE_SECONDS)
            assert (caught.value.code, caught.value.applied) == ("shard_down", None)
        finally:
            standby.resume()
        assert client.publish("t", "2", durability="quorum").offset >= 0


@pytest.mark.parametrize("loaded", [False, True])
def test_a_primary_that_nobody_watches_is_left_for_the_one_that_was_promoted(loaded: bool) -> None:
    """It answers, and waits for nobody: to who is connected nothing is wrong. `loaded`: the node has delivered from it;
    what it took there meanwhile is at no server that counts, and the same offsets are those of others."""
    with Replicas(2, synchronous=False) as shard, node(shard.create("zombie")) as client:
        client.publish("t", "0")
        if loaded:
            assert client.stats("t").ready == 1
        old = shard.primary
        caught_up = "select count(*) from pg_stat_replication where replay_lsn >= pg_current_wal_lsn()"
        wait_until(lambda: old.run(caught_up) == "1")
        new = shard.promote()
        frames = "select count(*) from mqueue.frames"
        before = int(new.run(frames, "zombie"))

        def taken() -> bool:
            with suppress(ShardDown):
                client.publish("t", "1")
            return int(new.run(frames, "zombie")) > before

        wait_until(taken)
        assert old.runs
        assert _received(client, "t").payload == b"0"
        assert [message.offset for message in client.scan("t")] == list(range(int(new.run(frames, "zombie"))))


def _received(client: mqueue.Client, topic: str) -> mqueue.Message:
    """The next one, though the node may be about to forget what it knew."""
    found: list[mqueue.Message] = []

    def taken() -> bool:
        with suppress(Unavailable):
            found.extend(client.receive(topic, wait="10s"))
        return bool(found)

    wait_until(taken)
    found[0].ack()
    return found[0]


def test_without_a_standby_nothing_is_stored(postgres: PostgresServer, database: str) -> None:
    """And whoever asks for less at the same time is served."""
    with node(database) as client:
        for topic in ("t", "deep"):
            client.publish(topic, "0")
        client.configure("deep", max_depth=100)
        with ThreadPoolExecutor(8) as threads:
            asked = [threads.submit(client.publish, "t", "1", durability=("quorum", None)[n % 2]) for n in range(32)]
            for number, one in enumerate(asked):
                if number % 2:
                    assert one.result(PATIENCE_SECONDS).durability == "shard"
                else:
                    assert no_quorum(one) == ("no_quorum", 400, False, False)
        for topic in ("t", "deep"):
            with pytest.raises(Refused, match="synchronous_standby_names is empty") as caught:
                client.publish_many(topic, ["1", "2"], durability="quorum")
            assert caught.value.code == "no_quorum"
        assert len(list(client.scan("t"))) == 17
        assert len(list(client.scan("deep"))) == 1


def no_quorum(asked: object) -> tuple[str, int, bool, bool | None]:
    with pytest.raises(Refused) as caught:
        asked.result(PATIENCE_SECONDS)  # type: ignore[attr-defined]
    return caught.value.code, caught.value.status, caught.value.retryable, caught.value.applied


def test_settings_that_the_server_does_not_heed_yet_confirm_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A standby is named, and there is none: a commit would wait for it, if the checkpointer were not busy."""
    monkeypatch.setattr(mouth, "DOUBT_SECONDS", 0.5)
    with PostgresServer() as server, node(server.create("busy")) as client:
        client.publish("t", "0")
        client.configure("deep", max_depth=100)
        busy = int(server.run("select pid from pg_stat_activity where backend_type = 'checkpointer'"))
        os.kill(busy, signal.SIGSTOP)
        try:
            wait_for_standbys(server, "nobody")
            wait_until(lambda: server.run("show synchronous_standby_names") == "nobody")
            for topic in ("t", "deep"):
                wait_until(partial(_doubted, client, topic))
            assert client.publish("t", "2").durability == "shard"
            wait_for_standbys(server, "")
        finally:
            os.kill(busy, signal.SIGCONT)


def _doubted(client: mqueue.Client, topic: str) -> bool:
    """Whether a publish that no standby has is in doubt. Until its owner has looked, it may be refused."""
    try:
        receipt = client.publish(topic, "1", durability="quorum")
    except Refused:
        return False
    except ShardDown as problem:
        return problem.applied is None
    raise AssertionError(f"no standby has what was answered by {receipt}")


def test_with_a_standby_receipts_say_so(shard: Replicas, url: str) -> None:
    with node(url) as client:
        client.configure("deep", max_depth=100)
        one = client.publish("t", "0", durability="quorum", idempotency_key="k")
        assert one.durability == "quorum"
        assert client.publish("t", "1").durability == "shard"
        again = client.publish("t", "0", durability="quorum", idempotency_key="k")
        assert (again.id, again.duplicate, again.durability) == (one.id, True, "quorum")
        mixed = client.publish_many(
            "t", [mqueue.Draft("0", idempotency_key="k"), mqueue.Draft("new")], durability="quorum"
        )
        assert [(r.duplicate, r.durability) for r in mixed] == [(True, "quorum"), (False, "quorum")]
        assert mixed[1].offset >= 0
        deep = client.publish_many("deep", ["0", "1"], durability="quorum")
        assert {receipt.durability for receipt in deep} == {"quorum"}
        assert [receipt.offset for receipt in deep] == [0, 1]


def test_a_trace_names_the_standbys(shard: Replicas, url: str) -> None:
    with node(url) as client:
        wait_until(lambda: "REPLICATED" in _story(client))
        told = next(event for event in client.trace(client.publish("t", "0").id).events if event.kind == "REPLICATED")
        [standby] = (f"s{number}" for number, server in enumerate(shard.servers) if server is not shard.primary)
        assert told.detail == f"confirmed by one or more of {standby}"


def _story(client: mqueue.Client) -> list[str]:
    return [event.kind for event in client.trace(client.publish("t", "0").id).events]


def test_who_starts_afresh_is_told_by_the_other_shard(
    shard: Replicas, url: str, postgres: PostgresServer, database: str
) -> None:
    """Its own server has been overtaken, and would let it in."""
    with node(database, url) as client:
        client.publish("t", "0")
        name = database.rpartition("/")[2]
        wait_until(lambda: postgres.run("select shard from mqueue.sightings", name) == "1")
    timeline = int(postgres.run("select timeline from mqueue.sightings", name))
    postgres.run(f"update mqueue.sightings set timeline = {timeline + 1}", name)
    away = next(name for name in (f"x{n}" for n in range(100)) if virtual_shard("default", name) % 2)
    with node(database, url) as client, pytest.raises(ShardDown):
        client.publish(away, "0")
    postgres.run("update mqueue.sightings set system = 7", name)
    with pytest.raises(BadSetting, match=r"system 7.*mqueue\.sightings at the others"), node(database, url):
        pass
    postgres.run("delete from mqueue.sightings", name)
    with node(database, url) as client:
        assert len(list(client.scan("t"))) == 1
