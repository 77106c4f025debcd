"""The workloads and checkers of the laws, on a disk whose power goes now and then, in the midst of calls.

The history of a run goes on through every crash. A call whose commit the crash took never happened: it was not
answered yet, or it was a lease, which dies with its epoch when the power goes. Everything else has to hold for the
whole history: what was acked before a crash does not come after it, a lease from before it still holds, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from mqueue.broker.envelope import EmbeddedMessage
from mqueue.heart.runs import Run
from mqueue.testing import ManualClock
from mqueue.testing.disk import SimDisk
from tests.laws import workload
from tests.laws.checkers import CHECKERS
from tests.laws.history import History, Recorder
from tests.laws.workload import Workload
from tests.simulation.images import images, moments
from tests.simulation.record import Record
from tests.simulation.world import World, small

SCENES = ("work", "partitions", "ttl", "admin")
CRASHES = 0.12
"""In so many of the steps there is one."""


class Logbook(Recorder):
    """A recorder that knows which commits each call wrote."""

    def __init__(self, world: World, record: Record, clock: ManualClock, rules: dict[str, Any]) -> None:
        super().__init__(world.broker, clock, workload.TOPIC, rules)
        self._record = record
        self._wrote: list[tuple[int, int]] = []
        self.split: list[str] = []

    def call(self, proc: str, op: str, args: dict[str, Any], work: Callable[[], Any]) -> Any:
        before = len(self._record)
        answer = super().call(proc, op, args, work)
        self._wrote.append((before, len(self._record)))
        if len(self._record) > before + 1:
            self.split.append(f"one {op} is {len(self._record) - before} commits")
        return answer

    def go_on(self, world: World, record: Record) -> None:
        """After a crash that left so many commits: what is not among them never happened."""
        left = len(record)
        pairs = [(one, wrote) for one, wrote in zip(self.history.records, self._wrote, strict=True) if wrote[1] <= left]
        self.history.records = [one for one, _ in pairs]
        self._wrote = [wrote for _, wrote in pairs]
        self.broker, self._record = world.broker, record


class Stormy(Workload):
    def __init__(self, name: str, seed: int) -> None:
        self.scene = workload.SCENES[name]
        self.dice = Random(f"stormy {name} {seed}")
        self.clock = ManualClock()
        self.world = World(
            SimDisk(),
            self.clock,
            Random(f"entropy {seed}").randbytes,
            small(segment_bytes=9_000),
            retention={},
            dedup_window=f"{workload.WINDOW_MS}ms",
        )
        self.record = Record()
        self.record.watch(self.world.disk)
        self.crashes = 0
        self.hands = []
        self.uid = 0
        self._begin()

    def _begin(self) -> None:
        settings: dict[str, Any] = {"max_retries": workload.ATTEMPTS_MAX - 1, "backoff": "1s", "backoff_max": "3s"}
        self.broker.configure(workload.TOPIC, **settings | self.scene.settings)
        rules = {"attempts_max": workload.ATTEMPTS_MAX, "backoff_ms": 1_000, "backoff_max_ms": 3_000, "quota": None}
        rules |= {"window_ms": workload.WINDOW_MS, "groups": workload.GROUPS} | self.scene.settings
        self.recorder = Logbook(self.world, self.record, self.clock, rules)
        for group in workload.GROUPS:
            self.broker.create_group(workload.TOPIC, group)

    @property
    def broker(self) -> Any:  # type: ignore[override]
        return self.world.broker

    def step(self) -> None:
        if self.dice.random() < 0.08:
            self.world.upkeep.run_once()
        if self.dice.random() >= CRASHES:
            super().step()
            return
        left: list[SimDisk] = []

        def look() -> None:
            _, make = self.dice.choice(list(images(self.world.disk, self.dice)))
            left.append(make())

        moments(self.world.disk, look)
        super().step()
        self.world.disk.hook = None
        if left:
            self._crash(self.dice.choice(left))

    def _crash(self, image: SimDisk) -> None:
        self.crashes += 1
        self.world = World(image, self.clock, self.world.entropy, self.world.storage, **self.world.settings)
        link = self.world.log.writer.link
        self.record = self.record.cut(self.record.ends[link.position, link.crc])
        self.record.watch(image)
        self.recorder.go_on(self.world, self.record)
        self.hands = [(who, group, [self._bound(one) for one in messages]) for who, group, messages in self.hands]

    def _bound(self, message: EmbeddedMessage) -> EmbeddedMessage:
        """A message in hand, for the broker that came after: as a client would hold it, by its token and its place."""
        desk = self.broker._desk(workload.TOPIC, self.clock.now())
        lease = desk.engine.store.state.leases.get(message._lease.token)
        if lease is None:
            message._lease.open, message._lease.runs, message._run.mask = 0, (), 0
            message._desk = desk
            return message
        run: Run = next((r for r in lease.runs if r.partition == message.partition and _in(r, message)), message._run)
        return EmbeddedMessage(desk, lease, run, message._frame, message._row, message.payload, message._settled)


def _in(run: Run, message: EmbeddedMessage) -> bool:
    return bool(run.start <= message.offset < run.stop and run.mask >> message.offset - run.start & 1)


def complaints(scene: str, seed: int) -> Iterator[tuple[str, str]]:
    """(checker, sentence) for everything that is wrong with a stormy run."""
    try:
        run = Stormy(scene, seed).run()
    except Exception as error:
        yield "crash", repr(error)
        return
    yield from (("batch", sentence) for sentence in run.recorder.split)
    yield from checked(run.history)


def checked(history: History) -> Iterator[tuple[str, str]]:
    for name, checker in CHECKERS.items():
        for sentence in checker(history):
            yield name, sentence
