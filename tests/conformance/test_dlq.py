"""The dead-letter queue: what the dead carry, and how they come back."""

from __future__ import annotations

import pytest

import mqueue
from mqueue import Draft
from tests.conformance.steps import assert_conserved, beside, die, log, payloads, receive_one, refused, take


def test_the_story_of_a_death(make, clock) -> None:
    q = make(name="worker-1", max_retries=1)
    r = q.publish("t", b"x", key="k", headers={"own": "1"}, priority="high")
    receive_one(q, "t", group="g").nack(delay="2s", error=ValueError("first"))
    clock.advance("2s")
    receive_one(q, "t", group="g").nack(error=ValueError("last"))
    m = receive_one(q, "t.dlq")
    assert dict(m.headers) == {
        "own": "1",
        "x-origin-topic": "t",
        "x-origin-partition": "0",
        "x-origin-offset": "0",
        "x-origin-id": str(r.id),
        "x-group": "g",
        "x-attempts": "2",
        "x-reason": "max_retries",
        "x-error": "ValueError: last",
        "x-consumer": "worker-1",
        "x-first-failure": "2026-01-01T00:00:00.000Z",
        "x-last-failure": "2026-01-01T00:00:02.000Z",
    }
    assert (m.payload, m.key, m.priority) == (b"x", b"k", 25)


def test_the_dead_are_listed(q) -> None:
    q.publish_many("t", [b"1", b"2", b"3"])
    assert "t.dlq" not in q.topics()
    assert (q.dlq("t").messages(), len(q.dlq("t"))) == ([], 0)
    for n in range(3):
        die(q, "t", f"error {n}")
    assert payloads(q.dlq("t").messages()) == [b"1", b"2", b"3"]
    assert payloads(q.dlq("t").messages(limit=2)) == [b"1", b"2"]
    assert [m.error for m in q.dlq("t").messages()] == ["error 0", "error 1", "error 2"]
    assert len(q.dlq("t")) == 3


def test_an_unknown_topic_has_none(q) -> None:
    with refused(mqueue.NotFound):
        q.dlq("nowhere").messages()


def test_a_long_error_is_cut(q) -> None:
    q.publish("t", b"x")
    die(q, "t", "e" * 100_000)
    assert 100 < len(q.dlq("t").messages()[0].error) < 10_000


def test_the_queue_of_the_dead_is_a_queue(q, clock) -> None:
    q.publish("t", b"x")
    die(q, "t")
    for _ in range(10):
        receive_one(q, "t.dlq").nack()
        clock.advance("2m")
    assert take(q, "t.dlq") == [b"x"]
    assert q.dlq("t").messages() == []
    assert "t.dlq.dlq" not in q.topics()


def test_what_is_rejected_there_is_gone(q) -> None:
    q.publish("t", b"x")
    die(q, "t")
    die(q, "t.dlq")
    assert (len(q.dlq("t")), q.topics()) == (0, ["t", "t.dlq"])


def test_off(make) -> None:
    q = make(dlq=False)
    q.publish("t", b"x")
    die(q, "t")
    assert q.topics() == ["t"]
    assert q.dlq("t").messages() == []
    assert q.stats("t").dead == 1


def test_a_name_of_its_own(q, clock) -> None:
    graveyard = beside("a", "graveyard")
    for topic in ("a", beside("a", "b")):
        q.configure(topic, dlq=graveyard)
        q.publish(topic, topic[0])
        die(q, topic)
    assert sorted(log(q, graveyard)) == [b"a", b"b"]
    for _ in range(10):
        q.nack(q.receive(graveyard, limit=2))
        clock.advance("2m")
    assert len(q.receive(graveyard, limit=2)) == 2
    assert q.topics() == ["a", beside("a", "b"), graveyard]


def test_one_queue_of_the_dead_for_the_whole_broker(make) -> None:
    graveyard = beside("t", "graveyard")
    q = make(dlq=graveyard)
    q.publish("t", b"x")
    die(q, "t")
    die(q, graveyard)
    assert log(q, graveyard) == [b"x"]


def test_a_full_queue_of_the_dead_loses_nothing(make) -> None:
    q = make(max_depth=1)
    for _ in range(3):
        q.publish("t", b"x")
        die(q, "t")
    assert len(q.dlq("t")) == 3
    graveyard = beside("u", "graveyard")
    q.configure("u", dlq=graveyard)
    q.configure(graveyard, max_depth=1, dlq=False)
    for _ in range(3):
        q.publish("u", b"x")
        die(q, "u")
    assert len(log(q, graveyard)) == 3


def test_no_room_for_another_topic(make, clock) -> None:
    q = make(limits=mqueue.Limits(topics_max=1), max_retries=0)
    q.publish("t", b"x")
    die(q, "t")
    assert len(q.dlq("t")) == 1


def test_a_name_too_long_for_its_dead(q) -> None:
    """A topic whose queue of the dead could not be named is refused before anything is in it."""
    longest = "x" * 249
    with refused(mqueue.BadName):
        q.publish(longest, b"x")
    q.configure(longest, dlq=False)
    q.publish(longest, b"x")
    die(q, longest)
    q.publish("x" * 245, b"x")
    die(q, "x" * 245)
    assert len(q.dlq("x" * 245)) == 1


def test_redrive(q) -> None:
    q.publish("t", b"x", key="k")
    id = die(q, "t")
    done = q.dlq("t").redrive()
    assert (done.matched, done.redriven, done.dry_run) == (1, 1, False)
    m = receive_one(q, "t")
    assert (m.id, m.attempt, m.payload, m.key, dict(m.headers)) == (id, 1, b"x", b"k", {})
    assert q.dlq("t").messages() == []
    assert q.receive("t.dlq") == []
    assert log(q, "t") == [b"x"]


def test_redrive_in_the_group_that_it_died_in(q) -> None:
    q.publish("t", b"x")
    assert take(q, "t", group="h") == [b"x"]
    die(q, "t", group="g")
    q.dlq("t").redrive()
    assert take(q, "t", group="h") == []
    assert take(q, "t", group="g") == [b"x"]
    assert_conserved(q, "t", "g")
    assert_conserved(q, "t", "h")


def test_redrive_each_in_its_group(q) -> None:
    q.publish("t", b"x")
    for group in ("g", "h"):
        die(q, "t", group=group)
    assert q.dlq("t").redrive(filter="group = g").redriven == 1
    assert take(q, "t", group="h") == []
    assert take(q, "t", group="g") == [b"x"]
    assert [m.group for m in q.dlq("t").messages()] == ["h"]


def test_redrive_keeps_its_place(q, clock) -> None:
    for n in range(3):
        q.publish("t", b"%d" % n)
        clock.advance("1ms")
    die(q, "t")
    q.dlq("t").redrive()
    assert take(q, "t") == [b"0", b"1", b"2"]


def test_redrive_dry(q) -> None:
    q.publish("t", b"x")
    die(q, "t")
    done = q.dlq("t").redrive(dry_run=True)
    assert (done.matched, done.redriven, done.dry_run) == (1, 0, True)
    assert (len(q.dlq("t")), q.receive("t")) == (1, [])


def test_redrive_some(q) -> None:
    q.publish_many("t", [Draft(b"%d" % n, headers={"region": "eu" if n % 2 else "us"}) for n in range(6)])
    for n in range(6):
        die(q, "t", f"error {n}")
    assert q.dlq("t").redrive(filter="headers.region = eu and error != 'error 3'").redriven == 2
    assert take(q, "t") == [b"1", b"5"]
    assert q.dlq("t").redrive(limit=1).redriven == 1
    assert take(q, "t") == [b"0"]
    assert payloads(q.dlq("t").messages(filter="error ~ 3")) == [b"3"]
    assert len(q.dlq("t")) == 3


@pytest.mark.parametrize("filter", ["nonsense", "reason =", "color = red"])
def test_redrive_with_a_bad_filter(q, filter: str) -> None:
    q.publish("t", b"x")
    die(q, "t")
    with refused(mqueue.Refused, "bad_filter"):
        q.dlq("t").redrive(filter=filter)
    assert len(q.dlq("t")) == 1


def test_what_dies_again_is_dead_again(q) -> None:
    q.publish("t", b"x")
    for _ in range(3):
        die(q, "t")
        assert len(q.dlq("t")) == 1
        assert q.dlq("t").redrive().redriven == 1
    assert take(q, "t") == [b"x"]
    stats = q.stats("t").groups["default"]
    assert (stats.dead, stats.acked) == (0, 1)


def test_redrive_of_many(q) -> None:
    q.configure("t", partitions=3)
    q.publish_many("t", [Draft(b"%d" % n, key=str(n), priority=n % 3) for n in range(200)])
    held = q.receive("t", limit=200)
    q.reject(held[:150])
    q.ack(held[150:])
    assert len(q.dlq("t")) == 150
    assert q.dlq("t").redrive().redriven == 150
    assert sorted(take(q, "t")) == sorted(payloads(held[:150]))
    assert_conserved(q, "t")


def test_redrive_after_the_original_is_gone(q) -> None:
    q.publish("t", b"x", key="k", headers={"own": "1"}, priority=3)
    die(q, "t")
    q.delete_topic("t")
    q.configure("t")
    assert q.dlq("t").redrive().redriven == 1
    for group in ("default", "other"):
        m = receive_one(q, "t", group=group)
        assert (m.payload, m.key, dict(m.headers), m.priority) == (b"x", b"k", {"own": "1"}, 3)


def test_redrive_of_what_a_seek_brought_back_does_not_double_it(q) -> None:
    q.publish("t", b"x")
    die(q, "t")
    q.seek("t", to="earliest")
    q.dlq("t").redrive()
    assert log(q, "t") == [b"x"]
    assert take(q, "t") == [b"x"]
    assert_conserved(q, "t")


def test_redrive_of_what_a_seek_brought_back_and_was_done(q) -> None:
    q.publish("t", b"x")
    die(q, "t")
    q.seek("t", to="earliest")
    assert take(q, "t") == [b"x"]
    q.dlq("t").redrive()
    assert_conserved(q, "t")
    take(q, "t")
    assert_conserved(q, "t")
    assert log(q, "t") == [b"x"]


def test_redrive_for_a_group_that_is_gone_disturbs_nobody(q) -> None:
    q.publish("t", b"x")
    die(q, "t", group="g")
    assert take(q, "t", group="h") == [b"x"]
    q.delete_group("t", "g")
    assert q.dlq("t").redrive().redriven == 0
    assert take(q, "t", group="h") == []
    assert len(q.dlq("t")) == 1


def test_redrive_of_what_expired_publishes_it_anew(make, clock) -> None:
    q = make(dlq_expired=True)
    q.publish("t", b"x", ttl="1s")
    clock.advance("1s")
    assert q.dlq("t").redrive().redriven == 1
    assert take(q, "t") == [b"x"]


def test_what_a_consumer_of_the_dead_holds_can_be_redriven(q) -> None:
    q.publish("t", b"x")
    die(q, "t")
    held = receive_one(q, "t.dlq")
    assert q.dlq("t").redrive().redriven == 1
    assert take(q, "t") == [b"x"]
    held.nack(delay=0)
    assert q.dlq("t").messages() == []


def test_a_message_put_there_by_hand_is_not_redriven(q) -> None:
    q.configure("t")
    q.publish("t.dlq", b"by hand")
    q.publish("t", b"x")
    die(q, "t")
    story = dict(q.dlq("t").messages()[1].headers)
    q.publish("t.dlq", b"forged", headers={**story, "x-origin-offset": "first"})
    q.publish("t.dlq", b"forged", headers={**story, "x-origin-topic": "no name"})
    done = q.dlq("t").redrive()
    assert (done.matched, done.redriven) == (3, 1)  # what names another origin is not of this topic
    assert len(q.dlq("t")) == 2


def test_a_copy_cannot_be_settled_without_a_lease(q) -> None:
    q.publish("t", b"x")
    die(q, "t")
    with refused(mqueue.LeaseLost):
        q.dlq("t").messages()[0].ack()


def test_the_dead_stay_with_their_namespace(q) -> None:
    other = q.namespace("other")
    other.publish("t", b"x")
    die(other, "t")
    assert q.topics() == []
    assert len(other.dlq("t")) == 1


# What they died of, and being rid of them


def test_errors_that_say_the_same_are_one(q, clock) -> None:
    q.publish_many("t", [b"1", b"2", b"3"])
    die(q, "t", "order 17 of 10.0.0.3: timed out")
    clock.advance("1m")
    die(q, "t", "order 4 of 10.0.0.9: timed out", group="default")
    die(q, "t", "no such address")
    often, once = q.dlq("t").errors()
    assert (often.count, often.error, often.transient) == (2, "order <n> of <ip>: timed out", True)
    assert (often.last_at - often.first_at).total_seconds() == 60
    assert (once.count, once.error, once.transient, once.groups) == (1, "no such address", False, ["default"])
    dead = q.dlq("t").messages(filter=f"fingerprint = {often.fingerprint}")
    assert [m.id for m in dead] == often.ids
    assert payloads(dead) == [b"1", b"2"]


def test_nothing_died_of_anything(q) -> None:
    q.publish("t", b"x")
    assert q.dlq("t").errors() == []
    assert q.dlq("t").delete() == mqueue.Deletion(0, 0, False)
    with refused(mqueue.NotFound):
        q.dlq("nowhere").errors()
    with refused(mqueue.NotFound):
        q.dlq("nowhere").delete()


def test_the_dead_are_deleted(q) -> None:
    q.publish_many("t", [b"1", b"2", b"3", b"4"])
    for n in range(4):
        die(q, "t", f"{'odd' if n % 2 else 'even'} {n}")
    assert q.dlq("t").delete(filter="error ~ odd", dry_run=True) == mqueue.Deletion(2, 0, True)
    assert len(q.dlq("t")) == 4
    assert q.dlq("t").delete(filter="error ~ odd") == mqueue.Deletion(2, 2, False)
    assert payloads(q.dlq("t").messages()) == [b"1", b"3"]
    assert q.dlq("t").delete(limit=1) == mqueue.Deletion(1, 1, False)
    assert q.dlq("t").redrive() == mqueue.Redrive(1, 1, False)
    assert take(q, "t") == [b"3"]
    assert take(q, "t.dlq") == []
    with refused(mqueue.Refused, "bad_limit"):
        q.dlq("t").delete(limit=0)
    with refused(mqueue.Refused, "bad_filter"):
        q.dlq("t").delete(filter="colour = red")
