"""Are the checks of the cluster's histories worth anything? Each lie that a history can tell is planted in one that is
true, and has to be found, by the check that is there for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import Struct
from msgspec.structs import replace

from tests.cluster.faults import measures
from tests.cluster.faults.checks import CHECKS, wrong
from tests.cluster.faults.history import (
    KEYED,
    NO,
    OK,
    ONCE,
    PLAIN,
    UNKNOWN,
    AnyCall,
    Dead,
    Final,
    Got,
    History,
    Publish,
    Receipt,
    Receive,
    Row,
    Sent,
    Settle,
    Topic,
)
from tests.cluster.faults.run import Outcome, measure
from tests.cluster.faults.scene import Disturbance

TOPICS = [Topic("plain", PLAIN, 0), Topic("keyed", KEYED, 0), Topic("once", ONCE, 1)]
NODE = "http://node"


class Story(Struct):
    """A history and its end. Messages of each topic have uids 10 apart: plain 0…, keyed 100…, once 200…"""

    calls: list[AnyCall]
    final: Final

    def broken(self) -> set[str]:
        """Which checks find something."""
        history = History(TOPICS, self.calls)
        return {check.__name__ for check in CHECKS if list(check(history, self.final))}

    def publish(self, topic: str, number: int = 0) -> Publish:
        return [call for call in self.calls if isinstance(call, Publish) and call.topic == topic][number]

    def receive(self, topic: str, number: int = 0) -> Receive:
        return [call for call in self.calls if isinstance(call, Receive) and call.topic == topic][number]

    def settle(self, topic: str, number: int = 0) -> Settle:
        return [call for call in self.calls if isinstance(call, Settle) and call.topic == topic][number]


def token(number: int, epoch: int = 1) -> str:
    return f"{epoch << 10:08x}{number:08x}" + "0" * 16


def story() -> Story:
    """All is well: of each topic eight messages are published by two calls, received by two, and acked by two.

    Of `plain` the first fails three times and is dead, the second is received twice since its lease ran out.
    """
    calls: list[AnyCall] = []
    final = Final(left={topic.name: 0 for topic in TOPICS})
    for number, topic in enumerate(TOPICS):
        uids = range(number * 100, number * 100 + 80, 10)
        sent = [Sent(uid, f"d{uid}", 0.0, f"k{uid}" if topic.kind == ONCE else None) for uid in uids]
        for half in (0, 1):
            mine = range(half * 4, half * 4 + 4)
            receipts = [Receipt(1000 * number + n, 0, n) for n in mine]
            calls.append(Publish(NODE, topic.name, half, half + 0.5, OK, "", [sent[n] for n in mine], receipts))
        got = [Got(uid, 1000 * number + n, 0, n, 1, 50, f"d{uid}") for n, uid in enumerate(uids)]
        final.rows += [Row(topic.name, 0, one.offset, one.id, one.uid, one.digest) for one in got]
        calls += _consumed(topic, got, final)
    return Story(calls, final)


def _consumed(topic: Topic, got: list[Got], final: Final) -> list[AnyCall]:
    name = topic.name
    if topic.kind != PLAIN:
        return [
            Receive(NODE, name, 10, 10.1, OK, "", got[:4], token(1), 5.0),
            Receive(NODE, name, 10.2, 10.3, OK, "", got[4:], token(2), 5.0),
            Settle(NODE, name, 11, 11.1, OK, "", "ack", token(1), [one.id for one in got[:4]]),
            Settle(NODE, name, 11.2, 11.3, OK, "", "ack", token(2), [one.id for one in got[4:]]),
        ]
    calls: list[AnyCall] = []
    for attempt in (1, 2, 3):
        again = [replace(one, attempt=attempt) for one in got[: 1 if attempt > 2 else 2]]
        begun = 10.0 * attempt
        calls.append(Receive(NODE, name, begun, begun + 0.1, OK, "", again, token(attempt), 5.0))
        calls.append(Settle(NODE, name, begun + 1, begun + 1.1, OK, "", "nack", token(attempt), [got[0].id]))
    calls.append(Settle(NODE, name, 21.5, 21.6, OK, "", "ack", token(2), [got[1].id]))
    final.dead.append(Dead(name, got[0].id, 3))
    calls.append(Receive(NODE, name, 40, 40.1, OK, "", got[2:], token(4), 5.0))
    calls.append(Settle(NODE, name, 41, 41.1, OK, "", "extend", token(4), [one.id for one in got[2:]], [], 5.0))
    calls.append(Settle(NODE, name, 45.5, 45.6, OK, "", "ack", token(4), [one.id for one in got[2:]]))
    return calls


def test_a_true_history_is_told_to_be_one() -> None:
    told = story()
    assert wrong(History(TOPICS, told.calls), told.final) == []


Lie = Callable[[Story], None]
LIES: list[tuple[str, Lie]] = []


def found_by(*checks: str) -> Callable[[Lie], Lie]:
    def plant(lie: Lie) -> Lie:
        LIES.append((" ".join(checks), lie))
        return lie

    return plant


@found_by("lost", "gaps")
def a_message_is_gone(told: Story) -> None:
    del told.final.rows[9]


@found_by("lost", "left")
def a_message_is_never_delivered(told: Story) -> None:
    told.receive("once").got = told.receive("once").got[1:]
    told.settle("once").ids = told.settle("once").ids[1:]


@found_by("phantoms")
def somebody_else_published(told: Story) -> None:
    told.calls.remove(told.publish("once"))


@found_by("phantoms")
def what_was_refused_is_there(told: Story) -> None:
    told.publish("once").outcome = NO


@found_by("doubled", "left")
def a_message_is_there_twice(told: Story) -> None:
    told.final.rows.append(replace(told.final.rows[12], id=1999, offset=8))


@found_by("doubled", "left")
def a_publish_of_unknown_outcome_happened_twice(told: Story) -> None:
    told.publish("keyed", 1).outcome = UNKNOWN
    told.final.rows.append(replace(told.final.rows[12], id=1999, offset=8))


@found_by("repeated")
def a_key_has_two_messages(told: Story) -> None:
    again = told.publish("once")
    receipts = [replace(receipt, id=receipt.id + 500) for receipt in again.receipts]
    told.calls.append(replace(again, begun=2.0, ended=2.5, receipts=receipts))


@found_by("misplaced")
def a_receipt_names_another_place(told: Story) -> None:
    receipts = told.publish("keyed").receipts
    receipts[0] = replace(receipts[0], partition=1)


@found_by("misplaced")
def a_payload_has_changed(told: Story) -> None:
    told.final.rows[3] = replace(told.final.rows[3], digest="other")


@found_by("misplaced")
def a_payload_is_another_when_it_is_delivered(told: Story) -> None:
    got = told.receive("once").got
    got[0] = replace(got[0], digest="other")


@found_by("gaps", "misplaced")
def offsets_have_a_gap(told: Story) -> None:
    told.final.rows[-1] = replace(told.final.rows[-1], offset=8)


@found_by("held_twice")
def two_hold_a_message(told: Story) -> None:
    """The lease that ran out was given out again before its time."""
    told.receive("plain").lasting = 50.0


@found_by("held_twice")
def two_hold_a_message_that_one_has_extended(told: Story) -> None:
    ids = [told.receive("plain").got[1].id]
    told.calls.append(Settle(NODE, "plain", 12, 12.1, OK, "", "extend", token(1), ids, [], 30.0))


@found_by("falling", "stale")
def a_new_owner_begins_with_smaller_tokens(told: Story) -> None:
    for call in told.calls:
        if isinstance(call, Receive | Settle) and call.topic == "plain" and call.token == token(3):
            call.token = token(3, epoch=0)


@found_by("stale")
def a_stale_token_settles(told: Story) -> None:
    told.calls.append(Settle(NODE, "plain", 22, 22.1, OK, "", "reject", token(1), [told.receive("plain").got[1].id]))


@found_by("refused")
def a_holder_is_told_that_he_lost(told: Story) -> None:
    settle = told.settle("keyed")
    told.calls.append(
        replace(settle, begun=10.5, ended=10.6, outcome=NO, code="lease_lost", lost=settle.ids, token=token(1))
    )


@found_by("acked_again", "attempts")
def what_is_acked_comes_back(told: Story) -> None:
    told.calls.append(replace(told.receive("keyed", 1), begun=12.0, ended=12.1, token=token(9)))


@found_by("acked_again")
def what_is_acked_is_dead(told: Story) -> None:
    told.final.dead.append(Dead("plain", told.receive("plain", 3).got[0].id, 3))


@found_by("out_of_order")
def a_message_is_overtaken(told: Story) -> None:
    first, second = told.receive("keyed"), told.receive("keyed", 1)
    first.begun, first.ended, second.begun, second.ended = 10.2, 10.3, 10.0, 10.1


@found_by("out_of_order")
def an_answer_is_not_in_order(told: Story) -> None:
    told.receive("keyed").got.reverse()


@found_by("out_of_order")
def the_urgent_comes_last(told: Story) -> None:
    got = told.receive("plain", 3).got
    got[-1] = replace(got[-1], priority=0)


@found_by("early")
def a_delay_is_cut_short(told: Story) -> None:
    sent = told.publish("plain").sent
    sent[2] = replace(sent[2], delay=40.5)


@found_by("attempts")
def a_message_is_tried_once_more(told: Story) -> None:
    got = told.receive("plain", 3).got
    got[0] = replace(got[0], attempt=4)


@found_by("attempts")
def an_attempt_is_not_counted(told: Story) -> None:
    got = told.receive("plain", 1).got
    got[1] = replace(got[1], attempt=1)


@found_by("attempts")
def a_message_dies_before_its_time(told: Story) -> None:
    told.final.dead[0] = replace(told.final.dead[0], attempts=2)


@found_by("left")
def a_topic_is_not_empty(told: Story) -> None:
    told.final.left["once"] = 3


@found_by("left")
def a_message_is_acked_by_nobody(told: Story) -> None:
    told.settle("keyed").ids = told.settle("keyed").ids[1:]


@found_by("left")
def a_message_dies_twice(told: Story) -> None:
    told.final.dead *= 2


@pytest.mark.parametrize(("checks", "lie"), LIES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_lie_is_found(checks: str, lie: Lie) -> None:
    told = story()
    lie(told)
    assert told.broken() == set(checks.split())


def test_each_check_has_a_lie_that_it_finds() -> None:
    assert {name for checks, _ in LIES for name in checks.split()} == {check.__name__ for check in CHECKS}


# What is no lie: what nobody knows may have happened, or not


def test_what_is_unknown_may_be_there_or_not() -> None:
    for rows in (slice(0, 0), slice(12, 16)):
        told = story()
        told.publish("keyed", 1).outcome = UNKNOWN
        kept = told.final.rows[rows]
        told.final.rows = [*told.final.rows[:12], *kept, *told.final.rows[16:]]
        if not kept:
            told.calls.remove(told.receive("keyed", 1))
        assert told.broken() == set()


def test_what_somebody_unknown_may_hold_is_passed_over_rightly() -> None:
    told = story()
    a_message_is_overtaken(told)
    told.calls.append(Receive(NODE, "keyed", 9.0, 10.0, UNKNOWN, "line_broken", lasting=5.0))
    assert told.broken() == set()


def test_a_call_that_is_repeated_is_answered_as_it_was() -> None:
    told = story()
    told.calls.append(replace(told.settle("plain"), begun=25.0, ended=25.1))
    assert told.broken() == set()


def test_whoever_let_go_may_be_told_that_he_lost() -> None:
    told = story()
    told.settle("keyed").outcome = UNKNOWN
    told.calls.append(replace(told.settle("keyed"), begun=11.5, ended=11.6, outcome=NO, lost=told.settle("keyed").ids))
    assert told.broken() == set()


# Numbers


def test_delivery_is_back_when_a_later_owner_delivers() -> None:
    told = story()
    got = told.receive("keyed").got
    told.calls.append(Receive(NODE, "keyed", 12.0, 14.0, OK, "", got, token(9, epoch=1), 5.0))
    told.calls.append(Receive(NODE, "keyed", 12.0, 16.5, OK, "", got, token(1, epoch=2), 5.0))
    history = History(TOPICS, told.calls)
    assert measures.back_after(history, TOPICS[1:], 12.0) == {"keyed": 4.5, "once": float("inf")}


def test_the_longest_silence_counts_from_and_to_the_bounds() -> None:
    calls: list[AnyCall] = [Publish(NODE, "plain", at, at, outcome) for at, outcome in ((6, OK), (3, NO), (2, OK))]
    assert measures.longest_gap(calls, 0, 7) == 4
    assert measures.longest_gap(calls, 5, 20) == 14
    assert measures.longest_gap([], 5, 20) == 15


@pytest.mark.parametrize(
    ("disturbance", "slow"),
    [
        (Disturbance(1.6, 2.0, []), ""),
        (Disturbance(1.6, 9.0, []), "nothing was published for 7.4 s"),
        (Disturbance(1.6, 9.0, [], silent=TOPICS), ""),
        (Disturbance(1.6, 9.0, [], general=True), ""),
        (Disturbance(2.0, 3.0, TOPICS[1:2], whole=2.0, in_time=8.0), "delivered again after 8.1 s"),
        (Disturbance(2.0, 3.0, TOPICS[1:2], whole=2.0, in_time=9.0), ""),
        (Disturbance(2.0, 3.0, TOPICS[1:2], whole=50.0, in_time=9.0), "delivered again after inf s"),
        (Disturbance(2.0, 3.0, [], complaints=["it stood still"]), "it stood still"),
    ],
)
def test_what_takes_too_long_is_told(disturbance: Disturbance, slow: str) -> None:
    """Of the story something is published until 1.5, and the keyed are received from 10 on."""
    outcome = Outcome("fault", 0)
    measure(outcome, History(TOPICS, story().calls), disturbance, 0.0)
    assert [told.split(";")[0] for told in outcome.slow] == ([slow] if slow else [])
