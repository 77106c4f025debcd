"""Topics have one name each; whoever makes one that is there gets that one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mqueue.log.postgres.appends import append
from mqueue.log.postgres.catalog import (
    TopicRow,
    count,
    drop_topic,
    find_topic,
    make_topic,
    names,
    namespaces,
    set_topic,
    topics_of,
)
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.problems import Fenced, Moved, NoTopic
from tests.postgres.shards import NOON_MS, in_thread, new_topic, open_transaction, owner_of, sheet, together, waits


def test_a_topic_is_made_once(link: Link) -> None:
    row = TopicRow(1, "default", "orders", 4, b"first", b"first", 1000, False)
    assert make_topic(link, "default", "orders", 4, b"first", 1000) == (row, True)
    assert make_topic(link, "default", "orders", 4, b"second", 2000) == (row, False)
    assert find_topic(link, "default", "orders") == row
    assert find_topic(link, "other", "orders") is None


def test_many_that_make_it_at_once_get_the_same(links: Callable[[], Link]) -> None:
    made = together(
        [lambda own=own: make_topic(own, "default", "new", 4, b"", None) for own in [links() for _ in "1234"]]
    )
    assert len({found[0].id for found in made if found}) == 1
    assert sorted(found[1] for found in made if found) == [False, False, False, True]


def test_a_namespace_has_so_many_and_no_more(link: Link) -> None:
    assert make_topic(link, "small", "hidden", 4, b"", 0, hidden=True, limit=0) is not None
    assert make_topic(link, "small", "a", 4, b"", 0, limit=1) is not None
    assert make_topic(link, "small", "b", 4, b"", 0, limit=1) is None
    assert make_topic(link, "small", "a", 4, b"", 0, limit=1) is not None, "it is there"
    assert make_topic(link, "other", "b", 4, b"", 0, limit=1) is not None
    assert find_topic(link, "small", "b") is None


def test_a_topic_is_made_where_its_virtual_shard_lives(link: Link) -> None:
    link.call("update mqueue.vshards set state = 'moved' where vshard = 4")
    with pytest.raises(Moved):
        make_topic(link, "default", "orders", 4, b"", 0)


def test_names_are_listed_by_page_without_the_hidden(link: Link) -> None:
    for name in ("b", "a", "Z", "ä"):
        new_topic(link, name, 4)
    new_topic(link, "secret", 9, hidden=True)
    make_topic(link, "else", "x", 5, b"", 0)
    make_topic(link, "unseen", "x", 5, b"", 0, hidden=True)
    assert names(link, "default", "", 10) == ["Z", "a", "b", "ä"]
    assert names(link, "default", "a", 1) == ["b"]
    assert namespaces(link) == {"default": 4, "else": 1}
    assert [count(link, namespace) for namespace in ("default", "else", "unseen")] == [4, 1, 0]
    assert [row.name for row in topics_of(link, [4, 9])] == ["b", "a", "Z", "ä", "secret"]
    assert len(topics_of(link, None)) == 7
    assert topics_of(link, []) == []


def test_only_the_owner_changes_and_drops(link: Link, topic: int) -> None:
    owner, epochs = owner_of(link, 4)
    set_topic(link, owner, epochs[4], topic, b"changed")
    row = find_topic(link, "default", "orders")
    assert row is not None
    assert (row.settings, row.first_settings) == (b"changed", b"settings")
    stranger, _ = owner_of(link, 5)
    for who, epoch in ((stranger, 1), (owner, 2)):
        with pytest.raises(Fenced):
            set_topic(link, who, epoch, topic, b"")
        with pytest.raises(Fenced):
            drop_topic(link, who, epoch, topic, 5)
    assert find_topic(link, "default", "orders") == row
    drop_topic(link, owner, 1, topic, 5)
    for verb in (set_topic, drop_topic):
        with pytest.raises(NoTopic):
            verb(link, owner, 1, topic, b"" if verb is set_topic else 5)  # type: ignore[operator]


def test_a_name_that_is_made_again_is_another_topic(link: Link, topic: int) -> None:
    owner, epochs = owner_of(link, 4)
    append(link, [sheet(topic)], NOON_MS)
    drop_topic(link, owner, epochs[4], topic, 5)
    again = new_topic(link, "orders", 4)
    assert again != topic
    placed = append(link, [sheet(again)], NOON_MS)
    assert placed is not None
    assert placed[0].base == 0


def test_a_topic_is_dropped_after_the_appends_that_run(
    link: Link, links: Callable[[], Link], shard: str, topic: int
) -> None:
    owner, epochs = owner_of(link, 4)
    append(link, [sheet(topic)], NOON_MS)
    dropper = links()
    with open_transaction(shard) as slow:
        slow.execute("select mqueue.hold('{4}')")
        dropped = in_thread(lambda: drop_topic(dropper, owner, epochs[4], topic, 5))
        waits(link, dropper)
    dropped.result(120)
    with pytest.raises(NoTopic):
        append(link, [sheet(topic)], NOON_MS)
