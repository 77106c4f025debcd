"""Seeded workloads: producers and consumers that interleave on a clock moved by hand, or run in real threads.

Each ends with a drain: time passes and everything is received and acked until nobody is owed anything.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from typing import Any

from mqueue import Broker, Message
from mqueue.testing import ManualClock
from tests.laws.history import History, Offer, Recorder

TOPIC = "t"
GROUPS = ("g1", "g2")
VISIBILITY_MS = 4_000
ATTEMPTS_MAX = 3
BACKOFF_MS = 1_000
WINDOW_MS = 20_000


@dataclass
class Scene:
    """What a workload does, and how often."""

    steps: int = 250
    settings: dict[str, Any] = field(default_factory=dict)
    quota: int | None = None
    admin: bool = False
    """Also cancel, reschedule, purge, seek, redrive and delete groups."""
    ttl: bool = False
    delays: bool = True
    idem: bool = True
    crowd: int = 0
    """How many messages a batch has; 0: few."""


SCENES = {
    "work": Scene(),
    "partitions": Scene(settings={"partitions": 3}),
    "ttl": Scene(ttl=True),
    "admin": Scene(admin=True, ttl=True, settings={"partitions": 2}),
    "quota": Scene(quota=60, steps=300, idem=False),
    "refuse": Scene(settings={"max_depth": 12}),
    "drop": Scene(settings={"max_depth": 12, "overflow": "drop_oldest"}, idem=False),
    "crowd": Scene(steps=40, crowd=4_200, idem=False, delays=False),
}


class Workload:
    """One run: the dice, the broker and what the consumers have in hand."""

    def __init__(self, name: str, seed: int) -> None:
        self.scene = SCENES[name]
        self.dice = random.Random(f"{name} {seed}")
        self.clock = ManualClock()
        quotas = None if self.scene.quota is None else {"default": self.scene.quota}
        self.broker = Broker(clock=self.clock, quotas=quotas, retention={}, dedup_window=f"{WINDOW_MS}ms")
        self.store = self.broker._engine.store
        self.store._jitter = lambda: self.dice.uniform(-0.2, 0.2)
        settings: dict[str, Any] = {"max_retries": ATTEMPTS_MAX - 1, "backoff": "1s", "backoff_max": "3s"}
        self.broker.configure(TOPIC, **settings | self.scene.settings)
        rules = {"attempts_max": ATTEMPTS_MAX, "backoff_ms": 1_000, "backoff_max_ms": 3_000, "window_ms": WINDOW_MS}
        rules |= {"quota": self.scene.quota, "groups": GROUPS} | self.scene.settings
        self.recorder = Recorder(self.broker, self.clock, TOPIC, rules)
        for group in GROUPS:
            self.broker.create_group(TOPIC, group)
        self.hands: list[tuple[str, str, list[Message]]] = []
        self.uid = 0

    @property
    def history(self) -> History:
        return self.recorder.history

    def run(self) -> Workload:
        for _ in range(self.scene.steps):
            self.step()
        self.drain()
        self.recorder.look()
        return self

    def step(self) -> None:
        roll = self.dice.random()
        if roll < 0.32:
            self.publish()
        elif roll < 0.58:
            self.receive()
        elif roll < 0.82:
            self.settle()
        elif roll < 0.92 or not self.scene.admin:
            self.clock.advance(f"{self.dice.choice([1, 7, 50, 333, 1_000, 2_500, 4_001])}ms")
        else:
            self.administer()

    def publish(self) -> None:
        count = self.dice.choice([1, 1, 1, 2, 7])
        if self.scene.crowd and self.dice.random() < 0.2:
            count = self.scene.crowd
        self.recorder.publish(f"p{self.dice.randrange(3)}", [self.offer(count) for _ in range(count)])
        if "max_depth" in self.scene.settings:
            self.recorder.simply("admin", "depth", lambda: self.broker.stats(TOPIC).depth)

    def offer(self, size: int) -> Offer:
        dice, scene = self.dice, self.scene
        self.uid += 1
        idem = f"i{dice.randrange(12)}" if scene.idem and size == 1 and dice.random() < 0.3 else None
        uid = f"u{self.uid}"
        same = idem is not None and dice.random() < 0.8  # mostly the same message again, sometimes a conflict
        return Offer(
            uid="same" if same else uid,
            payload=b"same" if same else uid.encode() + dice.randbytes(6),
            priority=dice.choice([0, 25, 50, 50, 100]),
            key=dice.choice([None, b"a", b"b", b"c"]),
            delay_ms=dice.choice([0, 0, 0, 5, 500, 2_000, 9_000]) if scene.delays and idem is None else 0,
            ttl_ms=dice.choice([0, 0, 1_501, 6_001]) if scene.ttl and idem is None else 0,
            idem=idem,
        )

    def receive(self) -> None:
        who, group = f"c{self.dice.randrange(4)}", self.dice.choice(GROUPS)
        mode = "at_most_once" if self.dice.random() < 0.08 else "at_least_once"
        limit = self.dice.choice([1, 1, 3, 10, self.scene.crowd or 1])
        got = self.recorder.receive(who, group, limit, self.dice.choice([VISIBILITY_MS, 500]), mode)
        if got:
            self.hands.append((who, group, got))

    def settle(self) -> None:
        """Settle what somebody has in hand; mostly what is live, sometimes what is long over."""
        if not self.hands:
            return
        index = self.dice.randrange(len(self.hands)) if self.dice.random() < 0.4 else len(self.hands) - 1
        who, group, messages = self.hands[index]
        chosen = [m for m in messages if self.dice.random() < 0.6] or messages[:1]
        verb = self.dice.choices(["ack", "nack", "release", "extend", "reject"], [8, 5, 2, 3, 1])[0]
        waits = {"extend": self.dice.choice([2_000, 6_000]), "nack": self.dice.choice([None, None, 200, 5_000])}
        for part in [chosen] if self.dice.random() < 0.5 else [[message] for message in chosen[:5]]:
            self.recorder.settle(who, verb, group, part, waits.get(verb))
        if self.dice.random() < 0.3 or len(self.hands) > 12:
            self.hands.pop(index)

    def administer(self) -> None:
        record, broker = self.recorder.simply, self.broker
        what = self.dice.choice(["cancel", "reschedule", "reschedule", "purge", "seek", "redrive", "redrive"])
        scheduled = broker.scheduled(TOPIC)
        if what == "cancel" and scheduled:
            id = self.dice.choice(scheduled).id
            record("admin", "cancel", lambda: broker.cancel(id), id=id)
        elif what == "reschedule" and scheduled:
            id, delay = self.dice.choice(scheduled).id, self.dice.choice([30, 4_000, 12_000])
            record("admin", what, lambda: broker.reschedule(id, delay=f"{delay}ms"), id=id, delay_ms=delay)
        elif what == "purge" and self.dice.random() < 0.5:
            record("admin", "purge", lambda: broker.purge(TOPIC))
        elif what == "seek":
            record("admin", "seek", lambda: broker.seek(TOPIC, group="g2", to="earliest"), group="g2", to=0)
        elif what == "redrive":
            record("admin", "redrive", lambda: broker.dlq(TOPIC).redrive().redriven)

    def drain(self) -> None:
        """Receive and ack until nobody is owed anything; bounded, because a broken broker might never be done."""
        for _ in range(60):
            for group in GROUPS:
                for _ in range(20):
                    got = self.recorder.receive("drain", group, 10_000, VISIBILITY_MS, "at_least_once")
                    if not got:
                        break
                    self.recorder.settle("drain", "ack", group, got)
            stats = self.broker.stats(TOPIC)
            if not stats.scheduled and not any(group.depth for group in stats.groups.values()):
                break
            self.clock.advance("3s")


class Threads(Workload):
    """The same with real threads on one broker: a few workers, and one who moves the clock."""

    def __init__(self, seed: int, workers: int = 4) -> None:
        super().__init__("work", seed)
        self.seeds = [self.dice.randrange(2**32) for _ in range(workers)]

    def run(self) -> Threads:
        done = threading.Event()
        workers = [threading.Thread(target=self._work, args=(number, seed)) for number, seed in enumerate(self.seeds)]
        ticker = threading.Thread(target=self._tick, args=(done,))
        for thread in [*workers, ticker]:
            thread.start()
        for thread in workers:
            thread.join()
        done.set()
        ticker.join()
        self.drain()
        self.recorder.look()
        return self

    def _work(self, number: int, seed: int) -> None:
        dice, hands = random.Random(seed), list[tuple[str, list[Message]]]()
        recorder, me = self.recorder, f"w{number}"
        for step in range(150):
            roll = dice.random()
            if roll < 0.4:
                uid = f"{me}-{step}"
                offer = Offer(
                    uid, uid.encode() + dice.randbytes(6), dice.choice([0, 50, 100]), dice.choice([None, b"a"])
                )
                recorder.publish(me, [offer])
            elif roll < 0.7 or not hands:
                group = dice.choice(GROUPS)
                if got := recorder.receive(me, group, dice.choice([1, 5]), VISIBILITY_MS, "at_least_once"):
                    hands.append((group, got))
            else:
                group, messages = hands.pop(dice.randrange(len(hands)))
                verb = dice.choices(["ack", "nack", "release", "extend"], [6, 3, 1, 1])[0]
                recorder.settle(me, verb, group, messages, 2_000 if verb == "extend" else None)

    def _tick(self, done: threading.Event) -> None:
        dice = random.Random(self.seeds[0])
        while not done.wait(0.001):
            self.clock.advance(f"{dice.choice([1, 40, 700])}ms")
