"""Only the owner writes a journal, and only where it ends; entries and frames of one commit are there or are not."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest

from mqueue.log.postgres.appends import Appended, append
from mqueue.log.postgres.catalog import rows_of
from mqueue.log.postgres.journal import (
    Change,
    Entry,
    commit,
    entries,
    last_point,
    last_seq,
    lates,
    point,
    rows_about,
)
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.owning import disown, own
from mqueue.log.postgres.problems import Fenced, Moved, NoTopic, Taken
from tests.postgres.shards import (
    DAY_MS,
    NOON_MS,
    end_session,
    frames_in,
    in_thread,
    open_transaction,
    owner_of,
    sheet,
    waits,
)

RECORD = "select mqueue.record(%s, array[4, 1, 2, %s], '{x}', '{}', '{}')"
"""Row 2 of virtual shard 4."""


def entry(vshard: int, epoch: int, seq: int, at: int = NOON_MS, **other: object) -> Entry:
    return Entry(vshard, epoch, seq, at, f"{vshard}.{seq}".encode(), **other)  # type: ignore[arg-type]


def rows_in(link: Link) -> int:
    return int(link.call("select count(*) from mqueue.journal")[0][0])


def test_a_commit_has_entries_of_several_virtual_shards_and_frames(link: Link, topic: int) -> None:
    owner, _ = owner_of(link, 4, 6, 900)
    placed = commit(
        link, owner, [entry(4, 1, 1), entry(900, 1, 1), entry(4, 1, 2)], [sheet(topic), sheet(topic, 1)], NOON_MS
    )
    assert placed == [Appended(0, NOON_MS), Appended(0, NOON_MS)]
    assert entries(link, 4, 0, 10) == [(1, NOON_MS, b"4.1"), (2, NOON_MS, b"4.2")]
    assert entries(link, 4, 1, 10) == [(2, NOON_MS, b"4.2")]
    assert entries(link, 4, 0, 1) == [(1, NOON_MS, b"4.1")]
    assert [last_seq(link, vshard) for vshard in (4, 6, 900)] == [2, 0, 1]
    assert commit(link, owner, [entry(4, 1, 3)], [], None) == []
    assert last_seq(link, 4) == 3
    assert commit(link, owner, [], [], None) == []
    assert commit(link, owner, [], [sheet(topic)], NOON_MS) == [Appended(3, NOON_MS)]


@pytest.mark.parametrize(
    "wrong",
    [
        [entry(4, 2, 2)],
        [entry(4, 1, 1)],
        [entry(4, 1, 3)],
        [entry(4, 1, 2), entry(4, 1, 2)],
        [entry(4, 1, 2), entry(4, 1, 4)],
        [entry(4, 1, 2), entry(5, 1, 1)],
        [entry(4, 1, 2), entry(2000, 1, 1)],
        [entry(4, 1, 1, NOON_MS + 3 * DAY_MS)],
    ],
    ids=["epoch", "again", "gap", "twice", "gap inside", "not its own", "no such", "again on another day"],
)
def test_who_does_not_own_or_does_not_go_on_is_fenced(link: Link, topic: int, wrong: list[Entry]) -> None:
    owner, _ = owner_of(link, 4, 6)
    commit(link, owner, [entry(4, 1, 1)], [], None)
    with pytest.raises(Fenced):
        commit(link, owner, [entry(6, 1, 1), *wrong], [sheet(topic)], NOON_MS)
    with pytest.raises(Fenced):
        commit(link, owner, [entry(6, 1, 1), *wrong], [], NOON_MS)
    with pytest.raises(Fenced):
        commit(link, uuid4(), [entry(4, 1, 2)], [], NOON_MS)
    assert (rows_in(link), frames_in(link)) == (1, 0)


def test_a_sheet_that_is_refused_takes_the_entries_with_it(link: Link, topic: int) -> None:
    owner, _ = owner_of(link, 4)
    keys = ((0, b"k" * 16, b"d" * 16, 4, 0),)
    append(link, [sheet(topic, keys=keys)], NOON_MS)
    for refused, why in (
        (sheet(topic, keys=keys), Taken),
        (sheet(topic + 9), NoTopic),
        (sheet(topic, map_epoch=3), Moved),
    ):
        with pytest.raises(why):
            commit(link, owner, [entry(4, 1, 1)], [sheet(topic), refused], NOON_MS)
    assert (rows_in(link), frames_in(link)) == (0, 1)


def test_own_waits_for_a_commit_that_runs_and_fences_the_next(
    link: Link, links: Callable[[], Link], shard: str
) -> None:
    owner, _ = owner_of(link, 4)
    commit(link, owner, [entry(4, 1, 1)], [], None)
    looker, taker = links(), links()
    other, _ = owner_of(taker)
    with open_transaction(shard) as slow:
        slow.execute(RECORD, (owner, NOON_MS))
        end_session(link, owner)
        taken = in_thread(lambda: own(taker, other, [4]))
        waits(looker, taker)
        assert not taken.done()
    assert taken.result(120) == {4: 2}
    assert last_seq(link, 4) == 2, "what was running is there"
    with pytest.raises(Fenced):
        commit(link, owner, [entry(4, 1, 3)], [], None)
    commit(taker, other, [entry(4, 2, 3)], [], None)


def test_the_same_commit_twice_at_once_is_there_once(link: Link, links: Callable[[], Link], shard: str) -> None:
    owner, _ = owner_of(link, 4)
    commit(link, owner, [entry(4, 1, 1)], [], None)
    second = links()
    with open_transaction(shard) as slow:
        slow.execute(RECORD, (owner, NOON_MS))
        again = in_thread(lambda: commit(second, owner, [entry(4, 1, 2, NOON_MS + DAY_MS)], [], None))
        waits(link, second)
    with pytest.raises(Fenced):
        again.result(120)
    assert last_seq(link, 4) == 2


def test_a_journal_goes_on_though_the_clock_falls(link: Link) -> None:
    owner, _ = owner_of(link, 4)
    for seq, at in enumerate((NOON_MS, NOON_MS + 2 * DAY_MS, NOON_MS - DAY_MS, NOON_MS, NOON_MS + 9 * DAY_MS), 1):
        commit(link, owner, [entry(4, 1, seq, at)], [], None)
    assert [row[0] for row in entries(link, 4, 0, 10)] == [1, 2, 3, 4, 5]
    assert last_seq(link, 4) == 5


def test_the_newest_two_checkpoints_are_kept(link: Link) -> None:
    owner, _ = owner_of(link, 4, 5)
    assert last_point(link, 4) is None
    commit(link, owner, [entry(4, 1, seq) for seq in range(1, 6)], [], None)
    for seq in (1, 3, 4):
        point(link, owner, 4, 1, seq, NOON_MS, f"after {seq}".encode())
    point(link, owner, 4, 1, 4, NOON_MS, b"again")
    assert last_point(link, 4) == (4, b"again")
    assert last_point(link, 4, before=4) == (3, b"after 3")
    assert last_point(link, 4, before=3) is None
    assert last_point(link, 5) is None


def test_a_checkpoint_is_fenced_too(link: Link) -> None:
    owner, _ = owner_of(link, 4)
    commit(link, owner, [entry(4, 1, 1)], [], None)
    for who, epoch, seq in ((uuid4(), 1, 1), (owner, 2, 1), (owner, 1, 2)):
        with pytest.raises(Fenced):
            point(link, who, 4, epoch, seq, NOON_MS, b"")
    disown(link, owner, [4])
    with pytest.raises(Fenced):
        point(link, owner, 4, 1, 1, NOON_MS, b"")
    assert last_point(link, 4) is None


def test_rows_are_found_by_the_offsets_they_speak_of(link: Link) -> None:
    owner, _ = owner_of(link, 4, 5)
    commit(
        link,
        owner,
        [
            entry(4, 1, 1, blocks=((7, 0, 0), (7, 0, 1))),
            entry(5, 1, 1, blocks=((8, 0, 0),)),
            entry(4, 1, 2, blocks=((7, 1, 0),)),
        ],
        [],
        None,
    )
    commit(link, owner, [entry(4, 1, 3, NOON_MS + DAY_MS, blocks=((7, 0, 1),))], [], None)
    assert [row[0] for row in rows_about(link, 4, 7, 0, [0, 1])] == [1, 3]
    assert rows_about(link, 4, 7, 0, [0]) == [(1, NOON_MS, b"4.1")]
    assert [row[0] for row in rows_about(link, 4, 7, 1, [0])] == [2]
    assert rows_about(link, 5, 8, 0, [0]) == [(1, NOON_MS, b"5.1")]
    assert rows_about(link, 4, 7, 0, [2]) == rows_about(link, 4, 7, 0, []) == []


def test_what_stands_later_in_the_order_is_written_down_with_the_commit(link: Link, topic: int) -> None:
    owner, _ = owner_of(link, 4)
    commit(link, owner, [entry(4, 1, 1)], [], None, late=[(4, 1, topic, 0, 3, 2, 50), (4, 1, topic, 1, 0, 1, 60)])
    with pytest.raises(Fenced):
        commit(link, owner, [entry(4, 1, 1)], [], None, late=[(4, 1, topic, 0, 5, 2, 50)])
    assert lates(link, [topic]) == [(topic, 0, 3, 2, 50), (topic, 1, 0, 1, 60)]
    assert lates(link, []) == []


def test_who_owns_nothing_says_nothing_of_the_order(link: Link, topic: int) -> None:
    """Also if that is all he says."""
    owner, _ = owner_of(link, 4)
    for who, vshard, epoch in ((uuid4(), 4, 1), (owner, 4, 2), (owner, 5, 1)):
        with pytest.raises(Fenced):
            commit(link, who, [], [], None, late=[(vshard, epoch, topic, 0, 3, 2, 50)])
    assert lates(link, [topic]) == []
    commit(link, owner, [], [], None, late=[(4, 1, topic, 0, 3, 2, 50)])
    assert lates(link, [topic]) == [(topic, 0, 3, 2, 50)]


def test_topics_change_with_the_journal_or_not_at_all(link: Link, topic: int) -> None:
    owner, _ = owner_of(link, 4)
    with pytest.raises(Fenced):
        commit(link, owner, [entry(4, 1, 2)], [], None, changes=[Change(topic, 1, b"changed")])
    [before] = rows_of(link, [topic])
    assert before.settings != b"changed"
    commit(link, owner, [entry(4, 1, 1)], [], None, changes=[Change(topic, 1, b"changed")])
    assert [row.settings for row in rows_of(link, [topic])] == [b"changed"]
    with pytest.raises(Fenced):
        commit(link, owner, [entry(4, 1, 2)], [], None, changes=[Change(topic, 2, None)])
    assert last_seq(link, 4) == 1
    commit(link, owner, [entry(4, 1, 2)], [], None, changes=[Change(topic, 1, None)])
    assert rows_of(link, [topic]) == []
