"""Nodes that answer with durability `wal`: what they answered arrives, once, whatever ends in between."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

import mqueue
from mqueue.cluster import breaker
from mqueue.cluster.wal import intake
from mqueue.cluster.wal.flusher import Flusher
from mqueue.cluster.wal.intake import Intake
from mqueue.cluster.wal.wal import Wal
from mqueue.config import Config
from mqueue.log.segments.disk import RealDisk
from mqueue.testing import NodeServer, PostgresServer, RedisServer, Replicas
from mqueue.testing.server import RunningServer
from tests.cluster.patience import wait_until
from tests.cluster.redis_nodes import config


@pytest.fixture
def node(database: str, redis_server: RedisServer, tmp_path: Path) -> Iterator[Callable[..., RunningServer]]:
    """`node("a")`: one that has the disk "a", stopped when the test is over if it still runs."""
    running: list[RunningServer] = []

    def start(disk: str = "a", **more: Any) -> RunningServer:
        running.append(RunningServer(settings(database, redis_server, tmp_path / disk, **more)))
        return running[-1]

    yield start
    for server in running:
        server.close()


def settings(database: str, redis: RedisServer, disk: Path, **more: Any) -> Config:
    found = config(database, redis)
    return replace(found, cluster=replace(found.cluster, **{"wal_dir": str(disk)} | more))


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Disks whose nodes flush nothing any more."""
    found: set[str] = set()
    run_once = Flusher.run_once

    async def some(flusher: Flusher) -> bool:
        path: str = flusher._drain._place.path  # type: ignore[attr-defined]
        return False if any(f"/{disk}/" in path for disk in found) else await run_once(flusher)

    monkeypatch.setattr(Flusher, "run_once", some)
    return found


def drained(client: mqueue.Client, topic: str, count: int) -> list[bytes]:
    """So many messages, and then no more."""
    found: list[bytes] = []
    while len(found) < count:
        messages = client.receive(topic, limit=1000, wait="60s")
        assert messages, f"{count - len(found)} of {count} are missing"
        found += [message.payload for message in messages]
        client.ack(messages)
    assert client.receive(topic, limit=1000) == []
    return found


def test_who_asks_for_it_is_answered_by_the_log(node) -> None:
    with mqueue.Client(node().url) as client:
        receipt = client.publish("t", "0", durability="wal")
        assert (receipt.durability, receipt.offset, receipt.duplicate) == ("wal", -1, False)
        receipts = client.publish_many("t", ["1", "2", "3"], durability="wal")
        assert {(one.durability, one.offset) for one in receipts} == {("wal", -1)}
        table = pa.table({"payload": [b"4", b"5"]})
        for one in client.publish_arrow("t", table, durability="wal"):
            assert (one.durability, one.offset) == ("wal", -1)
        assert drained(client, "t", 6) == [b"0", b"1", b"2", b"3", b"4", b"5"]
        assert [event.kind for event in client.trace(receipts[2].id).events][:1] == ["PUBLISHED"]
        assert client.publish("t", "6").offset == 6


def test_what_a_new_primary_has_not_got_is_brought_there(redis_server: RedisServer, tmp_path: Path) -> None:
    """It was flushed to the one before, which died before its standby had it."""
    with Replicas(2, synchronous=False) as shard:
        url = shard.create("behind")
        with RunningServer(settings(url, redis_server, tmp_path)) as server, mqueue.Client(server.url) as client:
            client.publish("t", "0", durability="wal")
            [standby] = shard.standbys()
            wait_until(lambda: _messages(standby) == 1)
            standby.run("alter system set primary_conninfo = ''")
            standby.run("select pg_reload_conf()")
            wait_until(lambda: standby.run("select count(*) from pg_stat_wal_receiver") == "0")
            client.publish_many("t", ["1", "2"], durability="wal")
            wait_until(lambda: _messages(shard.primary) == 3)
            shard.fail_over()
            assert sorted(drained(client, "t", 3)) == [b"0", b"1", b"2"]


def _messages(server: PostgresServer) -> int:
    """How many are in the shard."""
    sql = "select case when to_regclass('mqueue.frames') is null then 0 else 1 end"
    if server.run(sql, "behind") == "0":
        return 0
    return int(server.run("select coalesce(sum(count), 0) from mqueue.frames", "behind"))


def test_one_call_stays_together_and_in_order(node) -> None:
    """Also one of several frames, and several calls at once."""
    with mqueue.Client(node().url) as client:
        client.configure("t", partitions=1)
        numbers = [str(number) for number in range(10_000)]
        receipts = client.publish_many("t", numbers, durability="wal")
        assert len({one.id for one in receipts}) == len(numbers)
        assert drained(client, "t", len(numbers)) == [number.encode() for number in numbers]

        def publish(caller: int) -> None:
            for turn in range(10):
                client.publish_many("t", [f"{caller}.{turn}.{row}" for row in range(3)], durability="wal")

        callers = [threading.Thread(target=publish, args=(caller,)) for caller in range(8)]
        for thread in callers:
            thread.start()
        for thread in callers:
            thread.join()
        found = [payload.decode() for payload in drained(client, "t", 240)]
        for caller in range(8):
            wanted = [f"{caller}.{turn}.{row}" for turn in range(10) for row in range(3)]
            assert [one for one in found if one.startswith(f"{caller}.")] == wanted
        assert all(found[place + 1] == found[place][:-1] + "1" for place in range(240) if found[place][-1] == "0")


@pytest.mark.parametrize("with_copies", [True, False])
def test_what_was_not_flushed_is_there_after_a_restart(
    node, stuck: set[str], redis_server: RedisServer, with_copies: bool
) -> None:
    first = node("a")
    stuck.add("a")
    with mqueue.Client(first.url) as client:
        client.publish("t", "before")
        for turn in range(20):
            client.publish_many("t", [f"{turn}.0", f"{turn}.1"], durability="wal")
        assert drained(client, "t", 1) == [b"before"]
    first.close()
    if not with_copies:
        redis_server.flush()
    stuck.clear()
    with mqueue.Client(node("a").url) as client:
        assert drained(client, "t", 40) == [f"{turn}.{row}".encode() for turn in range(20) for row in range(2)]


def test_another_node_flushes_what_one_left_in_redis(node, stuck: set[str]) -> None:
    first = node("a")
    stuck.add("a")
    with mqueue.Client(first.url) as client:
        client.publish_many("t", ["0", "1"], durability="wal")
        client.publish("t", "2", durability="wal")
    first.close()
    with mqueue.Client(node("b").url) as other:
        assert drained(other, "t", 3) == [b"0", b"1", b"2"]
        stuck.clear()
        with mqueue.Client(node("a").url) as client:
            client.publish("t", "3", durability="wal")
            assert drained(client, "t", 1) == [b"3"]


def test_a_node_without_a_log_follows_one_that_has_one(node, stuck: set[str]) -> None:
    first = node("a")
    stuck.add("a")
    with mqueue.Client(node(wal_dir=None).url) as other:
        with mqueue.Client(first.url) as client:
            client.publish_many("t", ["0", "1"], durability="wal")
            client.publish("t", "2", durability="wal")
        first.close()
        assert drained(other, "t", 3) == [b"0", b"1", b"2"]


def test_what_redis_forgets_it_gets_again_before_more_is_answered(node, stuck: set[str], redis_server) -> None:
    """Else nobody would find the rest, should the node not come back."""
    first = node("a")
    stuck.add("a")
    numbers = itertools.count()
    with mqueue.Client(first.url) as client:
        for calls in (1, 3, 150):
            for _ in range(calls):
                assert client.publish("t", str(next(numbers)), durability="wal").durability == "wal"
            redis_server.flush()
        assert client.publish("t", str(next(numbers)), durability="wal").durability == "wal"
    first.close()
    with mqueue.Client(node("b").url) as other:
        assert drained(other, "t", 155) == [str(number).encode() for number in range(155)]


def test_what_redis_did_not_take_it_gets_with_the_next(
    database: str, tmp_path: Path, stuck: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who met its end is told that nobody knows: what he published is delivered all the same, and what follows it."""
    monkeypatch.setattr(intake, "PATIENCE_SECONDS", 0.0)
    with RedisServer() as redis, ExitStack() as stack:
        first = RunningServer(settings(database, redis, tmp_path / "a"))
        stack.callback(first.close)
        with mqueue.Client(first.url, retry=False) as client:
            client.publish("t", "0")
            stuck.add("a")
            assert client.publish("t", "1", durability="wal").durability == "wal"
            redis.kill()
            with pytest.raises(mqueue.Unavailable) as told:
                client.publish("t", "2", durability="wal")
            assert (told.value.code, told.value.applied) == ("not_written", None)
            redis.start()
            numbers = itertools.count(3)
            wait_until(lambda: client.publish("t", str(next(numbers)), durability="wal").durability == "wal")
        first.close()
        with RunningServer(settings(database, redis, tmp_path / "b")) as second, mqueue.Client(second.url) as other:
            wanted = [str(number).encode() for number in range(next(numbers))]
            assert sorted(drained(other, "t", len(wanted))) == sorted(wanted)


def test_what_was_flushed_and_not_forgotten_is_not_flushed_again(node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node ends after the statement, and before it has removed anything."""
    with monkeypatch.context() as patch:
        patch.setattr(Intake, "_drop", lambda one, positions: None)
        patch.setattr(Wal, "_forget", lambda wal: None)
        first = node("a")
        with mqueue.Client(first.url) as client:
            for number in range(10):
                client.publish("t", str(number), durability="wal")
            wanted = [str(number).encode() for number in range(10)]
            assert drained(client, "t", 10) == wanted
        first.close()
    with mqueue.Client(node("a").url) as client, mqueue.Client(node("b").url) as other:
        other.publish("t", "last", durability="wal")
        assert drained(client, "t", 1) == [b"last"]


def test_a_node_that_is_killed_loses_nothing_that_it_answered(
    database: str, redis_server: RedisServer, tmp_path: Path
) -> None:
    """Three times in the middle of publishing. What was not answered may be there, once."""
    cluster = {
        "cluster.databaseUrls": [database],
        "cluster.redisAddrs": [f"127.0.0.1:{redis_server.port}"],
        "cluster.redisPassword": redis_server.password,
    }
    server = NodeServer(cluster, tmp_path / "node")
    answered: list[str] = []
    tried: list[str] = []
    try:
        for life in range(3):
            ended = threading.Event()

            def publish(caller: int, life: int = life, ended: threading.Event = ended) -> None:
                with mqueue.Client(server.url, retry=False) as client:
                    turn = 0
                    while not ended.is_set():
                        name = f"{life}.{caller}.{turn}"
                        tried.append(name)
                        try:
                            client.publish("t", name, durability="wal")
                        except mqueue.Error:
                            continue
                        finally:
                            turn += 1
                        answered.append(name)

            before = len(answered)
            callers = [threading.Thread(target=publish, args=(caller,)) for caller in range(4)]
            for thread in callers:
                thread.start()
            wait_until(lambda before=before: len(answered) > before + 100)
            server.kill()
            ended.set()
            for thread in callers:
                thread.join()
            server.start()
        with mqueue.Client(server.url) as client:
            wait_until(lambda: client.stats("t").retained >= len(answered))
            found = Counter(message.payload.decode() for message in _all(client))
    finally:
        server.close()
    assert not Counter(answered) - found
    assert set(found) <= set(tried)
    assert max(found.values()) == 1


def _all(client: mqueue.Client) -> Iterator[Any]:
    while messages := client.receive("t", limit=1000, wait="2s"):
        yield from messages
        client.ack(messages)


def test_without_redis_it_goes_straight_to_the_shard(database: str, tmp_path: Path) -> None:
    """The one who meets its end waits for the shard, too, and is told so."""
    with (
        RedisServer() as redis,
        RunningServer(settings(database, redis, tmp_path)) as server,
        mqueue.Client(server.url, retry=False) as client,
    ):
        assert client.publish("t", "0", durability="wal").durability == "wal"
        wait_until(lambda: client.stats("t").retained == 1)
        redis.kill()
        for number in range(1, 4):
            receipt = client.publish("t", str(number), durability="wal")
            assert (receipt.durability, receipt.offset) == ("shard", number)
        table = client.publish_arrow("t", pa.table({"payload": [b"4", b"5"]}), durability="wal")
        assert [(one.durability, one.offset) for one in table] == [("shard", 4), ("shard", 5)]
        redis.start()
        wait_until(lambda: client.publish("t", "more", durability="wal").durability == "wal")
        assert [message.payload for message in client.receive("t", limit=5)] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_disk_that_fails_is_not_used_any_more(node, monkeypatch: pytest.MonkeyPatch) -> None:
    with mqueue.Client(node().url, retry=False) as client:
        assert client.publish("t", "0", durability="wal").durability == "wal"
        wait_until(lambda: client.stats("t").retained == 1)
        sync = RealDisk.sync

        def fails(disk: RealDisk, file: int) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(RealDisk, "sync", fails)
        receipts = client.publish_many("t", ["1", "2"], durability="wal")
        monkeypatch.setattr(RealDisk, "sync", sync)
        assert [(one.durability, one.offset) for one in receipts] == [("shard", 1), ("shard", 2)]
        assert client.publish("t", "3", durability="wal").durability == "shard"
        assert drained(client, "t", 4) == [b"0", b"1", b"2", b"3"]
    with mqueue.Client(node("b").url) as client:  # nor does somebody find them elsewhere
        assert client.receive("t") == []
        assert client.stats("t").retained == 4


@pytest.mark.parametrize(
    ("more", "topic"), [({"idempotency_key": "k"}, "t"), ({"delay": "2s"}, "t"), ({}, "deep"), ({}, "until")]
)
def test_what_needs_the_shard_or_an_owner_is_refused(node, more: dict[str, str], topic: str) -> None:
    with mqueue.Client(node().url, retry=False) as client:
        client.configure("deep", max_depth=10)
        client.configure("until", dedup="until_acked")
        with pytest.raises(mqueue.Refused) as told:
            client.publish(topic, "x", durability="wal", **more)
        assert (told.value.code, told.value.status) == ("not_for_wal", 400)
        drafts = [mqueue.Draft("x", **more), mqueue.Draft("y", **more)]
        with pytest.raises(mqueue.Refused, match="wal"):
            client.publish_many(topic, drafts, durability="wal")
        assert client.receive(topic) == []
        client.publish("t", "soon", durability="wal", delay="10ms")
        assert [message.payload for message in client.receive("t", wait="60s")] == [b"soon"]


def test_a_table_with_late_messages_is_refused(node) -> None:
    with mqueue.Client(node().url, retry=False) as client:
        late = pa.table({"payload": [b"a", b"b"], "deliver_at": pa.array([0, 4_000_000_000_000], pa.int64())})
        with pytest.raises(mqueue.Refused, match="due in"):
            client.publish_arrow("t", late, durability="wal")


def test_without_a_log_it_is_not_offered(database: str, redis_server: RedisServer) -> None:
    with RunningServer(config(database, redis_server)) as server, mqueue.Client(server.url, retry=False) as client:
        with pytest.raises(mqueue.BadSetting, match="'shard'"):
            client.publish("t", "x", durability="wal")
        with pytest.raises(mqueue.NotFound):
            client.trace(client.publish("t", "x").id + 1)


def test_who_looks_for_a_young_message_is_told_to_come_again(node, stuck: set[str]) -> None:
    with mqueue.Client(node().url, retry=False) as client:
        client.publish("t", "first")
        stuck.add("a")
        receipt = client.publish("t", "x", durability="wal")
        with pytest.raises(mqueue.Unavailable) as told:
            client.trace(receipt.id)
        assert (told.value.code, told.value.status, told.value.applied) == ("not_yet_visible", 503, False)
        with pytest.raises(mqueue.NotFound):
            client.trace(receipt.id - (3_600_000 << 22))
        stuck.clear()
        wait_until(lambda: client.stats("t").retained == 2)
        assert client.trace(receipt.id).events


def test_so_much_waits_and_no_more(node, stuck: set[str]) -> None:
    stuck.add("a")
    with mqueue.Client(node(buffer_length_max=5).url, retry=False) as client:
        for number in range(5):
            client.publish("t", str(number), durability="wal")
        for durability in ("wal", "shard"):
            with pytest.raises(mqueue.Unavailable) as told:
                client.publish("t", "x", durability=durability)
            assert (told.value.code, told.value.status, told.value.applied) == ("backpressure", 503, False)
            assert told.value.retry_after
        stuck.clear()
        assert drained(client, "t", 5) == [b"0", b"1", b"2", b"3", b"4"]
        client.publish("t", "again", durability="wal")
        assert drained(client, "t", 1) == [b"again"]


def test_bytes_count_as_well(node, stuck: set[str]) -> None:
    stuck.add("a")
    with mqueue.Client(node(buffer_bytes_max=10_000).url, retry=False) as client:
        client.publish("t", "x" * 20_000, durability="wal")
        with pytest.raises(mqueue.Backpressure):
            client.publish("t", "y", durability="wal")
        stuck.clear()
        drained(client, "t", 1)


def test_a_shard_that_is_gone_is_not_asked_and_the_log_waits(
    redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breaker, "PAUSE_SECONDS", 600.0)
    with (
        PostgresServer() as postgres,
        RunningServer(settings(postgres.create("mine"), redis_server, tmp_path)) as server,
        mqueue.Client(server.url, retry=False) as client,
    ):
        client.publish("t", "0")
        postgres.kill()
        assert client.publish("t", "1", durability="wal").durability == "wal"
        told: list[mqueue.Error] = []

        def refused() -> bool:
            with pytest.raises(mqueue.Unavailable) as problem:
                client.publish("t", "x")
            told.append(problem.value)
            return "not asked again" in told[-1].message

        wait_until(refused)
        for durability in ("wal", "shard"):
            with pytest.raises(mqueue.ShardDown) as problem:
                client.publish("t", "x", durability=durability)
            assert (problem.value.applied, problem.value.status) == (False, 503)
            assert problem.value.retry_after
            assert problem.value.retry_after > 60
        postgres.start()
        admit = breaker.Breaker.admit
        monkeypatch.setattr(breaker.Breaker, "admit", lambda one, now: admit(one, now + 3600))  # the pause is over
        wait_until(lambda: _published(client, "2"))
        found: list[bytes] = []
        while b"2" not in found or b"1" not in found:
            found += [message.payload for message in client.receive("t", limit=1000, wait="60s")]
        assert found.count(b"1") == 1


def _published(client: mqueue.Client, payload: str) -> bool:
    try:
        client.publish("t", payload)
    except mqueue.Unavailable:
        return False
    return True
