"""The circuit breaker, and what may wait at a node: no server, no clock."""

from __future__ import annotations

import pytest

from mqueue.cluster.breaker import FAILURES_MAX, PAUSE_SECONDS, Breaker
from mqueue.cluster.buffer import Buffer
from mqueue.cluster.meters import Meters
from mqueue.log.postgres.batch import Batch, Promise
from mqueue.model.errors import Backpressure, ShardDown


@pytest.fixture
def meters() -> Meters:
    return Meters()


@pytest.fixture
def breaker(meters: Meters) -> Breaker:
    return Breaker(meters, "localhost:5432/mq")


def opened(breaker: Breaker, now: float) -> None:
    for _ in range(FAILURES_MAX):
        breaker.admit(now)
        breaker.failed(now)


def refused(breaker: Breaker, now: float) -> ShardDown:
    with pytest.raises(ShardDown) as told:
        breaker.admit(now)
    return told.value


def test_it_opens_after_failures_in_a_row(breaker: Breaker, meters: Meters) -> None:
    for _ in range(3):
        for _ in range(FAILURES_MAX - 1):
            breaker.failed(0)
        breaker.worked()
    breaker.admit(0)
    assert (meters.breaker, meters.breaker_opened) == ("closed", 0)
    opened(breaker, 5)
    assert (meters.breaker, meters.breaker_opened) == ("open", 1)


def test_while_it_is_open_nobody_is_let_in_and_all_are_told_when_to_come(breaker: Breaker) -> None:
    opened(breaker, 100)
    told = refused(breaker, 104)
    assert (told.code, told.status, told.applied, told.retryable) == ("shard_down", 503, False, True)
    assert told.retry_after == PAUSE_SECONDS - 4
    assert "localhost:5432/mq" in told.message
    assert breaker.open


def test_then_one_may_try(breaker: Breaker, meters: Meters) -> None:
    opened(breaker, 0)
    breaker.admit(PAUSE_SECONDS)
    assert meters.breaker == "half_open"
    assert not breaker.open
    refused(breaker, PAUSE_SECONDS)
    breaker.worked()
    for _ in range(3):
        breaker.admit(PAUSE_SECONDS)
    assert breaker.closed


def test_a_try_that_fails_begins_the_pause_again(breaker: Breaker, meters: Meters) -> None:
    opened(breaker, 0)
    breaker.admit(12)
    breaker.failed(13)
    assert meters.breaker_opened == 2
    refused(breaker, 13 + PAUSE_SECONDS - 0.1)
    breaker.admit(13 + PAUSE_SECONDS)


def test_who_was_to_try_and_did_not_leaves_it_to_the_next(breaker: Breaker) -> None:
    opened(breaker, 0)
    breaker.admit(PAUSE_SECONDS)
    breaker.gave_up()
    breaker.admit(PAUSE_SECONDS)
    breaker.worked()
    breaker.gave_up()
    assert breaker.closed


def test_failures_that_come_late_do_not_make_the_pause_longer(breaker: Breaker, meters: Meters) -> None:
    opened(breaker, 0)
    breaker.failed(9)
    assert meters.breaker_opened == 1
    breaker.admit(PAUSE_SECONDS)


def promise(batch: Batch, size: int) -> Promise:
    return batch.add(1, 0, b"x" * size, None, 1 + sum(one.frame.count for one in batch.promises), 0)


def test_what_waits_is_counted_and_refused_beyond_its_limits(meters: Meters) -> None:
    buffer = Buffer(meters, 2, 1_000)
    batch = Batch(1)
    buffer.check()
    first = promise(batch, 10)
    buffer.hold([first])
    buffer.check()
    assert promise(batch, 10) is first
    buffer.hold([first])
    assert meters.buffered_messages == 2
    with pytest.raises(Backpressure) as told:
        buffer.check()
    assert (told.value.code, told.value.status, told.value.applied) == ("backpressure", 503, False)
    assert told.value.retry_after is not None
    assert meters.refused == 1
    buffer.release([first])
    assert (meters.buffered_messages, meters.buffered_bytes) == (0, 0)
    large = promise(Batch(2), 2_000)
    buffer.hold([large])
    with pytest.raises(Backpressure):
        buffer.check()
    buffer.release([large, first])
    buffer.check()
    assert (meters.buffered_messages, meters.buffered_bytes) == (0, 0)


def test_when_another_server_takes_its_place_one_may_try_at_once(breaker: Breaker, meters: Meters) -> None:
    opened(breaker, 0)
    breaker.renewed()
    assert not breaker.rests(0)
    breaker.admit(0)
    assert meters.breaker == "half_open"
