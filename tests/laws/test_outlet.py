"""A cap on how many scheduled messages become visible: never early, never more than allowed, late only by that.

A walk makes random calls to a topic whose cap changes as it goes; after each the state is folded anew from the log.
What should be visible is worked out beside it, message by message.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mqueue import Broker, Draft
from mqueue.heart import checkpoint as checkpoints
from mqueue.heart.checkpoint import PartitionPoint, checkpoint
from mqueue.heart.lates import Lates
from mqueue.heart.outlet import Outlet
from mqueue.heart.partition import Partition
from mqueue.model.times import to_datetime
from mqueue.policy import trickle
from mqueue.policy.trickle import PORTION_MS, Trickle
from mqueue.store.order import due_of, order_key
from mqueue.store.recover import recover
from mqueue.store.retain import retain
from mqueue.testing import ManualClock
from tests.laws.profile import profile
from tests.laws.snapshot import differences, heart_of, snapshot

TOPIC = "t"
RATES = [None, 0.5, 3, 20, 20, 200, 5_000]


class Walk:
    """`due`: when each message that is scheduled is due; `shown`: when each became visible, as far as it was seen."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.clock = ManualClock()
        self.rate = self.chance.choice(RATES[1:])
        retention = self.chance.choice([{"hours": 100}, {"on_ack": True}, {"hours": 0.001}, {"compact": True}])
        self.q = Broker(clock=self.clock, max_retries=None, due_rate=self.rate, retention=retention)
        self.q.configure(TOPIC, partitions=self.chance.choice([1, 1, 3]), dlq_expired=self.chance.random() < 0.3)
        self.calm = self.chance.random() < 0.4
        """Whether nothing ends, moves or is dropped: then a checkpoint is read in another way."""
        self.due: dict[int, int] = {}
        self.expires: dict[int, int] = {}
        self.shown: list[int] = []
        """When those became visible that did since the cap was set."""
        self.got: set[int] = set()

    @property
    def store(self) -> Any:
        return self.q._engine.store

    def publish(self) -> None:
        chance = self.chance
        drafts = [
            Draft(
                b"",
                key=chance.choice([None, "a", "b"]),
                priority=chance.choice([25, 50]),
                delay=chance.choice([None, "20ms", "300ms", "1s", "1s", "1s", f"{chance.randrange(1, 4000)}ms"]),
                ttl=None if self.calm else chance.choice([None, None, None, "700ms"]),
            )
            for _ in range(chance.choice([1, 1, 5, 60]))
        ]
        now = self.clock.now()
        for message, draft in zip(self.q.publish_many(TOPIC, drafts), drafts, strict=True):
            if draft.delay is not None:
                topic, frame, row = self.find(message.id)
                self.due[message.id] = due_of(topic, frame, row)
                if draft.ttl is not None:
                    self.expires[message.id] = self.due[message.id] + 700
                assert self.due[message.id] > now

    def find(self, id: int) -> Any:
        frame, row = self.store.log.find(id)
        return self.store.state.topics[frame.topic], frame, row

    def receive(self) -> None:
        messages = self.q.receive(TOPIC, limit=self.chance.choice([1, 7, 100]))
        now = self.clock.now()
        for message in messages:
            assert message.id not in self.got, "it was handed out twice"
            if message.id in self.due:
                assert self.due[message.id] <= now, "it was handed out early"
        self.got.update(message.id for message in messages)
        for message in messages:
            verb = self.chance.choice(["ack", "ack", "release", "nack"])
            getattr(message, verb)()
            if verb != "ack":
                self.got.discard(message.id)

    def cancel(self) -> None:
        for message in [] if self.calm else self.q.scheduled(TOPIC, limit=self.chance.choice([1, 5])):
            self.q.cancel(message.id)
            del self.due[message.id]

    def reschedule(self) -> None:
        for message in self.q.scheduled(TOPIC, limit=2):
            if message.id not in self.expires and not self.calm:
                self.q.reschedule(message.id, delay=self.chance.choice(["10ms", "500ms", "5s"]))
                self.due[message.id] = due_of(*self.find(message.id))

    def wait(self) -> None:
        self.clock.advance(self.chance.choice(["1ms", "10ms", "100ms", "100ms", "1s", "5s"]))
        self.q.stats(TOPIC)

    def change(self) -> None:
        self.rate = self.chance.choice(RATES)
        self.q.configure(TOPIC, due_rate=self.rate)
        self.shown = []

    def sweep(self) -> None:
        topic, now = self.store.state.names["default", TOPIC], self.clock.now()
        what = "checkpoint" if self.calm else self.chance.choice(["retain", "checkpoint", "checkpoint", "purge"])
        if what == "retain":
            retain(self.store, [topic], now)
        elif what == "checkpoint":
            self.store.flush()
            self.store.log.checkpoint(checkpoint(self.store.state, [topic], now))
        elif self.chance.random() < 0.2:
            self.q.purge(TOPIC)
            self.due.clear()

    def look(self) -> None:
        """What became visible since the last look; whether what did not may not; whether the order is one."""
        now = self.clock.now()
        self.store.advance(now)
        [topic] = [topic for topic in self.store.state.topics.values() if topic.name == TOPIC]
        waiting = {message.id for message in self.q.scheduled(TOPIC, limit=10_000)}
        late = [id for id in waiting if self.due[id] <= now]
        for id in [id for id in self.due if id not in waiting]:
            expires = self.expires.get(id, now + 1)
            if expires > now and self.store.log.find(id) is not None:
                topic, frame, row = self.find(id)
                self.shown.append(order_key(topic, frame, row)[1])
                assert self.due[id] <= self.shown[-1] <= now, "it became visible at another time"
            del self.due[id]
        self.check_rate()
        if late:
            assert topic.outlet.gate > now, "it has to wait though it may become visible"
            assert self.rate is not None or now < topic.outlet.gate <= now + 1
        for partition in topic.partitions:
            for lane in partition.lanes.values():
                keys = [(at, start) for start, _, at in lane.runs()]
                assert keys == sorted(keys), "a lane is not in order"

    def check_rate(self) -> None:
        if self.rate is None:
            return
        times = sorted(self.shown)
        portion = self.rate * PORTION_MS / 1000
        for first, at in enumerate(times):
            for last in range(first, min(len(times), first + 50)):
                allowed = (times[last] - at) * self.rate / 1000 + portion + 1 + 1e-6
                assert last - first + 1 <= allowed, "more became visible than may"

    def check_fold(self) -> None:
        self.store.flush()
        now = self.clock.now()
        folded = heart_of(recover(self.store.log))
        folded.advance(now)
        assert not folded.news, "the fold had to decide something that is not in the log"
        found = list(differences(snapshot(self.store.state, now), snapshot(folded.state, now)))
        assert not found, "\n".join(found[:5])

    def drain(self) -> None:
        """All that is left becomes visible in the end, and is delivered."""
        self.q.configure(TOPIC, due_rate=None)
        self.clock.advance("1h")
        while messages := self.q.receive(TOPIC, limit=1000):
            self.q.ack(messages)
        stats = self.q.stats(TOPIC)
        assert (stats.scheduled, stats.ready, stats.waiting, stats.leased) == (0, 0, 0, 0)


def go(seed: int) -> None:
    walk = Walk(seed)
    publish, wait = [walk.publish] * 2, [walk.wait] * 4
    steps = [*publish, *wait, walk.receive, walk.receive, walk.cancel, walk.reschedule, walk.change, walk.sweep]
    for _ in range(40):
        walk.chance.choice(steps)()
        walk.look()
        walk.check_fold()
    walk.drain()
    walk.check_fold()


@profile(40, 3_000)
@given(st.integers(0, 2**32))
def test_whatever_is_called_no_more_become_visible_than_may(seed: int) -> None:
    go(seed)


BUGS: dict[str, tuple[Any, str, Any]] = {
    "nobody pays": (Trickle, "spend", lambda self, count, at: None),
    "all at once": (Trickle, "room", lambda self, at: trickle.MANY),
    "who waited keeps the time that he was due": (
        Lates,
        "pieces",
        lambda self, start, stop, due: iter([(start, stop, due)]),
    ),
    "what waits counts as visible": (Partition, "time_of", lambda self, due, offset: due),
    "a checkpoint forgets how far it is": (checkpoints, "_partition_point", None),
    "a checkpoint forgets what was paid": (
        checkpoints,
        "outlet_of",
        lambda point, rate: Outlet(Trickle(rate), 0, 0, 0),
    ),
    "many at once are told the times that they were due": (Lates, "times", lambda self, due, starts: due),
    "who waits goes on waiting when the cap is lifted": (Outlet, "change", lambda self, rate, now: None),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, wrong = BUGS[name]
    monkeypatch.setattr(owner, attribute, wrong or _forgetful(checkpoints._partition_point))
    with pytest.raises(AssertionError):
        go_on(60)


def go_on(walks: int) -> None:
    for seed in range(walks):
        go(seed)


def _forgetful(real: Callable[[Partition], PartitionPoint]) -> Callable[[Partition], PartitionPoint]:
    return lambda partition: replace(real(partition), lates=())


@profile(60, 2_000)
@given(
    st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 80)), min_size=1, max_size=8),
    st.sampled_from([0.7, 5, 9.9, 40, 333.3, 2_000]),
    st.sampled_from([1, 2, 5]),
)
def test_nobody_waits_longer_than_the_rate_says(bursts: list[tuple[int, int]], rate: float, partitions: int) -> None:
    """While anything waits, as many become visible as may."""
    clock = ManualClock()
    q = Broker(clock=clock)
    q.configure(TOPIC, due_rate=rate, partitions=partitions)
    base, due = clock.now() + 1_000, []
    for delay, count in bursts:
        q.publish_many(TOPIC, [Draft(b"", key=str(n), deliver_at=to_datetime(base + delay)) for n in range(count)])
        due += [base + delay] * count
    clock.advance("1h")
    [topic] = q._engine.store.state.topics.values()
    q.stats(TOPIC)
    shown = sorted(
        at
        for partition in topic.partitions
        for lane in partition.lanes.values()
        for start, stop, at in lane.runs()
        for _ in range(start, stop)
    )
    assert len(shown) == len(due)
    free = 0.0
    for at, when in zip(shown, sorted(due), strict=True):
        free = max(free, when) + 1000 / rate
        assert when <= at <= free + PORTION_MS, "it was early, or later than it had to be"


def test_partitions_wait_alike() -> None:
    clock = ManualClock()
    q = Broker(clock=clock)
    q.configure(TOPIC, due_rate=100, partitions=3)
    q.publish_many(TOPIC, [Draft(b"", key=str(n), delay="1s") for n in range(900)])
    clock.advance("2500ms")
    q.stats(TOPIC)
    [topic] = q._engine.store.state.topics.values()
    shown = [partition.visible for partition in topic.partitions]
    assert 150 <= sum(shown) <= 170
    assert max(shown) - min(shown) <= 1
