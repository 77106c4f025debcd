"""What watches over `make chaos` finds what it is to find."""

from __future__ import annotations

from tests.cluster.chaos.mischief import MISCHIEFS
from tests.cluster.chaos.watching import LIMITS, Use, too_much, wrong_lately
from tests.cluster.faults.history import OK, PLAIN, Got, History, Receive, Settle, Topic, now

AGO = 60.0


def receive(token: str, ago: float) -> Receive:
    at = now() - ago
    got = [Got(1, 1, 0, 0, 1, 50, "")]
    return Receive("", "t", at, at + 0.1, OK, got=got, token=token, lasting=10.0)


def ack(token: str, ago: float) -> Settle:
    at = now() - ago
    return Settle("", "t", at, at + 0.1, OK, verb="ack", token=token, ids=[1])


def lately(*calls: Receive | Settle) -> list[str]:
    return wrong_lately(History([Topic("t", PLAIN, 0)], list(calls)))


def test_a_message_in_two_hands_is_seen() -> None:
    assert lately(receive("1", AGO), receive("2", AGO - 15)) == []
    assert any("held by two" in line for line in lately(receive("1", AGO), receive("2", AGO - 5)))


def test_one_that_comes_back_after_its_ack_is_seen() -> None:
    assert lately(receive("1", AGO), ack("1", AGO - 1)) == []
    found = lately(receive("1", AGO), ack("1", AGO - 1), receive("2", AGO - 15))
    assert any("after they were acked" in line for line in found)


def test_what_may_not_be_known_yet_is_not_judged() -> None:
    assert lately(receive("1", 10), receive("2", 5)) == []


def test_what_nodes_use_has_limits() -> None:
    assert too_much(LIMITS) == []
    assert len(too_much(Use(1e6, 10_000, 10_000))) == 3


def test_the_mischiefs_are_told_apart_by_their_names() -> None:
    assert len({mischief.name for mischief in MISCHIEFS}) == len(MISCHIEFS)
