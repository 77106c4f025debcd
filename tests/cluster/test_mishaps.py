"""One thing goes wrong at a bad moment: a read, a look at the catalog, half of what was published at once. Nothing that
was answered is lost, doubled or told wrongly, and the node goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import msgspec
import psycopg
import pytest

import mqueue
from mqueue.broker.loop import LoopBroker
from mqueue.broker.twin import twin_of
from mqueue.cluster.tokens import is_later, token_epoch
from mqueue.config import Cluster, Config, Metrics, Secret
from mqueue.log.postgres import catalog, claims, frames, journal, migrate, owning
from mqueue.log.postgres.journal import Entry
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.problems import Fenced
from mqueue.model.errors import ShardDown
from mqueue.model.settings import Settings
from mqueue.policy.routing import virtual_shard
from mqueue.store.shard import ShardStore
from mqueue.testing import ManualClock, PostgresServer
from mqueue.testing.server import RunningServer
from tests.cluster.alone import VSHARD, Alone
from tests.cluster.patience import wait_until

TOPICS = [f"t{number}" for number in range(8)]


@pytest.fixture
def urls(database: str) -> Iterator[list[str]]:
    """Of two nodes: of some topics the first is the owner, of others the second."""
    config = Config(metrics=Metrics(enabled=False), cluster=Cluster((Secret(database),)))
    with RunningServer(config) as first, RunningServer(config) as second:
        yield [first.url, second.url]


@pytest.fixture
def nodes(urls: list[str]) -> Iterator[list[mqueue.Client]]:
    """Clients of these that are told at once of whatever fails."""
    with mqueue.Client(urls[0], retry=False) as one, mqueue.Client(urls[1], retry=False) as other:
        yield [one, other]


def once(call: Callable[..., Any], instead: Callable[..., Any], when: Callable[..., bool]) -> Callable[..., Any]:
    """A call that is another one the first time that something holds."""
    left = [True]

    def made(*args: Any, **more: Any) -> Any:
        if left[0] and when(*args):
            left[0] = False
            return instead(*args, **more)
        return call(*args, **more)

    return made


def fails(*args: Any, **more: Any) -> Any:
    raise ShardDown("it broke, once", applied=None)


def drained(client: mqueue.Client, topic: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count and (messages := client.receive(topic, limit=100, wait="60s")):
        found += [message.payload for message in messages]
        client.ack(messages)
    return found


def test_a_frame_that_cannot_be_read_when_it_arrives_is_looked_for_again(urls, nodes, monkeypatch) -> None:
    """Its rows have several priorities, so whoever delivers it has to read it before he knows their order. It may be
    whoever receives for whom it is read first: he is told to come again, and a client does."""
    drafts = [mqueue.Draft("low", priority="low"), mqueue.Draft("urgent", priority="critical")]
    with mqueue.Client(urls[0]) as client:
        for topic in TOPICS:
            nodes[0].publish(topic, "known", priority="critical")
            assert drained(client, topic, 1) == [b"known"]
            monkeypatch.setattr(frames, "bodies", once(frames.bodies, fails, lambda *args: True))
            for node in nodes:
                node.publish_many(topic, drafts)
            assert sorted(drained(client, topic, 4)) == [b"low", b"low", b"urgent", b"urgent"]


@pytest.mark.parametrize("times", [1, 2])
def test_who_receives_what_cannot_be_taken_in_is_told_to_come_again(database: str, monkeypatch, times: int) -> None:
    """Once when it was published, and once more for who receives."""
    config = Config(metrics=Metrics(enabled=False), cluster=Cluster((Secret(database),)))
    with RunningServer(config) as server, mqueue.Client(server.url) as client:
        client.publish("t", "known")
        assert drained(client, "t", 1) == [b"known"]
        taken_in = ShardStore.take_in
        for _ in range(times):
            taken_in = once(taken_in, fails, lambda *args: True)
        monkeypatch.setattr(ShardStore, "take_in", taken_in)
        client.publish("t", "new")
        assert drained(client, "t", 1) == [b"new"]


def test_what_a_node_could_not_take_in_is_there_for_who_reads(database: str, monkeypatch) -> None:
    """Also of a node alone, which need not look for what others append. What cannot be had is no empty answer."""
    config = Config(metrics=Metrics(enabled=False), cluster=Cluster((Secret(database),)))
    with RunningServer(config) as server, mqueue.Client(server.url, retry=False) as client:
        client.publish("t", "known")
        assert drained(client, "t", 1) == [b"known"]
        for round in range(1, 11):
            with monkeypatch.context() as patch:
                patch.setattr(ShardStore, "take_in", fails)
                client.publish_many("t", ["1", "2"])
                with pytest.raises(mqueue.Unavailable):
                    client.receive("t", limit=1)
            assert len(list(client.scan("t"))) == 1 + 2 * round


def owned(link: Link) -> list[int]:
    """How many virtual shards each node has that is alive."""
    rows = link.call(
        "select count(*) from mqueue.vshards v join mqueue.sessions s using (owner)"
        " where s.until > clock_timestamp() group by owner order by 1"
    )
    return [count for (count,) in rows]


def test_what_could_not_be_given_away_is_given_later(database: str, monkeypatch) -> None:
    """A node that makes room for another has stopped to deliver from it by then, and nobody else may begin."""
    config = Config(metrics=Metrics(enabled=False), cluster=Cluster((Secret(database),)))
    with RunningServer(config) as first:
        link = Link(database, "test")
        wait_until(lambda: owned(link) == [1024])
        monkeypatch.setattr(owning, "disown", once(owning.disown, fails, lambda *args: True))
        with RunningServer(config) as second, mqueue.Client([first.url, second.url]) as client:
            wait_until(lambda: owned(link) == [512, 512])
            for topic in TOPICS:
                client.publish(topic, "x")
                assert drained(client, topic, 1) == [b"x"]
        link.close()


def test_what_could_not_be_given_away_is_kept_if_nobody_wants_it_any_more(database: str, monkeypatch) -> None:
    """The node for which room was made is gone before there was any."""
    config = Config(metrics=Metrics(enabled=False), cluster=Cluster((Secret(database),)))
    with RunningServer(config) as first:
        refused = threading.Event()

        def refuse(*args: Any) -> None:
            refused.set()
            fails()

        monkeypatch.setattr(owning, "disown", refuse)
        with RunningServer(config):
            assert refused.wait(120)
        with mqueue.Client(first.url) as client:
            for topic in TOPICS:
                client.publish(topic, "x")
                assert drained(client, topic, 1) == [b"x"]


def test_who_was_committed_is_told_so_whatever_becomes_of_others(database: str, monkeypatch) -> None:
    """What several virtual shards changed is refused because of one of them. So each goes by itself, and the server is
    lost on the way."""
    other, commit = virtual_shard("default", "other"), journal.commit
    node = Alone(database, ManualClock())

    def fragile(link: Link, owner: Any, entries: list[Entry], sheets: list[Any], *args: Any, **more: Any) -> Any:
        concerned = {sheet.vshard for sheet in sheets}
        if concerned >= {VSHARD, other}:
            raise Fenced("one of them")
        if other in concerned:
            raise ShardDown("it is gone", applied=False)
        return commit(link, owner, entries, sheets, *args, **more)

    async def publish() -> list[Any]:
        holdings = [await node.estate.holding(vshard) for vshard in (VSHARD, other)]
        owners = [twin_of(LoopBroker._over(holding.engine, "default", "")) for holding in holdings]
        calls = [owner.publish(topic, b"x") for owner, topic in zip(owners, ("t", "other"), strict=True)]
        return await asyncio.gather(*calls, return_exceptions=True)

    def published() -> list[Any]:
        return asyncio.run_coroutine_threadsafe(publish(), node.estate.loop).result(120)

    assert [receipt.topic for receipt in published()] == ["t", "other"]
    with monkeypatch.context() as patch:
        patch.setattr(journal, "commit", fragile)
        taken, refused = published()
    assert (taken.topic, refused.code, refused.applied) == ("t", "shard_down", False)
    counts = node.link.call(
        "select t.name, sum(f.count) from mqueue.frames f join mqueue.topics t using (topic_id) group by 1 order by 1"
    )
    assert [(name, int(count)) for name, count in counts] == [("other", 1), ("t", 2)]
    node.close()


def test_publishing_goes_on_when_what_was_published_could_not_be_told(nodes, monkeypatch) -> None:
    """The topic is new to a virtual shard that is delivered already: it has to be looked up, in the loop."""
    home = virtual_shard("default", "t0")
    new = next(name for name in (f"x{n}" for n in range(100_000)) if virtual_shard("default", name) == home)
    for client in nodes:
        client.publish("t0", "known")

    def in_loop(*args: Any) -> bool:
        return threading.current_thread().name.startswith("mqueue-estate")

    monkeypatch.setattr(catalog, "rows_of", once(catalog.rows_of, fails, in_loop))
    for client in nodes:
        client.publish(new, "first")
    with ThreadPoolExecutor(16) as threads:
        for _ in threads.map(lambda number: nodes[number % 2].publish("t0", str(number)), range(64)):
            pass
    assert len(drained(nodes[0], "t0", 66)) == 66
    assert drained(nodes[0], new, 2) == [b"first", b"first"]


def test_a_call_to_several_topics_is_not_torn_by_the_end_of_one(nodes) -> None:
    """Deleted at one node, published to at the other, which does not know yet."""
    for number in range(5):
        keep, gone = f"keep{number}", f"gone{number}"
        both = [mqueue.Draft("0", topic=keep), mqueue.Draft("0", topic=gone)]
        nodes[1].publish_many(None, both)
        nodes[0].delete_topic(gone)
        nodes[1].publish_many(None, both)
        assert [len(list(nodes[0].scan(topic))) for topic in (keep, gone)] == [2, 1]


def test_a_call_to_several_topics_is_not_torn_by_a_key_that_is_taken(nodes, monkeypatch) -> None:
    """By another call, which had not committed when this one looked."""
    [client, _] = nodes
    client.publish("y", "first", idempotency_key="k")
    client.publish("x", "0")
    drafts = [mqueue.Draft("unkeyed", topic="x"), mqueue.Draft("first", topic="y", idempotency_key="k")]
    with monkeypatch.context() as patch:
        patch.setattr(claims, "lookup", lambda *args: {})
        with pytest.raises(mqueue.Unavailable) as told:
            client.publish_many(None, drafts)
    assert (told.value.code, told.value.applied) == ("key_in_use", False)
    assert [message.payload for message in client.scan("x")] == [b"0"]
    assert [receipt.duplicate for receipt in client.publish_many(None, drafts)] == [False, True]


def test_settings_and_deletions_are_in_the_catalog_when_they_are_answered(nodes, database: str) -> None:
    """And with whatever was changed together with them, or not at all."""
    link = Link(database, "test")
    with ThreadPoolExecutor(8) as threads:
        for _ in threads.map(lambda topic: nodes[0].configure(topic, max_depth=5), TOPICS):
            pass
        for _ in threads.map(lambda topic: nodes[1].publish(topic, "x"), TOPICS):
            pass
        known = {row.name: row.settings for row in catalog.topics_of(link, range(1024))}
        assert {msgspec.msgpack.decode(known[topic], type=Settings).max_depth for topic in TOPICS} == {5}
        for _ in threads.map(nodes[0].delete_topic, TOPICS):
            pass
    assert catalog.topics_of(link, range(1024)) == []
    link.close()


def test_the_cache_of_a_server_that_has_lost_something_is_not_believed(nodes, database: str) -> None:
    """As after a failover to a standby that was behind: the same places are given again."""
    link = Link(database, "test")
    for topic in TOPICS:
        nodes[0].configure(topic, partitions=1)
        nodes[0].publish(topic, "lost")
        nodes[1].peek(topic)
    link.call("delete from mqueue.frames")
    link.call("update mqueue.sessions set until = clock_timestamp()")  # so that all they remember is forgotten
    lasting = "select count(*) from mqueue.vshards v join mqueue.sessions s using (owner) where s.until > now()"
    wait_until(lambda: link.call(lasting) == [(1024,)])
    for topic in TOPICS:
        receipt = nodes[1].publish(topic, "new")
        [message] = nodes[0].receive(topic, wait="60s")
        assert (message.id, message.payload) == (receipt.id, b"new")
    link.close()


def test_fences_hold_whatever_isolation_a_database_prefers(postgres: PostgresServer, database: str) -> None:
    name = database.rpartition("/")[2]
    postgres.run(f"alter database {name} set default_transaction_isolation = 'repeatable read'")
    link, later = Link(database, "old"), Link(database, "new")
    migrate.migrate(link)
    migrate.assign(link, 0, 1, uuid4())
    old, new = uuid4(), uuid4()
    owning.beat(link, old, 1, "a", 60_000)
    epoch = owning.own(link, old, [5])[5]
    journal.commit(link, old, [Entry(5, epoch, 1, 1_790_000_000_000, b"1")], [], None)
    owning.beat(later, new, 2, "b", 60_000)
    later.call("update mqueue.sessions set until = clock_timestamp() where owner = %b", (old,))
    with psycopg.connect(database) as slow, ThreadPoolExecutor(1) as threads:
        slow.execute("set transaction isolation level read committed")
        slow.execute("select * from mqueue.own(%s, %s::bigint[])", (new, [5]))
        late = threads.submit(journal.commit, link, old, [Entry(5, epoch, 2, 1_790_000_000_000, b"2")], [], None)
        waits = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
        while later.call(waits) == [(0,)]:
            pass
        slow.commit()
        with pytest.raises(Fenced):
            late.result()
    link.close()
    later.close()


def test_settings_hold_at_all_nodes_from_when_they_are_answered(nodes) -> None:
    """Whoever publishes at another node goes by them, though it has not heard of them yet."""
    for topic in TOPICS:
        for client in nodes:
            client.publish(topic, "known")
        nodes[0].configure(topic, default_ttl="1h", partitions=3)
        receipts = [nodes[number % 2].publish(topic, "x") for number in range(6)]
        assert {receipt.partition for receipt in receipts} == {0, 1, 2}
        nodes[1].configure(topic, max_depth=1)
        for client in nodes:
            with pytest.raises(mqueue.QueueFull):
                client.publish(topic, "too much")
        expiring = [message.expires_at is not None for message in nodes[0].scan(topic, partition=2)]
        assert expiring
        assert all(expiring)


def test_a_token_tells_whether_a_later_owner_gave_it_out() -> None:
    """Whoever was overtaken and has not heard of it does not say that such a lease is lost."""
    token = f"{token_epoch(734, 4):08x}" + "0" * 24
    assert [is_later(token, 734, epoch) for epoch in (3, 4, 5)] == [True, False, False]
    assert not is_later(token, 735, 3)
    assert not is_later("nonsense", 734, 3)
