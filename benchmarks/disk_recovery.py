"""Opening a data directory, cold, in a new process; finding something in a large log; what waits for a checkpoint."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from statistics import median
from threading import Thread
from time import perf_counter, sleep, time
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from benchmarks.disk import STORAGE, bare_read, chill, scratch
from benchmarks.disk_depth import fill_fast
from benchmarks.harness import Profile, Result
from benchmarks.memory_broker import BATCH, PAYLOADS, TABLES, TOPIC
from mqueue import Broker
from mqueue.log.segments.log import NOTHING

MB = 1_000_000
_YEAR_MS = 365 * 24 * 3600 * 1000


def deep(profile: Profile) -> Iterator[Result]:
    """A deep queue of batches of 1000: opened with its checkpoint and without; then read, found in and traced in."""
    with scratch() as directory:
        data = directory / "data"
        few = max(1, profile.rounds // 3)
        with Broker(data, storage=STORAGE) as broker:
            broker.create_group(TOPIC, "default")
            fill_fast(broker, profile.depth)
        yield from _open("with its checkpoint", data, few, 1.0)
        with Broker(data, storage=replace(STORAGE, cache_bytes=0)) as broker:
            yield from _cold_reads(broker, data, few)
            yield from _looks(broker, profile)
        forget(data)
        yield from _open("without checkpoint and indexes", data, few, 5.0)


def forget(data: Path) -> None:
    """Remove what only makes opening quicker."""
    for path in [*data.glob("checkpoint-*"), *data.glob("seg-*.index")]:
        path.unlink()


def _open(label: str, data: Path, rounds: int, most: float | None = None) -> Iterator[Result]:
    found, bare = [], []
    for _ in range(rounds):
        bare.append(bare_read(data))
        size = chill(data)
        found.append(reopened(data))
    seconds = [one["seconds"] for one in found]
    grown = median(one["grown"] for one in found)
    note = f"{found[0]['depth']:,} messages, {size / MB:.0f} MB; read bare in {min(bare):.2g} s"
    yield Result(f"open {label}", min(seconds), "s", "<" if most else "", most, note=note, samples=seconds)
    yield Result(f"open {label}: memory", max(grown, 1) / MB, "MB")


def reopened(data: Path) -> dict[str, Any]:
    words = [sys.executable, "-m", "benchmarks.reopen", str(data)]
    done = subprocess.run(words, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def _cold_reads(broker: Broker, data: Path, rounds: int) -> Iterator[Result]:
    """scan_arrow through everything, nothing of it in memory."""
    rates, ratios = [], []
    for _ in range(rounds):
        bare = bare_read(data)
        size = sum(path.stat().st_size for path in data.glob("seg-*.log"))
        chill(data)
        started = perf_counter()
        rows = sum(batch.num_rows for batch in broker.scan_arrow(TOPIC))
        taken = perf_counter() - started
        assert rows
        rates.append(size / MB / taken)
        ratios.append(taken / bare)
    yield Result("scan_arrow, cold", max(rates), "MB/s", samples=rates)
    yield Result("scan_arrow, cold / bare read", median(ratios), "×", samples=ratios)


def _looks(broker: Broker, profile: Profile) -> Iterator[Result]:
    """trace() of messages anywhere in the log, and finding them by id."""
    for _ in range(10):
        broker.ack(broker.receive(TOPIC, BATCH // 10))
    chance = Random(11)
    offsets = [chance.randrange(profile.depth // BATCH * BATCH) for _ in range(profile.rounds * 3)]
    ids = [next(broker.scan(TOPIC, offset)).id for offset in offsets]
    inside, log = _inside(broker), broker._engine.store.log

    def find(id: int) -> object:
        with inside:
            return log.find(id)

    yield _milliseconds("find by id", ids, find)
    yield _milliseconds("trace()", ids, broker.trace)
    first = next(broker.scan(TOPIC, 0)).id
    yield _milliseconds("trace(), of one that was acked", [first] * profile.rounds, broker.trace)


def _milliseconds(label: str, things: list[int], do: Callable[[int], object]) -> Result:
    taken = []
    for thing in things:
        started = perf_counter()
        do(thing)
        taken.append((perf_counter() - started) * 1000)
    return Result(label, median(taken), "ms", note=f"slowest {max(taken):.3g} ms", samples=taken)


def alone(profile: Profile) -> Iterator[Result]:
    """Messages each in a frame of its own: the most that a log of its size can hold."""
    with scratch() as directory:
        data = directory / "data"
        few = max(1, profile.rounds // 3)
        with Broker(data, storage=STORAGE) as broker:
            broker.create_group(TOPIC, "default")
            _publish_alone(broker, profile.frames)
        yield from _open("single messages", data, few)
        forget(data)
        yield from _open("single messages, without checkpoint", data, 1)


def _inside(broker: Broker) -> Any:
    """The lock of the log, which the upkeep in the background takes too; leaving it waits for nothing."""
    assert broker._engine.gate is not None
    return broker._engine.gate.at(NOTHING)


def _publish_alone(broker: Broker, count: int) -> None:
    """As if each message had been durable before the next came; without the wait."""
    inside, log = _inside(broker), broker._engine.store.log
    topic = broker._engine.known_topic("default", TOPIC).id
    for number in range(1, count + 1):
        receipt = broker.publish(TOPIC, PAYLOADS[0], durability="memory")
        with inside:
            frame = log.frame(topic, 0, receipt.offset)
            assert frame is not None
            log.seal(frame)
        if number % BATCH == 0:
            broker.publish(TOPIC, PAYLOADS[0])


def scheduled(profile: Profile) -> Iterator[Result]:
    """Messages scheduled at distinct times over a year."""
    with scratch() as directory:
        data = directory / "data"
        few = max(1, profile.rounds // 3)
        now = int(time() * 1000)
        times = Random(7).sample(range(now + 3_600_000, now + _YEAR_MS), profile.frames)
        with Broker(data, storage=STORAGE) as broker:
            broker.create_group(TOPIC, "default")
            payload = TABLES[False][0].column("payload")
            for start in range(0, profile.frames // BATCH * BATCH, BATCH):
                due = pa.array(times[start : start + BATCH], pa.int64())
                batch = pa.RecordBatch.from_arrays([payload, due], ["payload", "deliver_at"])
                broker.publish_arrow(TOPIC, batch, durability="memory")
        yield from _open("scheduled", data, few)
        forget(data)
        yield from _open("scheduled, without checkpoint", data, 1)


def checkpoint_pause(profile: Profile) -> Iterator[Result]:
    """The longest publish while a checkpoint of many topics is taken, against the longest while none is."""
    storage = replace(STORAGE, checkpoint_seconds=3600)  # none but those that are asked for
    with scratch() as directory, Broker(directory / "data", storage=storage) as broker:
        names = [f"topic-{number}" for number in range(min(1000, profile.topics))]
        for name in names:
            broker.publish(name, PAYLOADS[0], durability="memory")
            broker.create_group(name, "default")
        for durability in ("memory", "fsync"):
            pairs = [_longest_pair(broker, names, durability) for _ in range(min(5, profile.rounds))]
            paused, quiet = [one for one, _ in pairs], [two for _, two in pairs]
            note = f"median {median(paused):.3g} ms; without a checkpoint {min(quiet):.3g} ms"
            yield Result(f"longest publish, {durability}", min(paused), "ms", note=note, samples=paused)


def _longest_pair(broker: Broker, names: list[str], durability: str) -> tuple[float, float]:
    upkeep: Any = broker._engine.upkeep
    for name in names:
        broker.publish(name, PAYLOADS[0], durability="memory")
    upkeep._settle()
    started = perf_counter()
    with_it = _longest(broker, durability, upkeep.save_points)
    lasting = perf_counter() - started
    return with_it, _longest(broker, durability, lambda: sleep(lasting))


def _longest(broker: Broker, durability: str, beside: Callable[[], object]) -> float:
    """The longest publish, in milliseconds, while something else goes on; one at least, if that is over at once."""
    thread = Thread(target=beside)
    longest = 0.0
    thread.start()
    while not longest or thread.is_alive():
        started = perf_counter()
        broker.publish(TOPIC, PAYLOADS[0], durability=durability)
        longest = max(longest, perf_counter() - started)
    thread.join()
    return longest * 1000
