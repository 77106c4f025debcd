"""A message in hand: `with m`, and what it shows."""

from __future__ import annotations

import pytest

import mqueue
from tests.conformance.steps import receive_one, refused, take


@pytest.fixture
def m(q):
    q.publish("t", b"x")
    return receive_one(q, "t")


def test_with_acks_at_the_end(q, m) -> None:
    with m as same:
        assert same is m
        assert q.stats("t").leased == 1
    assert q.stats("t").acked == 1


def test_with_nacks_on_an_exception(q, m, clock) -> None:
    with pytest.raises(ZeroDivisionError), m:
        1 / 0  # noqa: B018
    assert q.stats("t").waiting == 1
    assert "ZeroDivisionError: division by zero" in str(q.trace(m))
    clock.advance("2s")
    assert receive_one(q, "t").attempt == 2


@pytest.mark.parametrize("verb", ["ack", "nack", "reject", "release"])
def test_with_does_nothing_if_settled_inside(q, m, verb: str) -> None:
    with m:
        getattr(m, verb)()
    stats = q.stats("t").groups["default"]
    assert {"ack": stats.acked, "nack": stats.waiting, "reject": stats.dead, "release": stats.ready}[verb] == 1


def test_with_and_an_exception_after_the_ack(q, m) -> None:
    with pytest.raises(ZeroDivisionError), m:  # noqa: PT012
        m.ack()
        1 / 0  # noqa: B018
    assert q.stats("t").acked == 1


def test_with_settled_inside_by_the_broker(q, m) -> None:
    with m:
        q.nack([m])
    assert q.stats("t").waiting == 1


def test_with_extended_inside(q, m, clock) -> None:
    with m:
        m.extend("1h")
        clock.advance("30m")
    assert q.stats("t").acked == 1


def test_with_a_lost_lease_tells(q, m, clock) -> None:
    with refused(mqueue.LeaseLost), m:
        clock.advance("30s")
    assert take(q, "t") == [b"x"]


def test_with_an_exception_and_a_lost_lease_shows_the_exception(q, m, clock) -> None:
    with pytest.raises(ZeroDivisionError), m:  # noqa: PT012
        clock.advance("30s")
        1 / 0  # noqa: B018
    assert take(q, "t") == [b"x"]


def test_text_that_is_none(q) -> None:
    q.publish("t", b"\xff")
    with pytest.raises((UnicodeDecodeError, mqueue.Refused)):
        receive_one(q, "t").text()


def test_it_can_be_printed(q, m) -> None:
    assert str(m.id) in repr(m)
    q.publish("t", b"y" * 100_000)
    assert len(repr(receive_one(q, "t"))) < 500


def test_a_receipt_or_a_message_will_do_for_an_id(q) -> None:
    receipt = q.publish("t", b"x")
    message = receive_one(q, "t")
    assert q.trace(receipt) == q.trace(message) == q.trace(receipt.id)
    assert q.explain(receipt) == q.explain(message) == q.explain(receipt.id)
