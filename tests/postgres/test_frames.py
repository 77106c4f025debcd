"""Frames are read from an offset on, by their bases, by an id; and reading uses an index, however much there is."""

from __future__ import annotations

import pytest

from mqueue.log.postgres import frames
from mqueue.log.postgres.appends import append
from mqueue.log.postgres.frames import bodies, ends, find, heads, kept_heads, news, tails
from mqueue.log.postgres.journal import Entry, commit, entries, rows_about
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.problems import Fenced
from mqueue.log.postgres.retention import Kept, trim
from tests.postgres.shards import DAY_MS, NOON_MS, new_topic, owner_of, sheet


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


def test_ends_are_told_to_the_owner_alone(link: Link, topic: int) -> None:
    append(link, [sheet(topic)], NOON_MS)
    _, epochs = owner_of(link, 4)
    assert ends(link, [(topic, 0)], (4, epochs[4])) == [3]
    for owned in ((4, epochs[4] + 1), (5000, epochs[4])):
        with pytest.raises(Fenced):
            ends(link, [(topic, 0)], owned)


def test_heads_are_read_page_by_page(link: Link, topic: int, monkeypatch) -> None:
    """Partition by partition, frame by frame, each once, also where a page is full to the last row."""
    for day in range(3):
        append(link, [sheet(topic, part, 1) for part in (0, 0, 1, 3)], NOON_MS + day * DAY_MS)
    owner, epochs = owner_of(link, 4)
    whole = [(0, base) for base in range(6)] + [(part, base) for part in (1, 3) for base in range(3)]
    trim(link, owner, epochs[4], topic, [2], [Kept(0, 1, 1, 1, NOON_MS, 1, b"", b"")])
    for size in (1, 2, 3, 5, 12, 13):
        monkeypatch.setattr(frames, "HEADS_AT_ONCE", size)
        assert [row[:2] for row in heads(link, topic, below=True)] == whole
        assert [row[:2] for row in heads(link, topic)] == whole[2:]
        assert [row[:2] for row in kept_heads(link, topic)] == [(0, 1)]


def test_no_table_of_a_day_is_read_from_end_to_end(link: Link, topic: int) -> None:
    """Not even by a connection that made its plans when the days were new and empty."""
    owner, epochs = owner_of(link, 4)
    for day in range(3):
        append(link, [sheet(topic)], NOON_MS + day * DAY_MS)
    link.call("analyze mqueue.frames")
    before = _scans(link)
    for seq in range(1, 11):
        one = sheet(topic)
        commit(
            link, owner, [Entry(4, epochs[4], seq, NOON_MS + seq, b"", ((topic, 0, 0),))], [one], NOON_MS + 2 * DAY_MS
        )
        tails(link, [(topic, 0, 0), (topic, 1, 0)], 10, bodies=True)
        bodies(link, topic, 0, [0, 3])
        ends(link, [(topic, 0)])
        news(link, one.base_id)
        heads(link, topic)
        entries(link, 4, seq - 1, 10)
        rows_about(link, 4, topic, 0, [0])
        assert find(link, one.base_id) is not None
    assert _scans(link) == before


def _scans(link: Link) -> dict[str, int]:
    """How often each table of a day was read from end to end."""
    link.call("select pg_stat_force_next_flush()")
    return dict(
        link.call(
            "select relname, seq_scan from pg_stat_user_tables where relname ~ '^(frames|journal|journal_index)_2'"
        )
    )
