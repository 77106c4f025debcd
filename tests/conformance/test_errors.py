"""Errors: a stable code, an HTTP status, whether to try again, whether something was done."""

from __future__ import annotations

import pytest

import mqueue

TABLE = [
    (mqueue.Refused, "refused", 400, False),
    (mqueue.TooLarge, "too_large", 413, False),
    (mqueue.BadName, "bad_name", 400, False),
    (mqueue.BadPriority, "bad_priority", 400, False),
    (mqueue.BadTime, "bad_time", 400, False),
    (mqueue.BadFrame, "bad_frame", 400, False),
    (mqueue.BadSetting, "bad_setting", 400, False),
    (mqueue.Unauthorized, "unauthorized", 401, False),
    (mqueue.Forbidden, "forbidden", 403, False),
    (mqueue.NotFound, "not_found", 404, False),
    (mqueue.LeaseLost, "lease_lost", 409, False),
    (mqueue.Conflict, "conflict", 409, False),
    (mqueue.Expired, "expired", 410, False),
    (mqueue.QuotaExceeded, "quota_exceeded", 429, True),
    (mqueue.QueueFull, "queue_full", 429, True),
    (mqueue.Corrupt, "corrupt", 500, False),
    (mqueue.Backpressure, "backpressure", 503, True),
    (mqueue.ShardDown, "shard_down", 503, True),
    (mqueue.Unavailable, "unavailable", 503, True),
    (mqueue.Closed, "closed", 503, False),
    (mqueue.DiskFull, "disk_full", 507, True),
]


@pytest.mark.parametrize(("kind", "code", "status", "retryable"), TABLE)
def test_what_an_error_carries(kind, code: str, status: int, retryable: bool) -> None:
    error = kind("sentence")
    assert (error.code, error.status, error.retryable, error.applied) == (code, status, retryable, False)
    assert str(error) == "sentence"
    assert isinstance(error, mqueue.Error)


def test_what_is_refused_is_refused() -> None:
    for kind in (
        mqueue.TooLarge,
        mqueue.BadName,
        mqueue.BadPriority,
        mqueue.BadTime,
        mqueue.BadFrame,
        mqueue.BadSetting,
    ):
        assert issubclass(kind, mqueue.Refused)
    for kind in (mqueue.Backpressure, mqueue.ShardDown, mqueue.Closed):
        assert issubclass(kind, mqueue.Unavailable)


def test_a_sentence_names_the_value_and_the_limit(q) -> None:
    for call, words in (
        (lambda: q.publish("t", b"x" * 1_048_577), ("1048577", "1048576")),
        (lambda: q.publish("a b", b"x"), ("'a b'", "[A-Za-z0-9._-]")),
        (lambda: q.publish("t", b"x", priority="urgent"), ("'urgent'", "critical")),
        (lambda: q.publish("t", b"x", delay="soon"), ("'soon'", "30s")),
        (lambda: q.receive("t", limit=10_001), ("10001", "10000")),
        (lambda: q.receive("t", wait="61s"), ("61s", "60s")),
        (lambda: q.stats("nowhere"), ("'nowhere'", "'default'")),
    ):
        with pytest.raises(mqueue.Error) as caught:
            call()
        assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_huge_value_does_not_make_a_huge_sentence(q) -> None:
    for call in (
        lambda: q.publish("x" * 1_000_000, b"x"),
        lambda: q.publish("t", b"x", priority="x" * 1_000_000),
        lambda: q.publish("t", b"x", delay="x" * 1_000_000),
        lambda: q.publish("t", b"x", headers={"a": ["x"] * 100_000}),
        lambda: q.publish("t", b"x", idempotency_key="x" * 1_000_000),
        lambda: q.configure("t", overflow="x" * 1_000_000),
        lambda: q.receive("t", limit="x" * 1_000_000),
        lambda: q.receive("t", mode="x" * 1_000_000),
    ):
        with pytest.raises(mqueue.Refused) as caught:
            call()
        assert len(str(caught.value)) < 1000
