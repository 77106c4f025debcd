"""A run: one seed, one walk, a crash image at every change of the disk; some of them are walked on, three deep.

    walk ──┬── image ── recovered log: a prefix, what was promised, the same bytes          (every image)
           │            recovered store: the fold of that prefix                            (every new one)
           │            cut again while it recovers, and once it has                        (some)
           └── image ── recovered store ── walk on ──┬── image …                            (a few)

The same seed gives the same calls, images and outcomes: `digest` tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from random import Random

from mqueue.testing import ManualClock
from mqueue.testing.disk import SimDisk
from tests.simulation.answers import Answers
from tests.simulation.images import KILL, images, moments
from tests.simulation.journey import Journey, Tidy
from tests.simulation.judge import Judge
from tests.simulation.record import Record
from tests.simulation.world import World

DEPTH_MAX = 3
STEPS = 44
TIDY = 3
"""Of four seeds this one walks where nearly everything is dropped."""
_DEEP, _AGAIN, _ON = 40, 16, 60
"""One image in so many is cut again while it recovers, once it has recovered, and walked on."""


@dataclass(frozen=True)
class Outcome:
    seed: int
    states: int
    stores: int
    violations: list[str]
    digest: str


@dataclass(frozen=True)
class Left:
    """A disk that a crash left, to be walked on from."""

    image: SimDisk
    count: int
    promised: int
    now: int
    kind: str


def simulate(seed: int, steps: int = STEPS, thin: int = 1) -> Outcome:
    """`thin`: take only one image in so many."""
    judge = Judge()
    world = World(SimDisk(), ManualClock(), Random(f"entropy {seed}").randbytes)
    record = Record()
    record.watch(world.disk)
    walk = Walk(judge, world, record, Answers(record), f"{seed}", depth=1, thin=thin, tidy=seed % 4 == TIDY)
    walk.go(steps)
    digest = blake2b("\n".join([*walk.told, world.disk.digest()]).encode(), digest_size=16).hexdigest()
    return Outcome(seed, judge.states, judge.stores, [f"seed {seed}: {one}" for one in judge.violations], digest)


class Walk:
    """One stretch of life of a store, from its opening to the end of the run, with every crash that could end it."""

    def __init__(
        self, judge: Judge, world: World, record: Record, answers: Answers, seed: str, depth: int, thin: int, tidy: bool
    ) -> None:
        self.judge = judge
        self.world = world
        self.record = record
        self.answers = answers
        self.seed = seed
        self.depth = depth
        self.thin = thin
        self.tidy = tidy
        self.rng = Random(f"images {seed}")
        self.journey = (Tidy if tidy else Journey)(world, answers, seed)
        self.told = self.journey.told
        self._left: Left | None = None

    def go(self, steps: int) -> None:
        moments(self.world.disk, self._look)
        for number in range(steps):
            self.answers.begin()
            self.journey.step()
            self.world = self.journey.world
            damage = [one for one in self.world.log.reports if not one.startswith("EPOCH")]
            self.answers.violations += [f"told of damage: {one}" for one in damage]
            if self.answers.violations:
                self.judge.violations += [f"step {number}: {one}" for one in self.answers.violations]
                self.answers.violations.clear()
            if len(self.judge.violations) > 3:
                return
            if self._left is not None:
                self._walk_on(self._left, steps)
                self._left = None
        self.world.disk.hook = None

    def _look(self) -> None:
        """Everything a crash could leave right now."""
        promised, now = self.answers.promised, self.world.clock.now()
        for kind, make in images(self.world.disk, self.rng, thin=self.thin * self.depth):
            what = f"step {len(self.told)}, depth {self.depth}, op {self.world.disk.ops}, {kind}"
            image = make()
            if self.rng.randrange(_DEEP) == 0:
                self._cut_recovery(image, promised, what, self.depth + 1)
            found = self.judge.log(image, self.record, promised, self.rng, what)
            image.hook = None
            if found is None:
                continue
            log, count = found
            self.told.append(f"{kind} {count}")
            if self.rng.randrange(_AGAIN) == 0 or (kind == KILL and self.world.disk._names_pending):
                self.judge.once_more(log, self.record, count, self.rng, what)
            key = self.judge.key(log, count)
            if self.judge.is_new(self.record, key, now):
                self.judge.store(make, self.record, count, now, self.answers.handed_out, self.rng, what)
            if self.depth < DEPTH_MAX and self.rng.randrange(_ON) == 0:
                self._left = Left(make(), count, promised, now, kind)

    def _cut_recovery(self, image: SimDisk, promised: int, what: str, depth: int) -> None:
        """Cut the power again at every change that the recovery of an image makes."""

        def look() -> None:
            for kind, make in images(image, self.rng, thin=2):
                again = make()
                if depth < DEPTH_MAX:
                    self._cut_recovery(again, promised, f"{what}, recovering, {kind}", depth + 1)
                self.judge.log(again, self.record, promised, self.rng, f"{what}, recovering, {kind}")
                again.hook = None

        moments(image, look)

    def _walk_on(self, left: Left, steps: int) -> None:
        what = f"step {len(self.told)}, depth {self.depth}, {left.kind}, walked on"
        token = self.answers.handed_out
        record = self.record.cut(left.count)
        world = self.judge.store(lambda: left.image, record, left.count, left.now, token, self.rng, what)
        if world is None:
            return
        record.watch(world.disk)
        with world.engine.lock:  # the judge let time pass: what came of it is written down
            world.engine.store.commit(left.now)
        answers = Answers(record)
        answers.promised, answers.handed_out = left.count, token
        walk = Walk(
            self.judge, world, record, answers, f"{self.seed}/{len(self.told)}", self.depth + 1, self.thin, self.tidy
        )
        walk.go(max(steps // 3, 8))
        self.told.append(world.disk.digest())
