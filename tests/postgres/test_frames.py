"""Frames are read from an offset on, by their bases, by an id; and reading uses an index, however much there is."""

from __future__ import annotations

import json
import re

from mqueue.log.postgres import frames as module
from mqueue.log.postgres.appends import append
from mqueue.log.postgres.frames import bodies, ends, find, news, tails
from mqueue.log.postgres.link import Link
from tests.postgres.shards import DAY_MS, NOON_MS, new_topic, sheet


def test_tails_begin_at_an_offset_and_end_at_a_limit(link: Link, topic: int) -> None:
    for day in range(3):
        append(link, [sheet(topic, 0), sheet(topic, 1)], NOON_MS + day * DAY_MS)
    found = tails(link, [(topic, 1, 3), (topic, 0, 0), (topic, 2, 0), (topic, 0, 7)], 2, bodies=False)
    assert [row[:3] for row in found] == [(topic, 1, 3), (topic, 1, 6), (topic, 0, 0), (topic, 0, 3)]
    assert {len(row) for row in found} == {8}
    later = tails(link, [(topic, 0, 0)], 10, bodies=False, since=NOON_MS + DAY_MS)
    assert [row[2] for row in later] == [3, 6]
    assert tails(link, [], 10, bodies=False) == []


def test_large_bodies_come_back_whole(link: Link, topic: int) -> None:
    large = bytes(range(256)) * 20_000
    sheets = [sheet(topic, body=large), sheet(topic, head=b"h" * 6000, body=large[1:]), sheet(topic, body=b"")]
    append(link, sheets, NOON_MS)
    assert bodies(link, topic, 0, [6, 3, 0], since=NOON_MS) == [
        (0, b"head", large),
        (3, b"h" * 6000, large[1:]),
        (6, b"head", b""),
    ]
    assert bodies(link, topic, 0, [0], since=NOON_MS + DAY_MS) == [], "not in the days that were looked at"


def test_a_message_is_found_by_its_id(link: Link, topic: int) -> None:
    first, second = sheet(topic, base_id=10_000), sheet(topic, 1, 1, base_id=10_003)
    append(link, [first, second], NOON_MS)
    assert find(link, 10_002) == (topic, 0, 2, 4)
    assert find(link, 10_003) == (topic, 1, 0, 4)
    assert [find(link, id) for id in (9_999, 10_004, 20_000, 0)] == [None, None, None, None]


def test_news_are_partitions_with_later_ids(link: Link, topic: int) -> None:
    first, second, third = sheet(topic, 0), sheet(topic, 1), sheet(topic, 1)
    append(link, [first, second, third], NOON_MS)
    assert news(link, second.base_id) == [(topic, 1, 6)]
    assert news(link, first.base_id) == [(topic, 0, 3), (topic, 1, 6)]
    assert news(link, third.base_id + 1) == []


def test_ends_come_in_the_order_asked_for(link: Link, topic: int) -> None:
    other = new_topic(link, "other", 4)
    append(link, [sheet(topic, 1), sheet(other, 0, 1)], NOON_MS)
    places = [(other, 0), (topic, 0), (topic, 1), (other, 0)]
    assert ends(link, places) == [1, 0, 3, 1]
    assert ends(link, []) == []


def test_reads_use_an_index_though_tables_were_counted_when_they_were_empty(link: Link, topic: int) -> None:
    """As a connection sees it that planned when a day was new: no scan of a table, and nothing is sorted."""
    for day in range(3):
        append(link, [sheet(topic)], NOON_MS + day * DAY_MS)
    link.call("analyze mqueue.frames")
    plans = [
        _plan(
            link,
            "select base + count, at from mqueue.frames f where f.topic_id = 1 and f.part = 0 "
            "and f.day >= '2024-10-04' order by f.base desc limit 1",
        ),
        _plan(link, re.sub("%b", "5", module._FIND)),
        _plan(
            link,
            "select f.head from unnest('{1,1}'::bigint[], '{0,1}'::bigint[], '{0,0}'::bigint[]) k(topic, part, start) "
            "cross join lateral (select * from mqueue.frames f where f.topic_id = k.topic and f.part = k.part "
            "and f.base >= k.start order by f.base limit 1000) f",
        ),
    ]
    for plan in plans:
        assert "Index Scan" in plan
        assert "Seq Scan on frames" not in plan
        assert '"Sort"' not in plan


def _plan(link: Link, sql: str) -> str:
    found = link.call(f"explain (format json) {sql}")[0][0]
    plan = found if isinstance(found, list) else json.loads(found)
    return json.dumps([_nodes(plan[0]["Plan"])])


def _nodes(plan: dict[str, object]) -> list[object]:
    inner = plan.get("Plans", [])
    assert isinstance(inner, list)
    relation = plan.get("Relation Name", "")
    return [plan["Node Type"], f"{plan['Node Type']} on {relation}", *(_nodes(one) for one in inner)]
