"""Copies of frames, and wake-ups: they help, and nothing depends on them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from uuid import uuid4

import pytest

import mqueue
from mqueue.cluster.estate import Estate
from mqueue.cluster.redis.annex import Annex, packed, unpacked
from mqueue.cluster.redis.line import Line
from mqueue.cluster.redis.outbox import Outbox
from mqueue.cluster.redis.outpost import Outpost
from mqueue.cluster.redis.wake import Wake
from mqueue.log.postgres import frames
from mqueue.log.postgres.batch import Arrival
from mqueue.log.postgres.tape import Place
from mqueue.server.placing.poking import Poker
from mqueue.testing import RedisServer
from tests.cluster.patience import PATIENCE_SECONDS, wait_until
from tests.cluster.redis_nodes import access, config, nodes

ARRIVAL = Arrival(3, 1, 40, 2, 7_000, 5, 9, b"h" * 88, None, b"body")
PLACE = Place(40, 2, 7_000, 5, 9, 40)
TOPICS = [f"t{number}" for number in range(12)]


@pytest.fixture
def outpost(redis_server: RedisServer) -> Iterator[Outpost]:
    with closing(Outpost(access(redis_server), uuid4())) as outpost:
        yield outpost


def kept(outpost: Outpost, *arrivals: Arrival) -> Annex:
    annex = outpost.annex("shard0")
    annex.keep(arrivals)
    assert outpost.outbox.settled(PATIENCE_SECONDS)
    return annex


def test_a_copy_is_the_frame_or_nothing() -> None:
    data = packed(ARRIVAL)
    assert unpacked(data, 3, 1, PLACE) == (b"h" * 88, b"body")
    others = [Place(41, 2, 7_000, 5, 9, 41), Place(40, 1, 7_000, 5, 9, 40), Place(40, 2, 7_001, 5, 9, 40)]
    assert [unpacked(data, 3, 1, other) for other in others] == [None] * 3
    assert unpacked(data, 4, 1, PLACE) is None
    assert unpacked(data, 3, 0, PLACE) is None
    for place in range(len(data)):
        broken = bytearray(data)
        broken[place] ^= 1
        assert unpacked(bytes(broken), 3, 1, PLACE) is None
        assert unpacked(data[:place], 3, 1, PLACE) is None


def test_what_was_kept_is_found_until_it_is_too_old(outpost: Outpost, redis_server: RedisServer) -> None:
    annex = kept(outpost, ARRIVAL)
    assert annex.find(3, 1, [PLACE, Place(42, 1, 9_000, 5, 9, 42)]) == {40: (b"h" * 88, b"body")}
    assert outpost.annex("shard1").find(3, 1, [PLACE]) == {}, "servers count their topics each for itself"
    assert annex.find(3, 1, [Place(40, 2, 7_000, 5, 9, 39)]) == {}, "a slice is not the frame"
    key = outpost.line.key("frame", b"shard0", 3, 1, 40)
    assert 0 < outpost.line.do(lambda client: client.pttl(key)) <= 60_000
    outpost.line.do(lambda client: client.set(key, b"nonsense"))
    assert annex.find(3, 1, [PLACE]) == {}
    redis_server.flush()
    assert annex.find(3, 1, [PLACE]) == {}


def test_too_much_is_dropped(redis_server: RedisServer) -> None:
    with closing(Line.of(access(redis_server), uuid4())) as line, closing(Outbox(line, bytes_max=100)) as outbox:
        held, go = threading.Event(), threading.Event()

        def slow() -> list[tuple[bytes, bytes, int]]:
            held.set()
            go.wait(PATIENCE_SECONDS)
            return [(line.key("x", 1), b"1", 1000)]

        outbox.offer(slow, 60)
        assert held.wait(PATIENCE_SECONDS)
        outbox.offer(lambda: [(line.key("x", 2), b"2", 1000)], 60)
        outbox.offer(lambda: [(line.key("x", 3), b"3", 1000)], 30)
        go.set()
        assert outbox.settled(PATIENCE_SECONDS)
        assert (outbox.sent, outbox.dropped) == (2, 1)


def test_without_redis_wake_ups_go_another_way() -> None:
    with RedisServer() as server, closing(Outpost(access(server), uuid4())) as outpost:
        told: list[int] = []
        server.kill()
        outpost.annex("shard0").wake(1, [ARRIVAL], lambda: told.append(1))
        wait_until(lambda: told == [1])
        wait_until(lambda: outpost.line.is_away)
        outpost.annex("shard0").wake(1, [ARRIVAL], lambda: told.append(2))
        assert told == [1, 2]


def test_all_who_listen_hear(redis_server: RedisServer) -> None:
    cluster, heard = uuid4(), ([], [])
    outposts = [Outpost(access(redis_server), cluster, heard=each.append) for each in heard]
    with closing(outposts[0]) as first, closing(outposts[1]):
        for outpost in outposts:
            outpost.start()
            assert outpost.ear.listens.wait(PATIENCE_SECONDS)
        first.line.do(lambda client: client.publish(first.line.key("wake"), b"nonsense"))
        first.annex("shard0").wake(9, [ARRIVAL], lambda: None)
        expected = [Wake("shard0", 9, ((3, 1, 42),))]
        wait_until(lambda: heard == (expected, expected))


def test_who_listens_does_so_again_when_redis_is_back() -> None:
    heard: list[Wake] = []
    with RedisServer() as server, closing(Outpost(access(server), uuid4(), heard=heard.append)) as outpost:
        outpost.start()
        assert outpost.ear.listens.wait(PATIENCE_SECONDS)
        server.kill()
        wait_until(lambda: not outpost.ear.listens.is_set())
        server.start()
        assert outpost.ear.listens.wait(PATIENCE_SECONDS)
        wait_until(lambda: not outpost.line.is_away)
        outpost.annex("shard0").wake(9, [ARRIVAL], lambda: None)
        wait_until(lambda: bool(heard))


def test_nodes_read_copies_and_wake_each_other(database: str, redis_server: RedisServer, monkeypatch) -> None:
    """Nobody looks by himself, nobody pokes, and PostgreSQL gives no bodies: so it is all done over Redis."""

    def no_bodies(*args: object) -> list[tuple[int, bytes, bytes]]:
        raise AssertionError("there are copies")

    monkeypatch.setattr(Estate, "_since", lambda estate: 1 << 62)
    monkeypatch.setattr(Poker, "poke", lambda *args: None)
    monkeypatch.setattr(frames, "bodies", no_bodies)
    with (
        nodes(2, config(database, redis_server)) as (one, other),
        mqueue.Client(one.url) as first,
        mqueue.Client(other.url) as second,
        ThreadPoolExecutor(len(TOPICS)) as threads,
    ):
        waiting = [threads.submit(first.receive, topic, wait="60s") for topic in TOPICS]
        threading.Event().wait(2)  # not needed, but by then most of them wait
        for topic in TOPICS:
            second.publish(topic, topic)
        found = [future.result(2 * PATIENCE_SECONDS) for future in waiting]
        payloads = [[message.payload.decode() for message in messages] for messages in found]
        assert payloads == [[topic] for topic in TOPICS]
