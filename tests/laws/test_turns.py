"""Turns: whatever the policy, nothing is lost or handed out twice, one message of a key at a time, and folding agrees.

A walk makes random calls to one topic whose settings change as it goes; after each the state is folded anew from the
log, and now and then the broker is opened again. The bounds that policies promise have properties of their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from math import ceil
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mqueue
from benchmarks.harness import QUICK
from benchmarks.turns import Working, waits
from mqueue import Broker, Draft, Message
from mqueue.heart import turns
from mqueue.heart.chains import Chains
from mqueue.heart.checkpoint import checkpoint
from mqueue.heart.lineup import Lineup, Queue
from mqueue.heart.reader import Reader
from mqueue.heart.turns import Turns
from mqueue.model.limits import LOOK_AHEAD_RUNS_MAX
from mqueue.model.priority import LANES
from mqueue.store.recover import recover
from mqueue.store.retain import retain
from mqueue.testing import ManualClock
from tests.laws.profile import profile
from tests.laws.snapshot import differences, heart_of, snapshot

TOPIC = "t"
RULES: list[dict[str, Any]] = [
    {"policy": "strict"},
    {"policy": "weighted"},
    {"policy": "ageing", "age_limit": "3s"},
    {"ordered": False},
    {"ordered": True},
    {"ordered": True, "on_failure": "skip"},
    {"ordered": True, "on_failure": "divert"},
    {"on_failure": "block"},
    {"fairness": False},
    {"fairness": True},
    {"fairness": {"weights": {"f0": 3}, "in_flight_max": 2}},
    {"fairness": {"rate": 2}},
]


class Walk:
    """One topic, one group. `settings` are those in force; `held` what was handed out and not settled."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.clock = ManualClock()
        self.q = Broker(clock=self.clock, max_retries=2, backoff="1s", backoff_max="4s")
        self.settings: dict[str, Any] = {"ordered": False, "on_failure": "block"}
        retention = self.chance.choice([{"hours": 100}, {"on_ack": True}, {"compact": True}])
        self.q.configure(TOPIC, partitions=self.chance.choice([1, 1, 3]), retention=retention)
        self.held: dict[int, Message] = {}
        self.taken: set[int] = set()
        """What is in flight since before the topic was ordered: of these a key may have several."""
        self.done: set[int] = set()
        self.refused: list[Message] = []
        """What was given back with a failure; some of it still waits for its retry."""
        self.change()

    @property
    def store(self) -> Any:
        return self.q._engine.store

    def change(self) -> None:
        rules = self.chance.choice(RULES)
        self.q.configure(TOPIC, **rules)
        if rules.get("ordered") and not self.settings["ordered"]:
            self.taken = set(self.held)
        self.settings.update(rules)

    def publish(self) -> None:
        chance = self.chance
        drafts = [
            Draft(
                b"%d" % n,
                key=chance.choice([None, "a", "b", "c"]),
                fairness_key=chance.choice([None, "f0", "f1", "f2"]),
                priority=chance.choice([0, 50, 50, 100]),
                delay=chance.choice([None, None, None, "2s"]),
                ttl=chance.choice([None, None, None, "30s"]),
            )
            for n in range(chance.choice([1, 1, 2, 40]))
        ]
        self.q.publish_many(TOPIC, drafts)

    def receive(self) -> None:
        mode = self.chance.choice(["at_least_once"] * 4 + ["at_most_once"])
        messages = self.q.receive(TOPIC, limit=self.chance.choice([1, 2, 7, 100]), mode=mode, visibility="5s")
        for message in messages:
            assert message.id not in self.held, "it was handed out twice"
            assert message.id not in self.done, "it was handed out after it was settled"
        if mode == "at_most_once":
            self.done.update(message.id for message in messages)
        else:
            self.held.update((message.id, message) for message in messages)
        if self.settings["ordered"]:
            self.check_keys(messages)

    def check_keys(self, messages: list[Message]) -> None:
        holders: dict[bytes, list[int]] = defaultdict(list)
        for message in {**self.held, **{m.id: m for m in messages}}.values():
            if message.key is not None and message.id not in self.taken:
                holders[message.key].append(message.id)
        for key, ids in holders.items():
            assert len(ids) == 1, f"{key!r} has {len(ids)} messages in flight"
        self.refused = [message for message in self.refused if self.waits(message)]
        early = {message.key for message in self.refused} & {message.key for message in messages}
        assert not early, f"{early} went on while an earlier message waits for its retry"

    def waits(self, message: Message) -> bool:
        group = self.store.state.names["default", TOPIC].groups["default"]
        run = group.readers[message.partition].holds(message.offset)
        return run is not None and run.until > self.clock.now()

    def settle(self) -> None:
        if not self.held:
            return
        message = self.held.pop(self.chance.choice(list(self.held)))
        self.taken.discard(message.id)
        verb = self.chance.choice(["ack", "ack", "nack", "release", "reject"])
        getattr(message, verb)()
        if verb == "ack":
            self.done.add(message.id)
        elif verb == "nack" and message.key is not None:
            self.refused.append(message)

    def wait(self) -> None:
        self.clock.advance(self.chance.choice(["10ms", "1s", "1s", "5s"]))
        self.q.stats(TOPIC)
        leases = self.store.state.leases
        self.held = {id: m for id, m in self.held.items() if m._lease.token in leases and self.is_held(m)}
        self.taken &= self.held.keys()

    def is_held(self, message: Message) -> bool:
        return bool(message._lease.find(message.partition, message.offset, 1))

    def sweep(self) -> None:
        what = self.chance.choice(["retain", "checkpoint", "redrive", "purge", "seek"])
        topic = self.store.state.names["default", TOPIC]
        now = self.clock.now()
        if what == "retain":
            retain(self.store, [topic], now)
        elif what == "checkpoint":
            self.store.flush()
            self.store.log.checkpoint(checkpoint(self.store.state, [topic], now))
        elif what == "redrive" and "t.dlq" in self.q.topics():
            dead = self.q.dlq(TOPIC)
            self.done -= {int(message.headers["x-origin-id"]) for message in dead.messages(limit=10_000)}
            dead.redrive()
        elif what == "purge" and self.chance.random() < 0.2:
            self.q.purge(TOPIC, ready_for=self.chance.choice([None, "default"]))
        elif what == "seek" and self.chance.random() < 0.2 and "default" in self.q.groups(TOPIC):
            self.q.seek(TOPIC, group="default", to="earliest")
            self.held.clear()
            self.done.clear()
            self.taken.clear()

    def check_fold(self) -> None:
        self.store.flush()
        now = self.clock.now()
        folded = heart_of(recover(self.store.log))
        folded.advance(now)
        assert not folded.news, "the fold had to decide something that is not in the log"
        found = list(differences(snapshot(self.store.state, now), snapshot(folded.state, now)))
        assert not found, "\n".join(found[:5])

    def drain(self) -> None:
        """With every limit off, all that is owed comes out."""
        self.q.configure(TOPIC, policy="strict", fairness=False, ordered=False, max_retries=0)
        self.q.release(list(self.held.values()))
        for _ in range(10):
            self.clock.advance("40s")
            while messages := self.q.receive(TOPIC, limit=1000):
                self.q.ack(messages)
        stats = self.q.stats(TOPIC)
        assert (stats.ready, stats.waiting, stats.leased) == (0, 0, 0)


def go(seed: int) -> None:
    walk = Walk(seed)
    steps = [walk.publish, walk.receive, walk.receive, walk.settle, walk.settle, walk.wait, walk.change, walk.sweep]
    for _ in range(40):
        walk.chance.choice(steps)()
        walk.check_fold()
    walk.drain()
    walk.check_fold()


@profile(40, 3_000)
@given(st.integers(0, 2**32))
def test_whatever_is_called_nothing_is_lost_doubled_or_out_of_turn(seed: int) -> None:
    go(seed)


def go_on(walks: int) -> None:
    for seed in range(walks):
        go(seed)


BUGS: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "a key that is in flight is not held": (Chains, "is_head", lambda self, key, run: True),
    "what waits for its retry does not hold its key": (Turns, "hold", lambda self, run, count: None),
    "who was in flight before is not known": (Turns, "seat", lambda self, run, now: None),
    "folding passes over what a lease left out": (
        Reader,
        "move_past",
        lambda self, run, real=Reader.move_past: real(self, run)[1:],
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, wrong = BUGS[name]
    monkeypatch.setattr(owner, attribute, wrong)
    with pytest.raises(AssertionError):
        go_on(60)


def test_a_flood_does_not_drown_quiet_keys() -> None:
    """One key sends 100,000 messages, 99 send ten each, a thousand a second are served."""
    calm, busy = waits(0), waits(100_000)
    assert busy[len(busy) * 99 // 100] <= 2 * calm[len(calm) * 99 // 100]


def test_quiet_keys_are_seen_though_all_of_a_flood_lies_before_them() -> None:
    q = Broker(clock=ManualClock())
    q.configure(TOPIC, fairness=True)
    for _ in range(11):
        q.publish_many(TOPIC, [Draft(b"", fairness_key="flood")] * 10_000)
    q.publish_many(TOPIC, [Draft(b"", fairness_key=f"quiet-{number}") for number in range(99)])
    keys = [message.fairness_key for message in q.receive(TOPIC, limit=100)]
    assert sorted(map(str, keys)) == sorted(["flood", *[f"quiet-{number}" for number in range(99)]])


def test_other_keys_are_seen_though_all_of_a_long_line_lies_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "LOOK_AHEAD_MAX", 1_000)
    q = Broker(clock=ManualClock())
    q.configure(TOPIC, ordered=True)
    q.publish_many(TOPIC, [Draft(b"", key="line")] * 6_000)
    q.publish_many(TOPIC, [Draft(b"", key=f"k{number}") for number in range(9)])
    [held] = q.receive(TOPIC)
    assert held.key == b"line"
    assert [message.key for message in q.receive(TOPIC, limit=10)] == [b"k%d" % number for number in range(9)]


def test_sixteen_workers_keep_the_order_of_ten_thousand_keys() -> None:
    """Each round checks that every key came in order and that none is stuck."""
    working = Working(QUICK.at_depth(40_000), ordered=True)
    for _ in range(2):
        working.round()


BURSTS = st.lists(
    st.tuples(st.sampled_from(list(LANES)), st.integers(1, 60), st.sampled_from([1, 3, 40, 150])),
    min_size=2,
    max_size=12,
)


@profile(60, 2_000)
@given(BURSTS, st.sampled_from([1, 2, 3]))
def test_weighted_the_lowest_lane_waits_no_longer_than_promised(
    bursts: list[tuple[str, int, int]], partitions: int
) -> None:
    """Whatever else there is: the k-th that waits in the lowest lane is out after ceil(k / 3) * 100 deliveries."""
    q = Broker(clock=ManualClock())
    q.configure(TOPIC, policy="weighted", partitions=partitions)
    latest: list[int] = []
    """By which deliveries those that wait in the lowest lane have to be out."""
    delivered = 0
    for n, (lane, count, limit) in enumerate(bursts):
        q.publish_many(TOPIC, [Draft(lane, priority=lane, key=str(n * 100 + number)) for number in range(count)])
        if lane == "background":
            waiting = len(latest)
            latest += [delivered + ceil((waiting + k) / 3) * 100 for k in range(1, count + 1)]
            latest.sort()
        for message in q.receive(TOPIC, limit=limit):
            delivered += 1
            if message.payload == b"background":
                assert delivered <= latest.pop(0)
            message.ack()
        assert not latest or delivered < latest[0], "one waits for too long"
    ready = q.stats(TOPIC).ready
    assert len(q.receive(TOPIC, limit=10_000)) == ready, "somebody had to wait for who has nothing"


@profile(60, 2_000)
@given(
    st.lists(st.tuples(st.sampled_from(list(LANES)), st.integers(1, 9), st.integers(0, 4_000)), max_size=25),
    st.booleans(),
)
def test_ageing_nobody_waits_behind_later_ones_for_longer_than_the_limit(
    steps: list[tuple[str, int, int]], fair: bool
) -> None:
    clock = ManualClock()
    q = Broker(clock=clock)
    q.configure(TOPIC, policy="ageing", age_limit="5s", partitions=2, fairness=fair)
    ready: dict[int, tuple[int, int]] = {}
    """When each message became visible, and its priority."""
    for n, (lane, count, pause_ms) in enumerate(steps):
        drafts = [
            Draft(lane, priority=lane, key=str(n * 10 + number), fairness_key=f"f{(n + number) % 5}")
            for number in range(count)
        ]
        for receipt in q.publish_many(TOPIC, drafts):
            ready[receipt.id] = clock.now(), LANES[lane]
        clock.advance(pause_ms / 1000)
        for message in q.receive(TOPIC, limit=3):
            at, priority = ready.pop(message.id)
            overdue = [since for since, _ in ready.values() if clock.now() - since >= 5_000]
            assert not overdue or at <= min(overdue), "a later one went before one that has waited too long"
            assert (
                overdue
                or clock.now() - at >= 5_000
                or priority <= min((p for _, p in ready.values()), default=priority)
            )
            message.ack()


@pytest.mark.parametrize("pause", ["0s", "2h"])
def test_ageing_with_many_fairness_keys_looks_at_few(pause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    q = Broker(clock=clock)
    q.configure(TOPIC, policy="ageing", age_limit="1h", fairness=True)
    q.publish_many(TOPIC, [Draft(b"", fairness_key=f"k{number}") for number in range(3_000)])
    clock.advance(pause)
    first = q.receive(TOPIC)
    looks = 0
    is_dry = Lineup._is_dry

    def counted(lineup: Lineup, queue: Queue) -> bool:
        nonlocal looks
        looks += 1
        return is_dry(lineup, queue)

    monkeypatch.setattr(Lineup, "_is_dry", counted)
    rest = q.receive(TOPIC, limit=1_000)
    assert len({message.fairness_key for message in first + rest}) == 1_001
    assert looks < 10 * len(rest)


def test_what_is_looked_at_and_remembered_has_a_bound() -> None:
    q = Broker(clock=ManualClock(), retention={"on_ack": True})
    q.configure(TOPIC, fairness=True, ordered=True, in_flight_max=10)
    for start in range(0, LOOK_AHEAD_RUNS_MAX + 30_000, 10_000):
        keys = [f"k{number}" for number in range(start, start + 10_000)]
        q.publish_many(TOPIC, [Draft(b"", key=key, fairness_key=key) for key in keys])
    q.receive(TOPIC, limit=3)
    [group] = q._engine.store.state.names["default", TOPIC].groups.values()
    [reader] = group.readers
    assert LOOK_AHEAD_RUNS_MAX - 3 <= len(reader.parked) <= LOOK_AHEAD_RUNS_MAX
    assert group.turns is not None
    while messages := q.receive(TOPIC, limit=1_000):
        q.ack(messages)
    q.receive(TOPIC)
    assert not reader.parked
    assert (len(group.turns.chains), len(group.turns.flows or ()), group.turns.unknown) == (3, 3, [])


def test_priorities_that_are_gone_are_forgotten() -> None:
    q = Broker(clock=ManualClock())
    q.configure(TOPIC, ordered=True)
    for priority in range(200):
        q.publish(TOPIC, b"", key="k", priority=priority)
        q.ack(q.receive(TOPIC, limit=1 + priority % 2))
    [group] = q._engine.store.state.names["default", TOPIC].groups.values()
    assert group.turns is not None
    assert not group.turns._drawn


@profile(100, 3_000)
@given(st.integers(0, 2**32))
def test_ordered_who_is_free_goes_in_the_order_of_the_topic(seed: int) -> None:
    """However few are looked at in one go, and however many lie before it whose keys are held."""
    chance, clock = Random(seed), ManualClock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turns, "_AT_ONCE", chance.choice([0, 2]))
        patch.setattr(turns, "FRAME_ROWS_MAX", chance.choice([1, 3]))
        q = Broker(clock=clock)
        q.configure(TOPIC, ordered=True, partitions=chance.choice([1, 2, 3]))
        ready: list[tuple[int, int, int, int, str]] = []
        held: list[tuple[Message, tuple[int, int, int, int, str]]] = []
        for _ in range(60):
            match chance.choice(["publish", "receive", "receive", "receive", "settle"]):
                case "publish":
                    clock.advance("1ms")
                    lane, keys = chance.choice([0, 50]), chance.choices("aaaaabcd", k=chance.choice([1, 5, 20]))
                    receipts = q.publish_many(TOPIC, [Draft(b"", key=key, priority=lane) for key in keys])
                    ready += [
                        (lane, clock.now(), r.offset, r.partition, k) for r, k in zip(receipts, keys, strict=True)
                    ]
                case "receive":
                    limit, first = chance.choice([1, 1, 4]), True
                    for message in q.receive(TOPIC, limit=limit):
                        taken = {entry[4] for _, entry in held}
                        expected = min(entry for entry in ready if entry[4] not in taken)
                        assert (message.priority, message.partition, message.offset) == (
                            expected[0],
                            expected[3],
                            expected[2],
                        )
                        ready.remove(expected)
                        held.append((message, expected))
                        first = False
                    taken = {entry[4] for _, entry in held}
                    assert not first or all(entry[4] in taken for entry in ready), "nobody got what is free"
                case "settle" if held:
                    message, entry = held.pop(chance.randrange(len(held)))
                    if chance.random() < 0.7:
                        message.ack()
                    else:
                        message.release()
                        ready.append(entry)


def test_flags_of_diverted_keys_outlive_the_broker(tmp_path: Any) -> None:
    clock = ManualClock()
    with Broker(tmp_path, clock=clock, storage=mqueue.Storage(reserve_bytes=0)) as q:
        q.configure(TOPIC, ordered=True, on_failure="divert")
        q.publish_many(TOPIC, [Draft(b"1", key="k"), Draft(b"2", key="other"), Draft(b"3", key="other")])
        [message] = q.receive(TOPIC)
        message.reject()
    with Broker(tmp_path, clock=clock, storage=mqueue.Storage(reserve_bytes=0)) as q:
        q.publish(TOPIC, b"4", key="k")
        assert [m.payload for m in q.receive(TOPIC, limit=10)] == [b"2"]
        assert [m.payload for m in q.dlq(TOPIC).messages()] == [b"1", b"4"]
        assert q.stats(TOPIC).groups["default"].diverted_keys == 1


def test_who_holds_a_key_is_known_after_a_restart(tmp_path: Any) -> None:
    clock = ManualClock()
    storage = mqueue.Storage(reserve_bytes=0)
    with Broker(tmp_path, clock=clock, storage=storage) as q:
        q.configure(TOPIC, ordered=True)
        q.publish_many(TOPIC, [Draft(f"{key}{n}", key=key) for n in range(100) for key in "abcd"])
        held = q.receive(TOPIC, limit=3)
        held[0].nack(delay="1h")
        q._engine.close(keep_leases=True)
    with Broker(tmp_path, clock=clock, storage=storage) as q:
        assert [m.payload for m in q.receive(TOPIC, limit=10)] == [b"d0"]
        clock.advance("1h")
        assert [m.payload for m in q.receive(TOPIC, limit=10)] == [b"a0", b"b0", b"c0", b"d0"]
