"""A virtual shard has one owner at a time; one whose session has ended loses it to the next that asks."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest

from mqueue.log.postgres.journal import Entry, commit
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.owning import GREETING, beat, disown, leave_session, own, owners, owns, unowned
from mqueue.log.postgres.problems import Fenced
from mqueue.policy.routing import VIRTUAL_SHARDS
from tests.postgres.shards import LONG_MS, NOON_MS, end_session, new_topic, owner_of, together, wait_until


def test_at_first_nobody_owns_anything(link: Link) -> None:
    assert unowned(link) == list(range(VIRTUAL_SHARDS))
    assert owners(link)[3] == (3, 1, 0, "", None)


def test_who_owns_is_known_by_address_and_epoch(link: Link) -> None:
    owner, epochs = owner_of(link, 3, 7, 2000)
    assert epochs == {3: 1, 7: 1}
    assert len(unowned(link)) == VIRTUAL_SHARDS - 2
    assert [one for one in owners(link) if one[4]] == [
        (3, 1, 1, "node1:80", owner),
        (7, 1, 1, "node1:80", owner),
    ]
    assert owner_of(link, 3, 8, node=2)[1] == {8: 1}, "what another owns is not free"


def test_who_owns_again_gets_a_new_epoch(link: Link) -> None:
    owner, _ = owner_of(link, 3)
    assert own(link, owner, [3, 4]) == {3: 2, 4: 1}
    with pytest.raises(Fenced):
        commit(link, owner, [Entry(3, 1, 1, NOON_MS, b"")], [], None)


def test_who_has_no_session_owns_nothing(link: Link) -> None:
    assert own(link, uuid4(), [3]) == {}
    owner, _ = owner_of(link)
    end_session(link, owner)
    assert own(link, owner, [3]) == {}
    assert len(unowned(link)) == VIRTUAL_SHARDS


def test_a_session_that_ended_does_not_begin_again(link: Link) -> None:
    owner, _ = owner_of(link, 3)
    assert beat(link, owner, 1, "elsewhere:80", LONG_MS)
    assert owners(link)[3][3] == "elsewhere:80"
    end_session(link, owner)
    assert not beat(link, owner, 1, "node1:80", LONG_MS)
    assert 3 in unowned(link)
    assert owner_of(link, 3, node=2)[1] == {3: 2}
    with pytest.raises(Fenced):
        commit(link, owner, [Entry(3, 1, 1, NOON_MS, b"")], [], None)


def test_a_session_ends_by_itself(link: Link) -> None:
    owner = uuid4()
    assert beat(link, owner, 1, "a", 1)
    wait_until(lambda: not beat(link, owner, 1, "a", 1))


def test_what_is_given_back_is_free_at_once(link: Link) -> None:
    owner, _ = owner_of(link, 3, 4, 5)
    stranger, _ = owner_of(link, 6, node=2)
    disown(link, owner, [3, 6])
    assert own(link, stranger, [3, 4, 6]) == {3: 2, 6: 2}
    leave_session(link, owner)
    assert not beat(link, owner, 1, "a", LONG_MS), "a beat that is still under way does not revive it"
    assert own(link, stranger, [4, 5]) == {4: 2, 5: 2}


def test_of_two_that_own_at_once_one_does(links: Callable[[], Link]) -> None:
    first, second = links(), links()
    one, other = owner_of(first)[0], owner_of(second, node=2)[0]
    everything = list(range(0, VIRTUAL_SHARDS, 8))
    won = together(
        [lambda: own(first, one, everything), lambda: own(second, other, everything[::-1])],
    )
    assert sorted([*won[0], *won[1]]) == everything
    assert {**won[0], **won[1]} == dict.fromkeys(everything, 1)


def test_sessions_that_ended_long_ago_are_forgotten(link: Link) -> None:
    owner, _ = owner_of(link)
    link.call("update mqueue.sessions set until = clock_timestamp() - interval '25 hours' where owner = %b", (owner,))
    owner_of(link, 3)
    assert link.call("select count(*) from mqueue.sessions") == [(1,)]


def test_on_another_timeline_nobody_owns_anything(shard: str, links: Callable[[], Link]) -> None:
    """Whoever comes first says so, before anybody can do something there; it happens once."""
    link = links()
    link.call(GREETING)
    owner, epochs = owner_of(link, 3, 4)
    topic = new_topic(link, "before", 3)
    link.call("update mqueue.meta set value = '0' where key = 'timeline'")  # as a standby knows it that was promoted
    newcomers = [Link(shard, f"greets{number}", greeting=GREETING) for number in range(4)]
    together([newcomer.reach for newcomer in newcomers])
    assert not owns(link, owner, 3, epochs[3])
    assert not beat(link, owner, 1, "a", LONG_MS)
    assert owner_of(newcomers[0], 3, 4, 5)[1] == {3: epochs[3] + 2, 4: epochs[4] + 2, 5: 1}
    assert new_topic(link, "after", 3) > topic + 1024
    for newcomer in newcomers:
        newcomer.close()


def test_on_the_same_timeline_a_greeting_changes_nothing(shard: str, link: Link) -> None:
    owner, epochs = owner_of(link, 3)
    for _ in range(2):
        newcomer = Link(shard, "greets", greeting=GREETING)
        newcomer.reach()
        newcomer.close()
    assert owns(link, owner, 3, epochs[3])
    assert beat(link, owner, 1, "a", LONG_MS)
