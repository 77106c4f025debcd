"""Assigned groups: each partition is for one member; what moves waits until nothing of it is held; who is gone is."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress
from itertools import islice

import pytest

import mqueue
from mqueue import Draft
from mqueue.model.limits import Limits
from mqueue.policy.routing import partition_of
from tests.conformance.steps import Background, payloads, refused, take

PARTITIONS = 4


def key_of(partition: int, partitions: int = PARTITIONS) -> str:
    """A key whose messages go to a partition."""
    return next(key for key in map(str, range(1000)) if partition_of(key.encode(), partitions) == partition)


@pytest.fixture
def q(make):
    q = make(partitions=PARTITIONS)
    for number in range(PARTITIONS):
        q.publish_many("t", [Draft(b"%d-%d" % (number, n), key=key_of(number)) for n in range(3)])
    return q


def seats(q, *members) -> list[tuple[int, ...]]:
    return [q.heartbeat(member).partitions for member in members]


def test_the_first_member_has_everything(q) -> None:
    a = q.join("t", group="g")
    assert a.partitions == (0, 1, 2, 3)
    assert a.revoked == ()
    assert (a.heartbeat_seconds, a.session_seconds) == (3, 10)
    assert len(take(q, "t", group="g", member=a)) == 12


def test_members_share_partitions_evenly(q) -> None:
    members = [q.join("t", group="g", member=name) for name in "abc"]
    found = seats(q, *members)
    assert sorted(number for held in found for number in held) == [0, 1, 2, 3]
    assert sorted(map(len, found)) == [1, 1, 2]


def test_a_member_gets_its_own_partitions_only(q) -> None:
    a, b = q.join("t", group="g", member="a"), q.join("t", group="g", member="b")
    got = {name: q.receive("t", 100, group="g", member=held) for name, held in (("a", a), ("b", b))}
    own = dict(zip("ab", seats(q, a, b), strict=True))
    for name, messages in got.items():
        assert {message.partition for message in messages} == set(own[name])
        assert len(messages) == 6
    table = q.receive_arrow("t", group="g", member=a)
    assert table.table.num_rows == 0


def test_the_order_holds_over_the_partitions_of_a_member(q) -> None:
    q.publish("t", b"first", key=key_of(3), priority=0)
    a = q.join("t", group="g", member="a")
    q.join("t", group="g", member="b")
    [own] = seats(q, a)
    got = q.receive("t", 100, group="g", member=a)
    assert [m.priority for m in got] == sorted(m.priority for m in got)
    assert (got[0].payload == b"first") == (3 in own)


def test_what_is_not_held_moves_at_once(q) -> None:
    a = q.join("t", group="g", member="a")
    b = q.join("t", group="g", member="b")
    assert seats(q, a, b) == [(0, 1), (2, 3)]
    assert [one.moved for one in q.members("t", group="g").history] == [4, 2]


def test_what_is_held_moves_when_it_is_settled(q, clock) -> None:
    a = q.join("t", group="g", member="a")
    held = q.receive("t", 100, group="g", member=a)
    b = q.join("t", group="g", member="b")
    assert b.partitions == ()
    a = q.heartbeat(a)
    assert (a.partitions, a.revoked) == ((0, 1), (2, 3))
    moving = {lag.partition: lag.moving_to for lag in q.members("t", group="g").partitions}
    assert moving == {0: "", 1: "", 2: "b", 3: "b"}
    clock.advance("400ms")
    q.ack([m for m in held if m.partition == 2])
    assert seats(q, b) == [(2,)]
    for message in (m for m in held if m.partition == 3):
        message.ack()  # one by one, also by the short way
    assert seats(q, b) == [(2, 3)]
    last = q.members("t", group="g").history[-1]
    assert (last.moved, last.paused_seconds, last.seconds) == (2, 0.4, 0.4)


def test_what_is_to_move_gets_no_deliveries_and_all_else_does(q) -> None:
    a = q.join("t", group="g", member="a")
    held = q.receive("t", 100, group="g", member=a)
    q.join("t", group="g", member="b")
    for number in range(PARTITIONS):
        q.publish("t", b"new %d" % number, key=key_of(number))
    got = q.receive("t", 100, group="g", member=a)
    assert sorted(payloads(got)) == [b"new 0", b"new 1"]
    assert len(held) == 12


def test_a_member_may_give_back_what_was_revoked(q) -> None:
    a = q.join("t", group="g", member="a")
    held = q.receive("t", 100, group="g", member=a)
    b = q.join("t", group="g", member="b")
    a = q.heartbeat(a, released=[0, 2, 3])  # 0 is not revoked: nothing happens to it
    assert seats(q, b) == [(2, 3)]
    assert a.revoked == ()
    assert [m.attempt for m in q.receive("t", 100, group="g", member=b)] == [1] * 6  # no attempt was counted
    q.ack([m for m in held if m.partition == 0])
    with refused(mqueue.LeaseLost):
        q.ack([m for m in held if m.partition == 2])


def test_what_is_held_too_long_is_waited_for_no_longer(q, clock) -> None:
    a = q.join("t", group="g", member="a")
    held = q.receive("t", 100, group="g", member=a, visibility="10m")
    b = q.join("t", group="g", member="b")
    for _ in range(10):
        clock.advance("3s")
        seats(q, a, b)
    assert seats(q, b) == [(2, 3)]
    assert {m.attempt for m in q.receive("t", 100, group="g", member=b)} == {2}
    assert q.ack([m for m in held if m.partition < 2]).settled == 6


def test_no_message_is_in_two_live_leases(q, clock) -> None:
    a = q.join("t", group="g", member="a")
    first = q.receive("t", 100, group="g", member=a, visibility="5s")
    b = q.join("t", group="g", member="b")
    assert q.receive("t", 100, group="g", member=b) == []
    clock.advance("5s")  # the leases are over
    again = q.receive("t", 100, group="g", member=b)
    assert {m.partition for m in again} == {2, 3}
    with refused(mqueue.LeaseLost):
        q.ack([m for m in first if m.partition == 2])


def test_a_waiting_member_is_woken_by_what_it_gets(q) -> None:
    a = q.join("t", group="g", member="a")
    held = q.receive("t", 100, group="g", member=a)
    b = q.join("t", group="g", member="b")
    waiting = Background(lambda: q.receive("t", 100, group="g", member=b, wait="60s"))
    waiting.assert_waiting()
    q.release([m for m in held if m.partition == 3])
    assert {m.partition for m in waiting.result()} == {3}


def test_a_heartbeat_waits_for_news(q) -> None:
    a = q.join("t", group="g", member="a")
    waiting = Background(lambda: q.heartbeat(a, wait="60s"))
    waiting.assert_waiting()
    q.publish("t", b"no news")
    waiting.assert_waiting()
    q.join("t", group="g", member="b")
    assert waiting.result().partitions == (0, 1)


def test_a_heartbeat_that_waited_in_vain(q, clock) -> None:
    a = q.join("t", group="g", member="a")
    waiting = Background(lambda: q.heartbeat(a, wait="3s"))
    clock.asleep.wait(30)
    clock.advance("3s")
    assert waiting.result() == a


def test_who_leaves_gives_back_what_it_holds(q) -> None:
    a, b = q.join("t", group="g", member="a"), q.join("t", group="g", member="b")
    a, b = q.heartbeat(a), q.heartbeat(b)
    held = q.receive("t", 100, group="g", member=b)
    q.leave(b)
    assert seats(q, a) == [(0, 1, 2, 3)]
    assert {m.attempt for m in q.receive("t", 100, group="g", member=a)} == {1}
    with refused(mqueue.LeaseLost):
        q.ack(held)
    with refused(mqueue.Conflict, "stale_member"):
        q.heartbeat(b)


def test_who_is_not_heard_of_is_dead(q, clock) -> None:
    a, b = q.join("t", group="g", member="a"), q.join("t", group="g", member="b")
    held = q.receive("t", 100, group="g", member=b)
    clock.advance("9s")
    a = q.heartbeat(a)
    clock.advance("999ms")
    assert q.heartbeat(b).partitions == (2, 3)
    clock.advance("9s")
    assert seats(q, a) == [(0, 1)]
    clock.advance("1s")
    assert seats(q, a) == [(0, 1, 2, 3)]
    got = q.receive("t", 100, group="g", member=a)
    assert {(m.partition >= 2, m.attempt) for m in got} == {(False, 1), (True, 2)}  # a death uses up an attempt
    with refused(mqueue.LeaseLost):
        q.ack(held)
    with refused(mqueue.Conflict, "stale_member"):
        q.receive("t", group="g", member=b)
    assert "died" in q.members("t", group="g").history[-1].reason


def test_a_receive_is_heard_too(q, clock) -> None:
    a = q.join("t", group="g", member="a")
    for _ in range(4):
        clock.advance("9s")
        q.receive("t", group="g", member=a)
    assert seats(q, a) == [(0, 1, 2, 3)]


def test_an_id_keeps_its_partitions_over_a_restart(q, clock) -> None:
    a, b = q.join("t", group="g", member="a"), q.join("t", group="g", member="b")
    q.receive("t", 100, group="g", member=b)
    clock.advance("5s")
    q.heartbeat(a)
    again = q.join("t", group="g", member="b")
    assert again.partitions == (2, 3)
    assert again.generation > b.generation
    assert q.members("t", group="g").rebalances == 2  # nothing was decided anew
    assert {m.attempt for m in q.receive("t", 100, group="g", member=again)} == {2}
    for call in (lambda: q.heartbeat(b), lambda: q.receive("t", group="g", member=b), lambda: q.leave(b)):
        with refused(mqueue.Conflict, "stale_generation"):
            call()
    assert seats(q, a, again) == [(0, 1), (2, 3)]


def test_a_group_that_is_made_anew_knows_no_old_members(q) -> None:
    """Whoever was replaced before it was deleted does not come back under the generation of another."""
    old = q.join("t", group="g", member="a")
    q.delete_group("t", "g")
    new = q.join("t", group="g", member="a")
    assert new.generation > old.generation
    for call in (lambda: q.heartbeat(old), lambda: q.receive("t", group="g", member=old), lambda: q.leave(old)):
        with refused(mqueue.Conflict, "stale_generation"):
            call()
    assert seats(q, new) == [(0, 1, 2, 3)]


def test_only_what_has_to_move_moves(q) -> None:
    members = {name: q.join("t", group="g", member=name) for name in "abcd"}
    before = dict(zip(members, seats(q, *members.values()), strict=True))
    q.leave(members.pop("b"))
    after = dict(zip(members, seats(q, *members.values()), strict=True))
    for name in members:
        assert set(before[name]) <= set(after[name])
    assert q.members("t", group="g").history[-1].moved == 1


def test_more_members_than_partitions(q, clock) -> None:
    members = [q.join("t", group="g", member=f"m{n}") for n in range(PARTITIONS + 1)]
    assert sorted(map(len, seats(q, *members))) == [0, 1, 1, 1, 1]
    idle = next(held for held in map(q.heartbeat, members) if not held.partitions)
    assert q.receive("t", group="g", member=idle) == []


def test_more_partitions_reach_the_members(q) -> None:
    a, b = q.join("t", group="g", member="a"), q.join("t", group="g", member="b")
    held = q.receive("t", 100, group="g", member=a)
    q.configure("t", partitions=6)
    found = seats(q, a, b)
    assert sorted(map(len, found)) == [3, 3]
    assert set(found[0]) >= {0, 1}  # what is there stays where it is
    q.publish("t", b"x", key=key_of(5, 6))
    got = [m.payload for member in (a, b) for m in q.receive("t", 100, group="g", member=member)]
    assert b"x" in got
    assert q.ack(held).settled == 6
    assert q.members("t", group="g").history[-1].reason == "6 partitions"


def test_fewer_partitions_are_refused(q) -> None:
    with refused(mqueue.BadSetting):
        q.configure("t", partitions=PARTITIONS - 1)


def test_a_shared_group_becomes_assigned(q) -> None:
    held = q.receive("t", 4, group="g")
    a = q.join("t", group="g", member="a")
    busy = {m.partition for m in held}
    assert set(a.partitions) == set(range(PARTITIONS)) - busy
    with refused(mqueue.Conflict, "assigned_group") as caught:
        q.receive("t", group="g")
    assert "join it" in str(caught.value)
    assert q.ack(held).settled == 4  # what it holds it may settle
    assert seats(q, a) == [(0, 1, 2, 3)]
    assert q.receive("t", 1, group="shared") != []  # other groups know nothing of it


def test_a_group_made_assigned(q) -> None:
    q.create_group("t", "g", assigned=True)
    with refused(mqueue.Conflict, "assigned_group"):
        q.receive("t", group="g")
    view = q.members("t", group="g")
    assert (view.assigned, view.members, view.rebalances) == (True, [], 0)
    assert [lag.lag for lag in view.partitions] == [3] * PARTITIONS
    assert q.join("t", group="g").partitions == (0, 1, 2, 3)


def test_a_group_stays_assigned_without_members(q) -> None:
    q.leave(q.join("t", group="g"))
    with refused(mqueue.Conflict, "assigned_group"):
        q.receive("t", group="g")
    q.delete_group("t", "g")
    assert len(take(q, "t", group="g")) == 12  # a new group of that name is shared


def test_a_seek_lets_everything_move(q) -> None:
    a = q.join("t", group="g", member="a")
    q.receive("t", 100, group="g", member=a)
    b = q.join("t", group="g", member="b")
    q.seek("t", group="g", to="earliest")
    assert seats(q, a, b) == [(0, 1), (2, 3)]


def test_members_in_numbers(q, clock) -> None:
    a = q.join("t", group="g", member="a")
    clock.advance("1s")
    q.heartbeat(a)
    q.receive("t", 2, group="g", member=a)
    q.publish("t", b"later", key=key_of(0), delay="1h")
    view = q.members("t", group="g")
    [member] = view.members
    assert (member.member, member.partitions, member.generation) == ("a", (0, 1, 2, 3), a.generation)
    assert (member.heard_at - member.joined_at).total_seconds() == 1
    assert sum(lag.leased for lag in view.partitions) == 2
    assert [lag.lag for lag in view.partitions] == [3] * PARTITIONS
    assert [lag.member for lag in view.partitions] == ["a"] * PARTITIONS
    assert view.partitions[0].end == 4
    assert view.history[0].reason == "a joined"


def test_a_shared_group_has_no_members(q) -> None:
    q.receive("t", group="g")
    view = q.members("t", group="g")
    assert (view.assigned, view.members, view.history) == (False, [], [])
    assert sum(lag.leased for lag in view.partitions) == 1


def test_bad_input_changes_nothing(q, make) -> None:
    a = q.join("t", group="g", member="a")
    before = q.members("t", group="g")
    for bad in ("a b", "", "x" * 300):
        with refused(mqueue.BadName):
            q.join("t", group="g", member=bad)
        with refused(mqueue.BadName):
            q.join("t", group=bad)
    ghost = mqueue.Membership("t", "g", "ghost", 1)
    with refused(mqueue.Conflict, "stale_member"):
        q.heartbeat(ghost)
    with refused(mqueue.Conflict, "stale_member"):
        q.receive("t", group="g", member=ghost)
    later = mqueue.Membership("t", "g", "a", a.generation + 1)
    with refused(mqueue.Conflict, "stale_generation") as caught:
        q.heartbeat(later)
    assert f"generation {a.generation}, not {a.generation + 1}" in str(caught.value)
    for call in (
        lambda: q.heartbeat(mqueue.Membership("t", "nobody", "a", 1)),
        lambda: q.leave(mqueue.Membership("t", "nobody", "a", 1)),
        lambda: q.receive("t", group="nobody", member=mqueue.Membership("t", "nobody", "a", 1)),
        lambda: q.members("t", group="nobody"),
        lambda: q.heartbeat(mqueue.Membership("no-topic", "g", "a", 1)),
    ):
        with refused(mqueue.NotFound):
            call()
    for call in (
        lambda: q.receive("t", group="h", member=a),
        lambda: q.receive("u", group="g", member=a),
        lambda: q.receive(["t"], group="g", member=a),
        lambda: q.heartbeat("a"),
        lambda: next(q.consume("t", group="g", member="a")),
        lambda: next(q.consume(["t", "u"], group="g", assigned=True)),
    ):
        with refused(mqueue.Refused, "bad_member"):
            call()
    with refused(mqueue.Refused, "bad_partition"):
        q.heartbeat(a, released=[-1])
    assert q.groups("t") == ["g"]
    assert q.members("t", group="g") == before


def test_too_many_members(make) -> None:
    q = make(limits=Limits(members_max=2))
    a, _ = q.join("t", member="a"), q.join("t", member="b")
    with refused(mqueue.QueueFull, "members_full") as caught:
        q.join("t", member="c")
    assert "2 are allowed" in str(caught.value)
    q.join("t", member="a")  # who is in already may come back
    assert len(q.members("t").members) == 2
    assert a.group == "default"


def test_consume_as_a_member(q) -> None:
    got: list[bytes] = []
    for message in q.consume("t", group="g", assigned=True):
        with message:
            got.append(message.payload)
        if len(got) == 12:
            break
    for number in range(PARTITIONS):
        assert [p for p in got if p.startswith(b"%d-" % number)] == [b"%d-%d" % (number, n) for n in range(3)]
    _until(lambda: not q.members("t", group="g").members)  # it has left


def test_an_id_of_its_own_does_not_leave(q) -> None:
    consumer = q.consume("t", group="g", assigned=True, member="w1")
    with next(consumer):
        pass
    consumer.close()
    [member] = q.members("t", group="g").members
    assert (member.member, member.partitions) == ("w1", (0, 1, 2, 3))


def test_a_consumer_lets_go_of_what_is_revoked(q) -> None:
    """Of what it has fetched, all but what its user has in hand."""
    consumer = q.consume("t", group="g", assigned=True, prefetch=100)
    first = next(consumer)
    b = q.join("t", group="g", member="b")
    _until(lambda: len(q.heartbeat(b).partitions) >= (2 if first.partition not in (2, 3) else 1))
    first.ack()
    _until(lambda: q.heartbeat(b).partitions == (2, 3))
    got = [first.partition, *(_acked(message) for message in islice(consumer, 5))]
    assert set(got) - {first.partition} <= {0, 1}
    assert len(take(q, "t", group="g", member=b)) == (6 if first.partition < 2 else 5)
    consumer.close()


def test_who_is_replaced_is_told(q) -> None:
    consumer = q.consume("t", group="g", assigned=True, member="w1")
    next(consumer).ack()
    q.join("t", group="g", member="w1")
    with pytest.raises(mqueue.Conflict) as caught:
        _drain(consumer)
    assert caught.value.code == "stale_generation"


def test_lanes_share_what_a_member_has(q) -> None:
    """Each member gives the lanes of its own partitions their shares, before and after partitions move."""
    q.configure("u", partitions=4, policy="weighted")
    for priority in ("critical", "background"):
        q.publish_many("u", [Draft(priority, key=str(n), priority=priority) for n in range(1600)])
    a = q.join("u", group="g", member="a")
    assert Counter(payloads(q.receive("u", 106, group="g", member=a))) == {b"critical": 100, b"background": 6}
    b = q.join("u", group="g", member="b")
    a = q.heartbeat(a, released=a.partitions)
    b = q.heartbeat(b)
    assert len(a.partitions) == len(b.partitions) == 2
    for member in (a, b):
        got = q.receive("u", 106, group="g", member=member)
        assert {m.partition for m in got} <= set(member.partitions)
        assert Counter(payloads(got)) == {b"critical": 100, b"background": 6}


def test_a_key_of_an_ordered_topic_goes_on_at_its_next_owner(q) -> None:
    q.configure("u", partitions=2, ordered=True)
    a = q.join("u", group="g", member="a")
    q.publish_many("u", [Draft(f"{key}{n}", key=key) for n in range(3) for key in "stuvwxyz"])
    held = q.receive("u", 100, group="g", member=a)
    assert sorted(payloads(held)) == [b"%c0" % key for key in b"stuvwxyz"]
    assert q.receive("u", 100, group="g", member=a) == []
    b = q.join("u", group="g", member="b")
    [moving] = q.heartbeat(a).revoked
    assert q.receive("u", 100, group="g", member=b) == []
    for message in held:
        message.ack()
    seen = {"a": [], "b": []}
    for _ in range(3):
        for member in (q.heartbeat(a), q.heartbeat(b)):
            for message in q.receive("u", 100, group="g", member=member):
                assert (message.partition == moving) == (member.member == "b")
                seen[member.member].append(message.payload.decode())
                message.ack()
    for key in "stuvwxyz":
        assert [p for told in seen.values() for p in told if p[0] == key] == [f"{key}1", f"{key}2"]
    assert all(seen.values())


def test_limits_of_fairness_keys_are_those_of_the_group(q) -> None:
    q.configure("u", partitions=2, fairness={"in_flight_max": 3})
    a, b = q.join("u", group="g", member="a"), q.join("u", group="g", member="b")
    a = q.heartbeat(a)
    q.publish_many("u", [Draft(b"", key=str(n), fairness_key="acme") for n in range(40)])
    first = q.receive("u", 2, group="g", member=a)
    second = q.receive("u", 100, group="g", member=b)
    assert (len(first), len(second)) == (2, 1)
    assert q.receive("u", 100, group="g", member=a) == []
    second[0].ack()
    assert len(q.receive("u", 100, group="g", member=a)) == 1, "what one lets go of another may have"


def _drain(consumer) -> None:
    """What lies at hand was leased by who is replaced, and is lost to it."""
    for message in consumer:
        with suppress(mqueue.LeaseLost):
            message.ack()


def _acked(message) -> int:
    message.ack()
    return message.partition


def _until(true) -> None:
    """What happens in the background has happened."""
    for _ in range(1200):
        if true():
            return
        threading.Event().wait(0.05)
    raise AssertionError("it did not happen in a minute")
