"""Frames get offsets without gaps and times that never fall, whoever appends; all of a call or nothing."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest

from mqueue.log.postgres.appends import Appended, append
from mqueue.log.postgres.catalog import drop_topic
from mqueue.log.postgres.days import days, make_days
from mqueue.log.postgres.frames import ends, heads, tails
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.problems import Flushed, Moved, NoTopic
from mqueue.log.postgres.retention import retire, trim
from tests.postgres.shards import DAY_MS, NOON_MS, frames_in, new_topic, open_transaction, owner_of, sheet, together


def test_offsets_follow_each_other(link: Link, topic: int) -> None:
    assert append(link, [sheet(topic)], NOON_MS) == [Appended(0, NOON_MS)]
    assert append(link, [sheet(topic, count=1)], NOON_MS + 1) == [Appended(3, NOON_MS + 1)]
    assert ends(link, [(topic, 0), (topic, 1)]) == [4, 0]


def test_nothing_is_appended_by_an_empty_call(link: Link) -> None:
    assert append(link, [], None) == []


def test_one_call_takes_frames_of_several_partitions_and_topics(link: Link, topic: int) -> None:
    other = new_topic(link, "other", 9)
    sheets = [
        sheet(topic, 1, 2),
        sheet(topic, 0, 5),
        sheet(topic, 1, 7),
        sheet(other, 0, 1, vshard=9),
        sheet(topic, 1, 1),
    ]
    placed = append(link, sheets, NOON_MS) or []
    assert [one.base for one in placed] == [0, 0, 2, 0, 9]
    found = tails(link, [(other, 0, 0), (topic, 1, 2)], 10, bodies=True)
    assert [row[:5] for row in found] == [
        (other, 0, 0, 1, sheets[3].base_id),
        (topic, 1, 2, 7, sheets[2].base_id),
        (topic, 1, 9, 1, sheets[4].base_id),
    ]
    assert {row[7:] for row in found} == {(b"head", b"body")}


def test_offsets_have_no_gaps_with_four_connections_at_once(link: Link, links: Callable[[], Link], topic: int) -> None:
    def job(own: Link) -> Callable[[], list[Appended]]:
        return lambda: [
            one
            for turn in range(25)
            for one in append(own, [sheet(topic, turn % 2, 3), sheet(topic, 0, 2), sheet(topic, 1, 1)], None) or []
        ]

    together([job(links()) for _ in range(4)])
    for partition in (0, 1):
        rows = tails(link, [(topic, partition, 0)], 1000, bodies=False)
        stop = at = 0
        for _, _, base, count, _, appended_at, *_ in rows:
            assert base == stop, "no gap, no overlap"
            assert appended_at >= at, "times never fall"
            stop, at = base + count, appended_at
        assert ends(link, [(topic, partition)]) == [stop]
    assert frames_in(link) == 300


def test_times_never_fall_though_the_clock_does(link: Link, topic: int) -> None:
    append(link, [sheet(topic)], NOON_MS)
    assert append(link, [sheet(topic)], NOON_MS - 5) == [Appended(3, NOON_MS)]
    assert append(link, [sheet(topic)], NOON_MS - 3 * DAY_MS) == [Appended(6, NOON_MS)]
    assert append(link, [sheet(topic, 1)], NOON_MS - 5) == [Appended(0, NOON_MS - 5)], "each partition for itself"


def test_without_a_time_it_is_that_of_the_server(link: Link, topic: int) -> None:
    before = link.call("select mqueue.now_ms()")[0][0]
    ((_, at),) = [(one.base, one.at) for one in append(link, [sheet(topic)], None) or []]
    assert before <= at <= link.call("select mqueue.now_ms()")[0][0]


def test_a_partition_that_was_silent_for_days_goes_on(link: Link, topic: int) -> None:
    append(link, [sheet(topic)], NOON_MS)
    append(link, [sheet(topic, 1)], NOON_MS + 5 * DAY_MS)
    assert append(link, [sheet(topic)], NOON_MS + 5 * DAY_MS) == [Appended(3, NOON_MS + 5 * DAY_MS)]


def test_a_deleted_topic_takes_nothing_and_the_others_of_the_call_neither(link: Link, topic: int) -> None:
    gone = new_topic(link, "gone", 4)
    owner, epochs = owner_of(link, 4)
    drop_topic(link, owner, epochs[4], gone, 5)
    with pytest.raises(NoTopic, match=str(gone)):
        append(link, [sheet(topic), sheet(gone)], NOON_MS)
    with pytest.raises(NoTopic):
        append(link, [sheet(topic, vshard=5)], NOON_MS)
    assert frames_in(link) == 0


def test_a_virtual_shard_that_moved_takes_nothing(link: Link, topic: int) -> None:
    with pytest.raises(Moved, match="4"):
        append(link, [sheet(topic), sheet(topic, map_epoch=2)], NOON_MS)
    link.call("update mqueue.vshards set state = 'moved' where vshard = 4")
    with pytest.raises(Moved, match="4"):
        append(link, [sheet(topic)], NOON_MS)
    with pytest.raises(Moved, match="5000"):
        append(link, [sheet(topic, vshard=5000)], NOON_MS)
    assert frames_in(link) == 0


def test_a_stretch_of_a_log_is_flushed_once(link: Link, topic: int) -> None:
    wal = uuid4()
    assert append(link, [sheet(topic)], NOON_MS, wal=(wal, 0, 100)) == [Appended(0, NOON_MS)]
    assert append(link, [sheet(topic)], NOON_MS, wal=(wal, 0, 100)) is None
    assert append(link, [sheet(topic)], NOON_MS, wal=(wal, 0, 50)) is None
    assert append(link, [], NOON_MS, wal=(wal, 100, 150)) == [], "what has no frames for this shard counts too"
    assert append(link, [], NOON_MS, wal=(wal, 100, 150)) is None
    for start in (200, 120, 100):
        with pytest.raises(Flushed, match="150"):
            append(link, [sheet(topic)], NOON_MS, wal=(wal, start, 250))
    assert append(link, [sheet(topic)], NOON_MS, wal=(uuid4(), 0, 10)) == [Appended(3, NOON_MS)], "another log"
    assert frames_in(link) == 2


def test_of_two_that_flush_the_same_stretch_at_once_one_does(link: Link, links: Callable[[], Link], topic: int) -> None:
    wal = uuid4()
    flushers = [links(), links()]
    for turn in range(10):
        stretch = (wal, turn * 10, turn * 10 + 10)
        one = sheet(topic)

        def job(own: Link, one=one, stretch=stretch) -> Callable[[], list[Appended] | None]:
            return lambda: append(own, [one], NOON_MS, wal=stretch)

        placed = together([job(own) for own in flushers])
        assert sorted(found is None for found in placed) == [False, True]
    assert frames_in(link) == 10


def test_a_frame_that_may_be_there_is_appended_once(link: Link, topic: int) -> None:
    first, second, third = sheet(topic), sheet(topic), sheet(topic)
    append(link, [first], NOON_MS)
    placed = append(link, [second, first, third], NOON_MS + DAY_MS, once=True) or []
    assert [one.base for one in placed] == [3, -1, 6]
    assert [row[1] for row in heads(link, topic)] == [0, 3, 6]


def test_of_two_that_append_the_same_frame_once_at_the_same_time_one_does(
    link: Link, links: Callable[[], Link], topic: int
) -> None:
    one, writers = sheet(topic), [links(), links()]
    placed = together([lambda own=own: append(own, [one], NOON_MS, once=True) for own in writers])
    assert sorted(found[0].base for found in placed if found) == [-1, 0]


def test_offsets_and_times_go_on_when_all_days_are_dropped(link: Link, topic: int) -> None:
    append(link, [sheet(topic), sheet(topic, 1)], NOON_MS)
    append(link, [sheet(topic)], NOON_MS + DAY_MS)
    owner, epochs = owner_of(link, 4)
    trim(link, owner, epochs[4], topic, [6, 3])
    assert all(retire(link, day) for day in reversed(days(link)))
    assert frames_in(link) == 0
    assert ends(link, [(topic, 0), (topic, 1)]) == [6, 3]
    assert append(link, [sheet(topic), sheet(topic, 1)], NOON_MS) == [
        Appended(6, NOON_MS + DAY_MS),
        Appended(3, NOON_MS),
    ]


def test_days_are_made_when_a_frame_needs_them(link: Link, topic: int) -> None:
    append(link, [sheet(topic)], 5)
    in_2050 = 2_524_608_000_000 + DAY_MS // 2
    append(link, [sheet(topic, 1)], in_2050)
    assert [str(day) for day in days(link)] == ["1970-01-01", "2050-01-01"]
    placed = append(link, [sheet(topic), sheet(topic, 1)], 6)
    assert placed == [Appended(3, 6), Appended(3, in_2050)]


def test_two_that_need_the_same_day_both_get_it(link: Link, links: Callable[[], Link], topic: int) -> None:
    writers = [links() for _ in range(4)]
    for number, own in enumerate(writers):
        own.call("select %b", (number,))  # connected
    together(
        [lambda own=own, part=part: append(own, [sheet(topic, part)], NOON_MS) for part, own in enumerate(writers)]
    )
    assert frames_in(link) == 4
    assert len(days(link)) == 1


def test_days_are_made_while_somebody_reads_and_others_append(
    link: Link, links: Callable[[], Link], shard: str, topic: int
) -> None:
    append(link, [sheet(topic)], NOON_MS)
    with open_transaction(shard) as reader:
        reader.execute("select * from mqueue.frames").fetchall()
        day = days(link)[0]
        make_days(links(), day.replace(year=day.year + 1), day.replace(year=day.year + 1))
        append(link, [sheet(topic)], NOON_MS + DAY_MS)
    assert len(days(link)) == 3
