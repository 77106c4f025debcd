"""What can be done with scheduled messages while a million of them wait: list, turn pages, count, cancel, move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import pyarrow as pa

from benchmarks.disk import home
from benchmarks.harness import Profile, Result
from benchmarks.memory_broker import TOPIC
from mqueue import Broker
from mqueue.testing import ManualClock

_CALL = 10_000
_TIMES = 100
_MOST_MS = 5.0
SPANS = {"a day": 86_400_000, "an hour": 3_600_000}


_RATE = 10_000
_SECONDS = 3


def capped(profile: Profile) -> Iterator[Result]:
    """All due at one time, or each at a millisecond of its own in the same minute; so many a second may be visible."""
    for spread, span_ms in (("one time", 1), ("one minute", 60_000)):
        clock = ManualClock()
        with Broker(clock=clock) as broker:
            broker.configure(TOPIC, due_rate=_RATE, partitions=6)
            _schedule(broker, profile.bulk, span_ms)
            clock.advance("1d")
            broker.stats(TOPIC)
            clock.advance("1m")
            began = perf_counter()
            broker.stats(TOPIC)
            yield Result(f"due at {spread}: a minute at once", (perf_counter() - began) * 1000, "ms", "<=", 60_000.0)
            yield from _capped(broker, clock, f"due at {spread}")


def _capped(broker: Broker, clock: ManualClock, label: str) -> Iterator[Result]:
    before = broker.stats(TOPIC).scheduled
    taken = []
    for _ in range(_SECONDS * 10):
        clock.advance("100ms")
        began = perf_counter()
        broker.stats(TOPIC)
        taken.append((perf_counter() - began) * 1000)
    shown = before - broker.stats(TOPIC).scheduled
    portion = _RATE // 10
    yield Result(f"{label}: a tenth of a second", max(taken), "ms", "<=", 100.0, note=f"up to {portion} messages each")
    if before > _SECONDS * _RATE:
        yield Result(f"{label}: rate / due_rate", shown / _SECONDS / _RATE, "×", "<=", 1.1)
    page: list[Any] = broker.scheduled(TOPIC, 100)
    waiting = iter([message.id for message in broker.scheduled(TOPIC, _TIMES)])
    steps: dict[str, Callable[[int], object]] = {
        "first page of 100": lambda _: broker.scheduled(TOPIC, 100),
        "next page of 100": lambda _: broker.scheduled(TOPIC, 100, after=page[-1]),
        "count": lambda _: broker.stats(TOPIC).scheduled,
        "cancel": lambda _: broker.cancel(next(waiting)),
    }
    for name, do in steps.items() if before > _SECONDS * _RATE else ():
        yield Result(f"{label}: {name}", _median_ms(do), "ms", "<=", _MOST_MS)


def _median_ms(do: Callable[[int], object]) -> float:
    taken = []
    for number in range(_TIMES):
        began = perf_counter()
        do(number)
        taken.append(perf_counter() - began)
    return sorted(taken)[_TIMES // 2] * 1000


def listing(profile: Profile) -> Iterator[Result]:
    """In memory and on disk, due over a day or all in one hour, each at a millisecond of its own."""
    for where in ("memory", "disk"):
        for span, span_ms in SPANS.items():
            with TemporaryDirectory(dir=home()) as folder, Broker(folder if where == "disk" else None) as broker:
                yield from _listing(broker, f"{where}, due within {span}", profile.bulk, span_ms)


def _listing(broker: Broker, label: str, count: int, span_ms: int) -> Iterator[Result]:
    ids = _schedule(broker, count, span_ms)
    began = perf_counter()
    page: list[Any] = broker.scheduled(TOPIC, 100)
    yield Result(f"{label}: first page", (perf_counter() - began) * 1000, "ms", note=f"{len(ids):,} scheduled")

    def turn(_: int) -> None:
        page[:] = broker.scheduled(TOPIC, 100, after=page[-1])

    steps: dict[str, Callable[[int], object]] = {
        "next page of 100": turn,
        "count": lambda _: broker.stats(TOPIC).scheduled,
        "cancel": lambda number: broker.cancel(ids[number]),
        "reschedule": lambda number: broker.reschedule(ids[_TIMES + number], delay="2d"),
        "first page of 100": lambda _: broker.scheduled(TOPIC, 100),
    }
    for name, do in steps.items():
        yield Result(f"{label}: {name}", _median_ms(do), "ms", "<=", _MOST_MS)


def _schedule(broker: Broker, count: int, span_ms: int) -> list[int]:
    """Messages that are due from a day ahead on, within a span; their ids in no order."""
    chance = Random(1)
    start = broker._engine.clock.now() + 86_400_000
    ids: list[int] = []
    for _ in range(0, count, _CALL):
        due = pa.array([start + chance.randrange(span_ms) for _ in range(_CALL)], pa.timestamp("ms", "UTC"))
        table = pa.table({"payload": pa.array([b"x" * 100] * _CALL, pa.binary()), "deliver_at": due})
        ids += [receipt.id for receipt in broker.publish_arrow(TOPIC, table)]
    chance.shuffle(ids)
    return ids
