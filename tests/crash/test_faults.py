"""A disk that fails: full, broken, or writing less than it was given. What was answered stays, what was not is whole or
not there at all, and nothing goes on as if nothing had happened.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mqueue import Broker, Error, Storage
from mqueue.model.errors import DiskFull, Poisoned
from mqueue.testing import ManualClock
from mqueue.testing.disk import SimDisk
from tests.simulation.answers import Answers
from tests.simulation.judge import Judge
from tests.simulation.recall import recall, tiny
from tests.simulation.record import Record
from tests.simulation.world import World, small

KIB = 1024
ROOMY = 1 << 40


@pytest.fixture(autouse=True)
def _quick() -> Iterator[None]:
    with tiny(), recall():
        yield


def fill(broker: Broker, rng: Random, known: dict[int, bytes]) -> int:
    """Publish until there is no room; how often that went well."""
    for number in range(10_000):
        payload = rng.randbytes(rng.choice([10, 300, 1_500]))
        try:
            known[broker.publish("t", payload).id] = payload
        except DiskFull:
            return number
    raise AssertionError("the disk is never full")


def drained(broker: Broker) -> dict[int, bytes]:
    """All that is left for the group, acked as it comes."""
    found: dict[int, bytes] = {}
    while messages := broker.receive("t", 500):
        found |= {message.id: message.payload for message in messages}
        broker.ack(messages)
    return found


def settle_some(broker: Broker, known: dict[int, bytes], count: int) -> None:
    """With no room for anything new, what is there can be worked on and done with."""
    for message in broker.receive("t", count):
        assert known.pop(message.id) == message.payload
        message.ack()


def test_a_hundred_times_full_and_free_again() -> None:
    rng, disk = Random(1), SimDisk()
    world = World(disk, ManualClock(), rng.randbytes, small(reserve_bytes=8 * KIB, segment_bytes=40_000))
    known: dict[int, bytes] = {}
    world.upkeep.run_once()
    for _ in range(100):
        used = sum(len(inode.data) for inode in disk._names.values())
        disk.capacity = used + rng.randrange(500, 9_000)
        fill(world.broker, rng, known)
        settle_some(world.broker, known, 3)
        with suppress(DiskFull, OSError):
            world.upkeep.run_once()
        disk.capacity = ROOMY
        world.clock.advance("2s")
        world.upkeep.run_once()
        known[world.broker.publish("t", b"room again").id] = b"room again"
    again = World(disk.kill(), world.clock, rng.randbytes, world.storage)
    again.clock.advance("2h")
    found = drained(again.broker)
    assert {id: payload for id, payload in found.items() if id in known} == known


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", tmp_path], capture_output=True)
    if mounted.returncode:
        pytest.skip(mounted.stderr.decode().strip())
    yield tmp_path
    subprocess.run(["umount", "-l", tmp_path], check=True)


def test_a_real_disk_is_full_and_free_again(tiny_disk: Path) -> None:
    rng, clock = Random(2), ManualClock()
    storage = Storage(segment_bytes=256 * KIB, reserve_bytes=256 * KIB, checkpoint_bytes=128 * KIB)
    known: dict[int, bytes] = {}
    with Broker(tiny_disk / "data", clock=clock, storage=storage) as broker:
        upkeep: Any = broker._engine.upkeep
        upkeep.run_once()
        for size in (2_000, 1_800):
            ballast = tiny_disk / "ballast"
            ballast.write_bytes(b"x" * size * KIB)
            fill(broker, rng, known)
            settle_some(broker, known, 5)
            ballast.unlink()
            clock.advance("2s")
            upkeep.run_once()
            known[broker.publish("t", b"room again").id] = b"room again"
    with Broker(tiny_disk / "data", clock=clock, storage=storage) as broker:
        found = drained(broker)
        assert {id: payload for id, payload in found.items() if id in known} == known


class Work:
    """A short walk over everything that touches the disk: segments, checkpoints, indexes, cleaning, closing."""

    def __init__(self, fault: Callable[[SimDisk], None] | None = None) -> None:
        self.rng = Random(3)
        self.disk, self.clock = SimDisk(), ManualClock()
        self.record = Record()
        self.answers = Answers(self.record)
        self.record.watch(self.disk)
        self.failed: list[str] = []
        if fault is not None:
            fault(self.disk)
        try:
            self.world: World | None = World(self.disk, self.clock, self.rng.randbytes, small(3_000))
        except OSError:
            self.world = None
            return
        self._walk(self.world)

    def _walk(self, world: World) -> None:
        broker = world.broker
        for _ in range(5):
            self.call("configure", lambda: broker.configure("t", retention={"on_ack": True}, max_retries=0))
            self.call("publish", lambda: broker.publish("t", b"k" * 900, idempotency_key="k"))
            self.call("publish_many", lambda: broker.publish_many("t", [self.rng.randbytes(200), b"2", b"3"]))
            messages = self.call("receive", lambda: broker.receive("t", 3)) or []
            for message, verb in zip(messages, ("ack", "nack", "ack"), strict=False):
                self.call(verb, getattr(message, verb))
            self.clock.advance("21s")
            self.call("keep_up", world.upkeep.run_once)
            if self.failed:
                return

    def call(self, name: str, work: Callable[[], Any]) -> Any:
        self.answers.begin()
        try:
            answer = work()
        except Error as error:
            self.failed.append(f"{name}: {error!r}")
            return None
        except OSError as error:  # upkeep logs what the system says; a caller gets an error of ours
            self.failed.append(f"{name}: {error!r}" if name == "keep_up" else f"{name} shows a raw {error!r}")
            return None
        self.answers.ok(name)
        return answer


def counted() -> dict[str, int]:
    with tiny():
        return dict(Work().disk._calls)


OPS = ("sync", "pwrite", "rename", "open", "sync_dir", "unlink", "truncate")
FAULTS = [(op, nth) for op, calls in counted().items() if op in OPS for nth in range(1, calls + 1)]


def test_the_walk_meets_every_operation() -> None:
    assert {op for op, _ in FAULTS} == set(OPS)
    assert not Work().failed


@pytest.mark.parametrize("op", OPS)
def test_whenever_the_disk_breaks_what_was_answered_is_there(op: str) -> None:
    for nth in (nth for name, nth in FAULTS if name == op):
        wrong = broken(op, nth)
        assert not wrong, "\n".join(wrong)


def broken(op: str, nth: int) -> list[str]:
    """What is wrong after the nth call of an operation has failed."""
    work = Work(lambda disk: disk.fail(op, nth))
    what = f"{op} {nth}: {work.failed[:1]}"
    if work.world is not None and work.world.log.writer.dead:
        assert_poisoned(work.world)
    judge, rng = Judge(small(3_000)), Random(f"{op} {nth}")
    for kind in ("none", "all", "torn", "sectors", "kill"):
        make = partial(after, work.disk, kind, nth)
        found = judge.log(make(), work.record, work.answers.promised, rng, f"{what}, {kind}")
        if found is not None:
            log, count = found
            judge.once_more(log, work.record, count, rng, f"{what}, {kind}")
            judge.store(make, work.record, count, work.clock.now(), b"", rng, f"{what}, {kind}")
    return judge.violations + [one for one in work.failed if " shows a raw " in one]


def after(disk: SimDisk, kind: str, seed: int) -> SimDisk:
    return disk.kill() if kind == "kill" else disk.crash(Random(seed), kind)


def assert_poisoned(world: World) -> None:
    """Nothing is believed any more: every call says so."""
    broker = world.broker
    calls: list[Callable[[], Any]] = [
        lambda: broker.publish("t", b"x"),
        lambda: broker.publish_many("t", [b"x", b"y"]),
        lambda: broker.receive("t"),
        lambda: broker.purge("t"),
        lambda: broker.stats("t"),
        lambda: broker.configure("t", max_retries=1),
        world.upkeep.run_once,
    ]
    for call in calls:
        with pytest.raises(Poisoned) as caught:
            call()
        assert caught.value.applied is not True


def test_a_short_write_is_written_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, offset: real(file, data[: max(1, len(data) // 2)], offset))
    payloads = [Random(4).randbytes(size) for size in (1, 1_000, 70_000)]
    with Broker(tmp_path, storage=Storage(reserve_bytes=0)) as broker:
        ids = [broker.publish("t", payload).id for payload in payloads]
    with Broker(tmp_path, storage=Storage(reserve_bytes=0)) as broker:
        assert {message.id: message.payload for message in broker.scan("t")} == dict(zip(ids, payloads, strict=True))


def test_a_write_that_gets_nowhere_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker(tmp_path, storage=Storage(reserve_bytes=0)) as broker:
        broker.publish("t", b"before")
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", lambda file, data, offset: 0)
            with pytest.raises(Poisoned):
                broker.publish("t", b"never")
        with pytest.raises(Poisoned):
            broker.publish("t", b"after")
        with suppress(Error):
            broker.close()
    with Broker(tmp_path, storage=Storage(reserve_bytes=0)) as broker:
        assert [message.payload for message in broker.scan("t")] == [b"before"]


def test_no_room_for_the_zeros_ahead_is_no_failure() -> None:
    """Room for a message and not for more: it is taken."""
    disk = SimDisk()
    world = World(disk, ManualClock(), Random(5).randbytes, small(reserve_bytes=0))
    world.broker.publish("t", b"x")
    disk.fail("pwrite", 1, errno.ENOSPC)
    with suppress(DiskFull):
        world.broker.publish("t", b"y" * 900)
    world.broker.publish("t", b"z")
    again = World(disk.crash(Random(6), "none"), world.clock, Random(7).randbytes, world.storage)
    assert {b"x", b"z"} <= set(drained(again.broker).values())
