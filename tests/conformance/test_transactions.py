"""Transactions: staged messages show to nobody; a commit shows them all, once, however often it is called."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

import mqueue
from tests.conformance.steps import Background, beside, log, payloads, receive_one, refused, take

ID = "spark/app-7:batch 12"
U = beside("t", "u")


def test_nothing_shows_before_the_commit_and_everything_after(q) -> None:
    q.publish("t", b"0")
    assert q.stage(ID, "t", [b"1", b"2"], part="0") == mqueue.StagedPart(ID, "0", 2)
    q.stage(ID, "t", [b"3"], part="1")
    q.stage(ID, U, [b"4"], part="2")
    assert q.topics() == ["t"]
    assert (q.stats("t").published, q.stats("t").depth) == (1, 1)
    assert payloads(q.peek("t")) == log(q, "t") == [b"0"]
    assert (q.metrics()["topics"], q.metrics()["published"]) == (1, 1)
    done = q.commit(ID)
    assert (done.id, done.state, done.parts, done.messages, done.topics) == (ID, "committed", 3, 4, ("t", U))
    assert q.topics() == ["t", U]
    assert take(q, "t") == [b"0", b"1", b"2", b"3"]
    assert take(q, U) == [b"4"]
    assert q.metrics()["published"] == 5


def test_a_commit_happens_once(q, clock) -> None:
    q.stage(ID, "t", [b"1", b"2"])
    first = q.commit(ID)
    assert q.commit(ID) == first
    clock.advance("6d")
    assert q.commit(ID) == q.transaction(ID) == first
    assert log(q, "t") == [b"1", b"2"]


def test_a_part_that_is_staged_again_takes_the_place_of_the_first(q) -> None:
    q.stage(ID, "t", [b"old", b"older"], part="0")
    q.stage(ID, "t", [b"b"], part="1")
    q.stage(ID, U, [b"new"], part="0")
    found = q.transaction(ID)
    assert (found.state, found.parts, found.messages, found.topics) == ("staged", 2, 2, ("t", U))
    q.commit(ID)
    assert (log(q, "t"), log(q, U)) == ([b"b"], [b"new"])


def test_a_commit_may_name_its_parts_and_the_others_never_show(q) -> None:
    q.stage(ID, "t", [b"1", b"2"], part="0.7")
    q.stage(ID, U, [b"x", b"y", b"z"], part="1.8")
    q.stage(ID, "t", [b"3"], part="1.9")
    q.stage(ID, "t", [b"4"], part="")
    done = q.commit(ID, ["1.9", "", "0.7", "1.9"])
    assert (done.state, done.parts, done.messages, done.topics) == ("committed", 3, 4, ("t",))
    assert log(q, "t") == [b"1", b"2", b"3", b"4"]  # as they were staged, not as they are named
    assert q.topics() == ["t"]
    assert q.transaction(ID) == done


def test_a_second_commit_is_the_first_whatever_it_names(q) -> None:
    q.stage(ID, "t", [b"1"], part="a")
    q.stage(ID, "t", [b"2"], part="b")
    first = q.commit(ID, ["b"])
    for parts in (None, ["a"], ["b"], ["never"], []):
        assert q.commit(ID, parts) == first
    assert log(q, "t") == [b"2"]


def test_parts_that_were_not_staged_are_a_conflict_and_change_nothing(q) -> None:
    q.stage(ID, "t", [b"1"], part="a")
    q.stage(ID, "t", [b"2"], part="b")
    with refused(mqueue.Conflict, "part_missing") as caught:
        q.commit(ID, ["a", "c"])
    assert "'c'" in str(caught.value)
    assert "'a'" not in str(caught.value)
    found = q.transaction(ID)
    assert (found.state, found.parts, found.messages) == ("staged", 2, 2)
    assert q.topics() == []
    q.stage(ID, "t", [b"3"], part="c")
    assert q.commit(ID, iter(["a", "c"])).messages == 2
    assert log(q, "t") == [b"1", b"3"]


def test_a_commit_of_no_parts_publishes_nothing_and_is_over(q) -> None:
    q.stage(ID, "t", [b"1"], part="a")
    done = q.commit(ID, [])
    assert (done.state, done.parts, done.messages, done.topics) == ("committed", 0, 0, ())
    assert q.topics() == []
    with refused(mqueue.Conflict, "transaction_over"):
        q.stage(ID, "t", [b"1"], part="a")


def test_what_is_dropped_counts_towards_no_depth_and_makes_no_topic(q) -> None:
    q.configure("t", max_depth=2)
    q.stage(ID, "t", [b"1", b"2", b"3"], part="a")
    q.stage(ID, "t", [b"4"], part="b")
    with refused(mqueue.QueueFull):
        q.commit(ID)
    assert q.commit(ID, ["b"]).messages == 1
    assert log(q, "t") == [b"4"]


def test_a_large_transaction_of_some_parts(q) -> None:
    for number in range(6):
        q.stage(ID, "t", [b"%d" % n for n in range(number * 7_000, number * 7_000 + 7_000)], part=str(number))
    assert q.commit(ID, ["5", "2", "3"]).messages == 21_000
    assert log(q, "t") == [b"%d" % n for first in (2, 3, 5) for n in range(first * 7_000, first * 7_000 + 7_000)]


def test_bad_parts_are_refused(q) -> None:
    q.stage(ID, "t", [b"1"], part="a")
    for bad in ("a", 7, True):
        with refused(mqueue.Refused):
            q.commit(ID, bad)
    for bad in ([7], ["a\nb"], ["x" * 250], [None]):
        with refused(mqueue.BadName):
            q.commit(ID, bad)
    assert q.transaction(ID).state == "staged"
    with refused(mqueue.NotFound):
        q.commit("never", ["a"])


def test_who_stages_too_late_is_told_how_it_ended(q) -> None:
    for id, end in (("1", q.commit), ("2", q.abort)):
        q.stage(id, "t", [b"1"])
        state = end(id).state
        with refused(mqueue.Conflict, "transaction_over") as caught:
            q.stage(id, "t", [b"2"], part="late")
        assert f"was {state} already" in str(caught.value)
        assert q.transaction(id).state == state


def test_what_is_aborted_never_shows(q) -> None:
    q.stage(ID, "t", [b"1"])
    gone = q.abort(ID)
    assert (gone.state, gone.messages) == ("aborted", 1)
    assert q.abort(ID) == gone == q.transaction(ID)
    with refused(mqueue.Conflict, "transaction_over"):
        q.commit(ID)
    with refused(mqueue.Conflict, "transaction_over"):
        q.stage(ID, "t", [b"2"])
    assert q.topics() == []


def test_after_a_commit_nothing_can_be_changed(q) -> None:
    q.stage(ID, "t", [b"1"])
    q.commit(ID)
    with refused(mqueue.Conflict, "transaction_over"):
        q.stage(ID, "t", [b"2"])
    with refused(mqueue.Conflict, "transaction_over"):
        q.abort(ID)
    assert log(q, "t") == [b"1"]


def test_a_transaction_that_is_not_there(q) -> None:
    for call in (q.commit, q.abort, q.transaction):
        with refused(mqueue.NotFound):
            call(ID)


def test_messages_keep_what_they_came_with(q, clock) -> None:
    q.stage(
        ID,
        "t",
        [
            mqueue.Draft(b"low", priority="low", key="k", headers={"a": "b", "c": b"\xff"}, fairness_key="f"),
            mqueue.Draft({"n": 1}, priority="high"),
            mqueue.Draft(b"late", delay="1h"),
            mqueue.Draft(b"brief", ttl="1m"),
        ],
    )
    q.commit(ID)
    first, brief, low = q.receive("t", limit=10)
    assert (first.json(), first.priority, first.headers["content-type"]) == ({"n": 1}, 25, "application/json")
    assert brief.expires_at - brief.published_at == timedelta(minutes=1)
    assert (low.priority, low.key, dict(low.headers)) == (75, b"k", {"a": "b", "c": b"\xff"})
    clock.advance("59m")
    assert q.receive("t", group="other", limit=10)[-1].payload == b"low"
    clock.advance("1m")
    assert b"late" in payloads(q.receive("t", limit=10))


def test_delay_and_ttl_count_from_when_it_was_staged(q, clock) -> None:
    q.stage(ID, "t", [mqueue.Draft(b"due", delay="1h"), mqueue.Draft(b"dead", ttl="1h"), mqueue.Draft(b"x", ttl="3h")])
    clock.advance("2h")
    q.commit(ID)
    assert sorted(take(q, "t")) == [b"due", b"x"]
    assert q.stats("t").published == 3
    clock.advance("2h")
    assert take(q, "t") == []


def test_published_at_is_when_it_was_committed(q, clock, backend) -> None:
    before = q.publish("t", b"0")
    q.stage(ID, "t", [b"1"])
    clock.advance("1h")
    between = q.publish("t", b"2")
    q.commit(ID)
    first, second, third = q.scan("t")
    assert (first.id, second.id) == (before.id, between.id)
    assert third.published_at == second.published_at
    assert third.id > second.id or backend.nodes > 1, "of several nodes each has ids of its own"
    assert [m.payload for m in q.receive("t", limit=5)] == [b"0", b"2", b"1"]


def test_a_table_is_staged_as_it_is(q) -> None:
    table = pa.table(
        {
            "payload": [b"a", b"b", b"c"],
            "key": [b"k", None, b"k"],
            "priority": pa.array([50, 0, 50], pa.int32()),
            "headers": pa.array([[("h", b"1")], None, None], pa.map_(pa.string(), pa.binary())),
        }
    )
    assert q.stage(ID, "t", table).messages == 3
    q.stage(ID, "t", pa.RecordBatch.from_pydict({"payload": [b"d"]}), part="1")
    q.commit(ID)
    assert [(m.payload, m.key, dict(m.headers)) for m in q.receive("t", limit=10)] == [
        (b"b", None, {}),
        (b"a", b"k", {"h": "1"}),
        (b"c", b"k", {}),
        (b"d", None, {}),
    ]


def test_keys_choose_the_partition_that_the_topic_has_when_it_is_committed(q) -> None:
    q.stage(ID, "t", [mqueue.Draft(b"x", key=f"k{n}") for n in range(40)])
    q.configure("t", partitions=4)
    q.commit(ID)
    published = {r.partition for r in q.publish_many("t", [mqueue.Draft(b"y", key=f"k{n}") for n in range(40)])}
    where = {m.key: m.partition for m in q.scan("t") if m.payload == b"x"}
    assert set(where.values()) == published == {0, 1, 2, 3}
    assert all(where[m.key] == m.partition for m in q.scan("t"))


@pytest.mark.parametrize("keyed", [False, True])
def test_a_large_transaction_is_whole_and_in_order(q, keyed) -> None:
    bodies = [[b"%d" % n for n in range(first, first + 9_000)] for first in range(0, 45_000, 9_000)]
    for number, part in enumerate(bodies):
        messages = [mqueue.Draft(body, key="k") for body in part] if keyed else part
        q.stage(ID, "t", messages, part=str(number))
    q.stage(ID, U, [b"last"], part="last")
    assert q.commit(ID).messages == 45_001
    assert log(q, "t") == [body for part in bodies for body in part]
    assert log(q, U) == [b"last"]
    assert q.commit(ID).state == "committed"
    assert q.stats("t").published == 45_000


def test_a_commit_wakes_who_waits(q) -> None:
    q.stage(ID, "t", [b"1"])
    waiting = Background(lambda: payloads(q.receive("t", wait="60s")))
    waiting.assert_waiting()
    q.commit(ID)
    assert waiting.result() == [b"1"]


def test_what_is_staged_runs_out(q, clock) -> None:
    q.stage(ID, "t", [b"1"])
    clock.advance("23h")
    q.stage(ID, "t", [b"2"], part="2")
    clock.advance("23h")
    found = q.transaction(ID)
    assert (found.state, found.messages) == ("staged", 2)
    clock.advance("1h")
    assert q.transaction(ID).state == "aborted"
    with refused(mqueue.Conflict, "transaction_over"):
        q.commit(ID)
    with refused(mqueue.Conflict, "transaction_over"):
        q.stage(ID, "t", [b"3"])


def test_how_long_is_for_the_caller_to_say(q, clock) -> None:
    q.stage(ID, "t", [b"1"], ttl="30d")
    q.stage(ID, "t", [b"2"], part="2", ttl="1h")
    clock.advance("29d")
    q.commit(ID)
    assert log(q, "t") == [b"1", b"2"]
    for ttl in (0, "soon"):
        with refused(mqueue.BadTime):
            q.stage("other", "t", [b"1"], ttl=ttl)


def test_how_it_ended_is_forgotten_after_a_week(q, clock) -> None:
    q.stage(ID, "t", [b"1"])
    done = q.commit(ID)
    [message] = q.scan("t")
    assert done.expires_at == message.published_at + timedelta(days=7)
    clock.advance("7d")
    with refused(mqueue.NotFound):
        q.commit(ID)
    q.stage(ID, "t", [b"2"])
    q.commit(ID)
    assert log(q, "t")[-1] == b"2"


def test_retention_leaves_what_is_staged(q, clock) -> None:
    q.configure("t", retention={"hours": 0.01, "bytes": 1, "on_ack": True})
    q.stage(ID, "t", [b"1"])
    for _ in range(5):
        clock.advance("1h")
        take(q, "t")
    q.commit(ID)
    assert take(q, "t") == [b"1"]


def test_a_topic_that_was_deleted_is_made_anew(q) -> None:
    q.publish("t", b"0")
    q.stage(ID, "t", [b"1"])
    q.delete_topic("t")
    q.commit(ID)
    assert log(q, "t") == [b"1"]


def test_max_depth_counts_when_it_is_committed(q) -> None:
    q.configure("t", max_depth=3)
    q.publish_many("t", [b"1", b"2"])
    q.stage(ID, "t", [b"3", b"4"])
    q.stage(ID, U, [b"5"], part="u")
    with refused(mqueue.QueueFull):
        q.commit(ID)
    assert (log(q, "t"), q.topics(), q.transaction(ID).state) == ([b"1", b"2"], ["t"], "staged")
    receive_one(q, "t").ack()
    q.commit(ID)
    assert take(q, "t") == [b"2", b"3", b"4"]


def test_the_oldest_go_where_the_topic_says_so(q) -> None:
    q.configure("t", max_depth=3, overflow="drop_oldest")
    q.publish_many("t", [b"1", b"2"])
    q.stage(ID, "t", [b"3", b"4"])
    q.commit(ID)
    assert take(q, "t") == [b"2", b"3", b"4"]


@pytest.mark.usefixtures("whole_quotas")
def test_the_quota_counts_when_it_is_staged(make) -> None:
    q = make(quotas={"default": 3})
    q.stage(ID, "t", [b"1", b"2"])
    with refused(mqueue.QuotaExceeded):
        q.stage(ID, "t", [b"3", b"4"], part="1")
    q.commit(ID)
    assert len(log(q, "t")) == 2


def test_idempotency_keys_cannot_be_staged(q) -> None:
    with refused(mqueue.Refused, "staged_key"):
        q.stage(ID, "t", [b"1", mqueue.Draft(b"2", idempotency_key="i")])
    with refused(mqueue.Refused, "staged_key"):
        q.stage(ID, "t", pa.table({"payload": [b"1"], "idempotency_key": ["i"]}))
    q.stage(ID, "t", pa.table({"payload": [b"1"], "idempotency_key": pa.array([None], pa.string())}))
    q.commit(ID)
    assert log(q, "t") == [b"1"]


def test_bad_calls_are_refused_and_change_nothing(q) -> None:
    for bad in ("", "x" * 250, "a\nb", "a\0", 7, None):
        with refused(mqueue.BadName):
            q.stage(bad, "t", [b"1"])
        with refused(mqueue.BadName):
            q.transaction(bad)
    for bad in ("x" * 250, "a\nb", 7, None):
        with refused(mqueue.BadName):
            q.stage(ID, "t", [b"1"], part=bad)
    for topic in ("", "a/b", "/", "/" + ID):
        with refused(mqueue.BadName):
            q.stage(ID, topic, [b"1"])
    with refused(mqueue.Refused, "empty"):
        q.stage(ID, "t", [])
    with refused(mqueue.Refused):
        q.stage(ID, "t", [mqueue.Draft(b"1", topic=U)])
    with refused(mqueue.TooLarge):
        q.stage(ID, "t", [b"1"] * 10_001)
    with refused(mqueue.BadFrame):
        q.stage(ID, "t", pa.table({"other": [b"1"]}))
    with refused(mqueue.NotFound):
        q.transaction(ID)


def test_any_printable_text_is_a_name(q) -> None:
    for id in ("/", "a/b:c", "x" * 249, "größe 7 – é", "..", "t"):
        q.stage(id, "t", [id], part="/")
        assert q.commit(id).id == id
    assert len(log(q, "t")) == 6


def test_the_topics_behind_it_cannot_be_reached(q) -> None:
    q.stage(ID, "t", [b"1"])
    for name in ("/", "/" + ID):
        with refused(mqueue.BadName):
            q.publish(name, b"x")
        for call in (q.receive, q.peek, q.stats, q.purge, q.delete_topic, q.settings, q.groups):
            with refused(mqueue.BadName):
                call(name)
    q.commit(ID)
    assert log(q, "t") == [b"1"]


def test_transactions_belong_to_their_namespace(q) -> None:
    other = q.namespace("other")
    q.stage(ID, "t", [b"1"])
    with refused(mqueue.NotFound):
        other.commit(ID)
    other.stage(ID, "t", [b"2"])
    other.commit(ID)
    assert q.topics() == []
    q.abort(ID)
    assert log(other, "t") == [b"2"]


def test_how_it_ended_can_be_forgotten(q) -> None:
    q.stage(ID, "t", [b"1"])
    with refused(mqueue.Conflict, "transaction_open"):
        q.forget(ID)
    q.commit(ID)
    for _ in range(2):
        q.forget(ID)
        with refused(mqueue.NotFound):
            q.transaction(ID)
    assert log(q, "t") == [b"1"]
    q.stage(ID, "t", [b"2"])
    q.commit(ID)
    assert log(q, "t") == [b"1", b"2"]


def test_what_is_forgotten_makes_room(make) -> None:
    q = make(limits=mqueue.Limits(transactions_open_max=2, transactions_max=3))
    for number in range(10):
        q.stage(str(number), "t", [b"x"])
        q.commit(str(number))
        q.forget(str(number - 2))
    assert [q.transaction(id).state for id in ("8", "9")] == ["committed", "committed"]


def test_there_are_limits(make, clock) -> None:
    limits = mqueue.Limits(
        transactions_open_max=2, transactions_max=4, transaction_parts_max=2, transaction_bytes_max=10_000
    )
    q = make(limits=limits)
    q.stage("1", "t", [b"x"])
    q.stage("1", "t", [b"x"], part="2")
    q.stage("1", "t", [b"y"], part="2")
    with refused(mqueue.TooLarge, "too_many_parts"):
        q.stage("1", "t", [b"x"], part="3")
    with refused(mqueue.TooLarge, "transaction_too_large"):
        q.stage("1", "t", [b"x" * 10_000])
    q.stage("2", "t", [b"x"])
    with refused(mqueue.QueueFull, "transactions_full"):
        q.stage("3", "t", [b"x"])
    q.commit("1")
    q.abort("2")
    for id in ("3", "4"):
        q.stage(id, "t", [b"x"])
        q.commit(id)
    with refused(mqueue.QueueFull, "transactions_full"):
        q.stage("5", "t", [b"x"])
    clock.advance("7d")
    q.stage("5", "t", [b"x"])


def test_a_first_part_that_is_too_large_is_refused(make) -> None:
    q = make(limits=mqueue.Limits(transaction_bytes_max=1_000))
    with refused(mqueue.TooLarge, "transaction_too_large"):
        q.stage(ID, "t", [b"x" * 2_000])
    with refused(mqueue.NotFound):
        q.transaction(ID)


def test_a_transaction_goes_to_a_hundred_topics_at_most(q) -> None:
    for number in range(100):
        q.stage(ID, beside("t", f"t{number}"), [b"x"], part=str(number))
    with refused(mqueue.Refused, "too_many_topics"):
        q.stage(ID, beside("t", "more"), [b"x"], part="more")
    q.stage(ID, beside("t", "t7"), [b"y"], part="more")
    assert len(q.commit(ID).topics) == 100


def test_what_was_committed_lives_as_any_message(q, clock) -> None:
    q.stage(ID, "t", [b"1"])
    q.commit(ID)
    m = receive_one(q, "t")
    m.nack(error="not now")
    clock.advance("1m")
    again = receive_one(q, "t")
    assert (again.id, again.attempt) == (m.id, 2)
    again.reject()
    assert q.dlq("t").redrive().redriven == 1
    assert [event.kind for event in q.trace(m.id).events][:2] == ["PUBLISHED", "DELIVERED"]
