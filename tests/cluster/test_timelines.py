"""Nodes tell each other over Redis which timeline a shard has reached. Whatever is there, what is known never falls."""

from __future__ import annotations

from contextlib import closing
from uuid import uuid4

from mqueue.cluster.redis.line import Access, Line
from mqueue.cluster.redis.timelines import hint
from mqueue.log.postgres.seen import Seen, Sight
from mqueue.testing import RedisServer


def test_what_one_has_seen_others_learn(redis_server: RedisServer) -> None:
    access = Access((f"127.0.0.1:{redis_server.port}",), password=redis_server.password)
    with closing(Line.of(access, uuid4())) as line:
        key = line.key("timelines")
        one, other, stranger = Seen(), Seen(), Seen()
        one.learn(Sight(7, 3, 100))
        other.learn(Sight(7, 2, 900))
        stranger.learn(Sight(8, 9))
        hint(line, 0, one)
        hint(line, 0, other)
        assert other.timeline == 3
        hint(line, 1, other)  # another shard
        hint(line, 0, stranger)
        assert stranger.sight == Sight(8, 9)
        for rubbish in (b"", b"7", b"x:y", b"7:1"):
            line.do(lambda client, rubbish=rubbish: client.hset(key, "0", rubbish))
            hint(line, 0, one)
            assert one.timeline == 3
        assert line.do(lambda client: client.hget(key, "0")) == b"7:3", "and it is told again"
        assert line.do(lambda client: client.pttl(key)) > 0
