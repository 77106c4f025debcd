"""An idempotency key is claimed with its frame: of two that use it one is stored, of the other nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mqueue.log.postgres.appends import Appended, Sheet, append
from mqueue.log.postgres.claims import Used, forget, lookup, sweep
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.problems import Taken
from tests.postgres.shards import NOON_MS, frames_in, sheet, together

KEY, OTHER, THIRD = (name * 16 for name in (b"k", b"o", b"t"))
DIGEST = b"d" * 16
HOUR_MS = 3_600_000


def keyed(topic: int, *keys: bytes, partition: int = 0) -> Sheet:
    """Row 0 has no key, the others have these."""
    claims = tuple((row, key, DIGEST, 4, 77) for row, key in enumerate(keys, 1))
    return sheet(topic, partition, len(keys) + 1, keys=claims)


def test_a_key_tells_where_its_message_is(link: Link, topic: int) -> None:
    append(link, [sheet(topic)], NOON_MS)
    one = keyed(topic, KEY, OTHER)
    append(link, [sheet(topic, 1), one], NOON_MS + 1)
    assert lookup(link, topic, [KEY, OTHER, THIRD]) == {
        KEY: Used(one.base_id + 1, 0, 4, DIGEST, 4, 77, NOON_MS + 1),
        OTHER: Used(one.base_id + 2, 0, 5, DIGEST, 4, 77, NOON_MS + 1),
    }
    assert lookup(link, topic + 1, [KEY]) == {}
    assert lookup(link, topic, []) == {}


def test_a_key_that_is_taken_stops_the_whole_call(link: Link, topic: int) -> None:
    append(link, [keyed(topic, KEY)], NOON_MS)
    with pytest.raises(Taken):
        append(link, [sheet(topic, 2), keyed(topic, OTHER), keyed(topic, KEY, partition=1)], NOON_MS)
    assert frames_in(link) == 1
    assert list(lookup(link, topic, [KEY, OTHER])) == [KEY]


def test_a_key_twice_in_one_call_is_taken(link: Link, topic: int) -> None:
    with pytest.raises(Taken):
        append(link, [keyed(topic, KEY), keyed(topic, KEY, partition=1)], NOON_MS)
    assert frames_in(link) == 0


def test_a_claim_whose_window_is_over_is_replaced(link: Link, topic: int) -> None:
    windows = {topic: HOUR_MS, topic + 1: 1}
    append(link, [keyed(topic, KEY)], NOON_MS, windows=windows)
    with pytest.raises(Taken):
        append(link, [keyed(topic, KEY)], NOON_MS + HOUR_MS - 1, windows=windows)
    with pytest.raises(Taken):
        append(link, [keyed(topic, KEY)], NOON_MS + HOUR_MS)
    later = keyed(topic, OTHER, KEY)
    assert append(link, [later], NOON_MS + HOUR_MS, windows=windows) == [Appended(2, NOON_MS + HOUR_MS)]
    assert lookup(link, topic, [KEY])[KEY] == Used(later.base_id + 2, 0, 4, DIGEST, 4, 77, NOON_MS + HOUR_MS)


def test_a_frame_that_is_there_already_claims_nothing(link: Link, topic: int) -> None:
    one = keyed(topic, KEY)
    append(link, [one], NOON_MS)
    assert append(link, [one, keyed(topic, OTHER)], NOON_MS, once=True) == [
        Appended(-1, NOON_MS),
        Appended(2, NOON_MS),
    ]
    assert len(lookup(link, topic, [KEY, OTHER])) == 2


def test_of_four_that_use_a_key_at_once_one_gets_it(link: Link, links: Callable[[], Link], topic: int) -> None:
    def attempt(own: Link, partition: int) -> Callable[[], int]:
        def run() -> int:
            won = 0
            for turn in range(10):
                keys = [turn.to_bytes(16, "big"), (turn + 100).to_bytes(16, "big")]
                try:
                    append(own, [keyed(topic, *keys[:: (-1) ** partition], partition=partition)], NOON_MS)
                    won += 1
                except Taken:
                    pass
            return won

        return run

    assert sum(together([attempt(links(), partition) for partition in range(4)])) == 10
    assert frames_in(link) == 10


def test_claims_are_forgotten_one_by_one_or_when_they_are_old(link: Link, topic: int) -> None:
    append(link, [keyed(topic, KEY, OTHER)], NOON_MS)
    append(link, [keyed(topic, THIRD)], NOON_MS + 5)
    used = lookup(link, topic, [KEY])[KEY]
    forget(link, topic, {KEY: used.id + 1, OTHER: used.id})
    assert set(lookup(link, topic, [KEY, OTHER])) == {KEY, OTHER}, "those are of other messages"
    forget(link, topic, {KEY: used.id})
    assert set(lookup(link, topic, [KEY, OTHER, THIRD])) == {OTHER, THIRD}
    assert sweep(link, topic, NOON_MS + 5) == 1
    assert sweep(link, topic, NOON_MS + 5) == 0
    assert set(lookup(link, topic, [KEY, OTHER, THIRD])) == {THIRD}
    append(link, [keyed(topic, KEY, OTHER)], NOON_MS + 5)
    assert [sweep(link, topic, NOON_MS + 6, limit=2) for _ in range(3)] == [2, 1, 0]
