"""What is told of the dead."""

from __future__ import annotations

from mqueue.server.amqp.deaths import after_death, goes_round


def test_each_queue_and_reason_has_an_entry_the_last_first() -> None:
    once = after_death({"headers": {"own": 1}, "expiration": "5"}, "q", "expired", "x", ["k"], 100)
    assert once["expiration"] is None
    assert once["headers"]["own"] == 1
    assert once["headers"]["x-death"][0] == {
        "reason": "expired",
        "queue": "q",
        "exchange": "x",
        "routing-keys": ["k"],
        "count": 1,
        "time": 100,
        "original-expiration": "5",
    }
    twice = after_death(once, "r", "rejected", "y", ["l"], 200)
    again = after_death(twice, "q", "expired", "x", ["k"], 300)
    deaths = [(d["queue"], d["reason"], d["count"], d["time"]) for d in again["headers"]["x-death"]]
    assert deaths == [("q", "expired", 2, 300), ("r", "rejected", 1, 200)]
    assert again["headers"]["x-first-death-queue"] == "q"
    assert again["headers"]["x-last-death-exchange"] == "x"
    assert twice["headers"]["x-last-death-reason"] == "rejected"


def test_only_what_nobody_rejected_goes_round() -> None:
    expired = after_death({}, "q", "expired", "", ["q"], 1)["headers"]
    assert goes_round(expired, "q")
    assert not goes_round(expired, "other")
    rejected = after_death({"headers": expired}, "r", "rejected", "", ["r"], 2)["headers"]
    assert not goes_round(rejected, "q")
    assert not goes_round({"x-death": "not a list"}, "q")
