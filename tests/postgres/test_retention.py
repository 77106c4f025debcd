"""Floors rise, what is needed below them is kept, and a day goes when nothing in it is needed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

import pytest

from mqueue.log.postgres.appends import Appended, append
from mqueue.log.postgres.catalog import drop_topic, find_topic
from mqueue.log.postgres.days import days, journal_days
from mqueue.log.postgres.frames import bodies, ends_kept, find, floors, heads, kept_heads
from mqueue.log.postgres.journal import Entry, commit, entries, last_seq, lates, point
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.problems import Fenced, NoTopic
from mqueue.log.postgres.retention import Kept, bury, retire, retire_journal, trim
from tests.postgres.shards import DAY_MS, NOON_MS, frames_in, new_topic, open_transaction, owner_of, sheet


def kept(base: int, count: int, base_id: int, partition: int = 0) -> Kept:
    return Kept(partition, base, count, base_id, NOON_MS, 10, b"kept head", b"kept body")


def test_below_a_floor_only_what_is_kept_is_there(link: Link, topic: int) -> None:
    first, second = sheet(topic, count=4), sheet(topic)
    append(link, [first, second], NOON_MS)
    owner, epochs = owner_of(link, 4)
    trim(link, owner, epochs[4], topic, [4], [kept(1, 2, first.base_id + 1)])
    assert floors(link, topic) == {0: 4}
    assert [row[:4] for row in heads(link, topic)] == [(0, 4, 3, second.base_id)]
    assert kept_heads(link, topic) == [(0, 1, 2, first.base_id + 1, NOON_MS, 10, b"kept head")]
    assert bodies(link, topic, 0, [4, 1, 99]) == [(1, b"kept head", b"kept body"), (4, b"head", b"body")]
    assert [find(link, first.base_id + row) for row in range(4)] == [None, (topic, 0, 1, 4), (topic, 0, 2, 4), None]
    assert find(link, second.base_id + 2) == (topic, 0, 6, 4)
    trim(link, owner, epochs[4], topic, [4], gone=[(0, 1)])
    assert kept_heads(link, topic) == []


def test_a_piece_takes_the_place_of_a_larger_one(link: Link, topic: int) -> None:
    one = sheet(topic)
    append(link, [one], NOON_MS)
    owner, epochs = owner_of(link, 4)
    trim(link, owner, epochs[4], topic, [3], [kept(0, 3, one.base_id)])
    trim(link, owner, epochs[4], topic, [3], [kept(0, 1, one.base_id), kept(2, 1, one.base_id + 2)])
    assert [row[:3] for row in kept_heads(link, topic)] == [(0, 0, 1), (0, 2, 1)]
    assert find(link, one.base_id + 1) is None


def test_floors_do_not_fall(link: Link, topic: int) -> None:
    owner, epochs = owner_of(link, 4)
    append(link, [sheet(topic), sheet(topic), sheet(topic, 1)], NOON_MS)
    trim(link, owner, epochs[4], topic, [6, 0])
    trim(link, owner, epochs[4], topic, [3, 3])
    assert floors(link, topic) == {0: 6, 1: 3}


def test_only_the_owner_trims(link: Link, topic: int) -> None:
    owner, epochs = owner_of(link, 4)
    with pytest.raises(Fenced):
        trim(link, owner, epochs[4] + 1, topic, [1], [kept(0, 1, 5)])
    with pytest.raises(NoTopic):
        trim(link, owner, epochs[4], topic + 1, [1], [kept(0, 1, 5)])
    assert (floors(link, topic), kept_heads(link, topic)) == ({}, [])


def test_a_day_goes_when_nothing_in_it_is_above_its_floor(link: Link, topic: int) -> None:
    append(link, [sheet(topic), sheet(topic, 1)], NOON_MS)
    append(link, [sheet(topic)], NOON_MS + DAY_MS)
    first, second = days(link)
    owner, epochs = owner_of(link, 4)
    assert not retire(link, first)
    trim(link, owner, epochs[4], topic, [3, 0])
    assert not retire(link, first), "partition 1 needs it"
    trim(link, owner, epochs[4], topic, [3, 3])
    assert retire(link, first)
    assert not retire(link, second)
    assert not retire(link, first), "it is not there"
    assert not retire(link, date(2050, 1, 1))
    assert (days(link), frames_in(link)) == ([second], 1)
    assert ends_kept(link, topic) == [(0, 3), (1, 3)]


def test_every_partition_of_every_topic_has_its_say(link: Link, topic: int) -> None:
    others = [new_topic(link, f"other{number}", 4) for number in range(3)]
    append(link, [sheet(one, partition) for one in (topic, *others) for partition in (0, 3)], NOON_MS)
    owner, epochs = owner_of(link, 4)
    for one in (others[2], topic, others[0], others[1]):
        trim(link, owner, epochs[4], one, [3, 0, 0, 0])
        assert not retire(link, days(link)[0])
        trim(link, owner, epochs[4], one, [3, 0, 0, 3])
    assert retire(link, days(link)[0])
    assert {tuple(ends_kept(link, one)) for one in (topic, *others)} == {((0, 3), (3, 3))}


def test_a_day_goes_when_what_is_needed_was_copied(link: Link, topic: int) -> None:
    one = sheet(topic)
    append(link, [one], NOON_MS)
    owner, epochs = owner_of(link, 4)
    trim(link, owner, epochs[4], topic, [0], [kept(0, 2, one.base_id)])
    assert not retire(link, days(link)[0]), "not all of it"
    trim(link, owner, epochs[4], topic, [0], [kept(0, 3, one.base_id)])
    assert (len(heads(link, topic)), len(kept_heads(link, topic))) == (0, 1), "each frame once"
    assert retire(link, days(link)[0])
    assert find(link, one.base_id + 2) == (topic, 0, 2, 4)
    assert append(link, [sheet(topic)], NOON_MS) == [Appended(3, NOON_MS)]
    assert append(link, [one], NOON_MS, once=True) == [Appended(-1, NOON_MS)], "what is kept is there"


def test_somebody_who_reads_for_long_is_not_waited_for(link: Link, shard: str, topic: int) -> None:
    append(link, [sheet(topic)], NOON_MS)
    owner, epochs = owner_of(link, 4)
    trim(link, owner, epochs[4], topic, [3])
    with open_transaction(shard) as reader:
        reader.execute("select * from mqueue.frames").fetchall()
        assert not retire(link, days(link)[0])
        assert frames_in(link) == 1
    assert retire(link, days(link)[0])


def test_what_is_left_of_a_deleted_topic_goes(link: Link, topic: int, links: Callable[[], Link]) -> None:
    one = sheet(topic, keys=((0, b"k" * 16, b"d" * 16, 4, 0),))
    append(link, [one], NOON_MS)
    owner, epochs = owner_of(link, 4)
    trim(link, owner, epochs[4], topic, [3], [kept(0, 1, one.base_id)])
    drop_topic(link, owner, epochs[4], topic, NOON_MS)
    assert find(link, one.base_id) is None
    assert bury(link, 1), "there may be more"
    assert not bury(link)
    tables = ("idempotency", "frames_kept", "late", "floors")
    assert [link.call(f"select count(*) from mqueue.{table}")[0][0] for table in tables] == [0, 0, 0, 0]
    assert link.call("select count(*) from mqueue.topics") == [(1,)], "its frames are still there"
    assert retire(link, days(link)[0])
    bury(link)
    assert link.call("select count(*) from mqueue.topics") == [(0,)]
    assert find_topic(link, "default", "orders") is None


def test_what_was_late_is_forgotten_below_the_floor(link: Link, topic: int) -> None:
    owner, epochs = owner_of(link, 4)
    commit(
        link,
        owner,
        [Entry(4, 1, 1, NOON_MS, b"")],
        [],
        None,
        late=[(4, 1, topic, 0, 0, 3, 9), (4, 1, topic, 0, 3, 3, 9)],
    )
    trim(link, owner, epochs[4], topic, [3])
    assert lates(link, [topic]) == [(topic, 0, 3, 3, 9)]


def test_the_journal_of_a_day_goes_when_checkpoints_are_newer(link: Link) -> None:
    owner, _ = owner_of(link, 4, 5)
    for seq in range(1, 5):
        at = NOON_MS + seq * DAY_MS
        commit(link, owner, [Entry(4, 1, seq, at, b""), Entry(5, 1, seq, at, b"", ((1, 0, 0),))], [], None)
    all_days = journal_days(link)
    assert len(all_days) == 4
    point(link, owner, 4, 1, 2, NOON_MS, b"")
    assert not retire_journal(link, all_days[0]), "virtual shard 5 has no checkpoint"
    point(link, owner, 5, 1, 1, NOON_MS, b"")
    assert [retire_journal(link, day) for day in all_days] == [True, False, False, False]
    point(link, owner, 5, 1, 4, NOON_MS, b"")
    assert not retire_journal(link, all_days[1]), "the checkpoint before the last one may be needed"
    point(link, owner, 4, 1, 4, NOON_MS, b"")
    point(link, owner, 4, 1, 3, NOON_MS, b"")
    link.call("delete from mqueue.checkpoints where seq < 4")
    assert [retire_journal(link, day) for day in all_days] == [False, True, True, True]
    assert (entries(link, 4, 0, 10), journal_days(link)) == ([], [])
    assert last_seq(link, 4) == 4, "the checkpoint tells"
    commit(link, owner, [Entry(4, 1, 5, NOON_MS, b"")], [], None)


def test_the_journal_of_a_day_is_kept_as_long_as_what_it_speaks_of(link: Link, topic: int) -> None:
    """Not longer, though messages are there: those of later days, of other topics, of deleted ones."""
    owner, _ = owner_of(link, 4)
    first, second, third = (NOON_MS + day * DAY_MS for day in range(3))
    other = new_topic(link, "other", 4)
    append(link, [sheet(topic), sheet(topic), sheet(other)], first)
    for seq, at in enumerate((first, second, third), 1):
        commit(link, owner, [Entry(4, 1, seq, at, b"", ((topic, 0, 0), (topic, -1, 0)))], [sheet(topic)], at)
    point(link, owner, 4, 1, 3, third, b"")
    one, two, three = journal_days(link)
    assert not any(retire_journal(link, day) for day in (one, two, three)), "all of it tells of messages of the first"
    trim(link, owner, 1, topic, [9], [kept(4, 1, 1)])
    assert not any(retire_journal(link, day) for day in (one, two, three)), "one of them is kept"
    trim(link, owner, 1, topic, [9], gone=[(0, 4)])
    assert [retire_journal(link, day) for day in (one, two, three)] == [True, False, False]
    trim(link, owner, 1, topic, [12])
    assert retire_journal(link, two), "though other topics have messages of that day, and older ones"
    assert not retire_journal(link, three)
    assert retire_journal(link, three, old=True)


def test_the_journal_of_a_topic_goes_with_it(link: Link, topic: int) -> None:
    owner, epochs = owner_of(link, 4)
    commit(link, owner, [Entry(4, 1, 1, NOON_MS, b"", ((topic, 0, 0),))], [sheet(topic)], NOON_MS)
    point(link, owner, 4, 1, 1, NOON_MS, b"")
    [day] = journal_days(link)
    assert not retire_journal(link, day)
    drop_topic(link, owner, epochs[4], topic, NOON_MS)
    assert retire_journal(link, day)


def test_a_journal_goes_on_though_newer_days_went_before_older_ones(link: Link) -> None:
    owner, _ = owner_of(link, 4)
    for seq in range(1, 4):
        commit(link, owner, [Entry(4, 1, seq, NOON_MS + seq * DAY_MS, b"")], [], None)
    point(link, owner, 4, 1, 3, NOON_MS, b"")
    assert [retire_journal(link, day) for day in journal_days(link)[1:]] == [True, True]
    assert last_seq(link, 4) == 3
    for at in (NOON_MS, NOON_MS + 9 * DAY_MS):
        for seq in (2, 3, 5):
            with pytest.raises(Fenced):
                commit(link, owner, [Entry(4, 1, seq, at, b"")], [], None)
    commit(link, owner, [Entry(4, 1, 4, NOON_MS, b"")], [], None)
    commit(link, owner, [Entry(4, 1, 5, NOON_MS, b"")], [], None)
    assert [row[0] for row in entries(link, 4, 3, 10)] == [4, 5]
