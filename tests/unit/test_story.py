"""The headers of dead messages as columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import mqueue
from mqueue.testing import ManualClock
from mqueue.wire.arrow import HEADERS
from mqueue.wire.story import story_columns

COLUMNS = ["source_topic", "group", "attempts", "reason", "error"]


def columns(*rows: list[tuple[str, Any]] | None) -> list[tuple[Any, ...]]:
    found = story_columns(pa.array(rows, HEADERS))
    assert list(found) == COLUMNS
    assert [column.type for column in found.values()] == [
        pa.string(),
        pa.string(),
        pa.int32(),
        pa.string(),
        pa.string(),
    ]
    return list(zip(*(column.to_pylist() for column in found.values()), strict=True))


def test_the_dead_of_a_broker() -> None:
    clock = ManualClock()
    with mqueue.Broker(clock=clock, max_retries=1, dlq_expired=True) as q:
        q.publish("t", b"rejected", headers={"x-error": "mine", "colour": "red"})
        q.receive("t", group="g")[0].reject("no such place: Köln")
        q.publish("t", b"failed")
        for _ in range(2):
            q.receive("t", group="g")[0].nack(error="boom")
            clock.advance("10m")
        q.publish("t", b"expired", ttl="1s")
        clock.advance("2s")
        q.topics()
        [batch] = q.scan_arrow("t.dlq")
        found = story_columns(batch.column("headers"))
    assert list(zip(*(found[name].to_pylist() for name in COLUMNS), strict=True)) == [
        ("t", "g", 1, "rejected", "no such place: Köln"),
        ("t", "g", 2, "max_retries", "boom"),
        ("t", None, 0, "expired", "expired"),
    ]


def test_headers_of_strangers() -> None:
    nothing = (None,) * 5
    assert columns(None, [], [("colour", b"red")]) == [nothing] * 3
    assert columns([("x-attempts", b"many"), ("x-group", b"g")], None) == [(None, "g", None, None, None), nothing]
    assert columns([("x-attempts", b"99999999999999")], [("x-attempts", b"-1")], [("x-attempts", b"")]) == [nothing] * 3
    assert columns([("x-error", b"\xff!")], [("x-error", b"plain")]) == [
        (None, None, None, None, "\ufffd!"),
        (None, None, None, None, "plain"),
    ]
    assert columns([("x-reason", b"a"), ("x-reason", b"b")])[0][3] == "b"
    assert columns([("x-reason", None)])[0][3] is None


def test_a_slice_and_nothing() -> None:
    headers = pa.array([[("x-group", b"%d" % n)] if n % 3 else None for n in range(100)], HEADERS)
    found = story_columns(headers.slice(10, 50))["group"].to_pylist()
    assert found == [str(n) if n % 3 else None for n in range(10, 60)]
    assert columns() == []
    assert story_columns(pa.array([None, None], HEADERS))["error"].to_pylist() == [None, None]
