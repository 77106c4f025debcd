"""Cursors and transactions against a model of a few sets: what is pinned stays, what is staged shows once or never.

After every step the fold of the log is compared with the living state. `MQUEUE_LAWS` as in `test_machine`.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import seed
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from mqueue import Broker, Conflict, Draft, NotFound
from mqueue.heart.checkpoint import checkpoint
from mqueue.store.recover import recover
from mqueue.testing import ManualClock
from tests.laws.profile import LONG, SEED, profile
from tests.laws.snapshot import differences, heart_of, snapshot

TOPICS = st.sampled_from(["t", "u"])
IDS = st.sampled_from(["x/1", "x/2"])
PARTS = st.sampled_from(["", "a", "b"])
RULES = st.sampled_from([{}, {"on_ack": True}, {"hours": 1}, {"compact": True}, {"bytes": 500}])
DAY_MS, WEEK_MS = 24 * 3_600_000, 7 * 24 * 3_600_000


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.q = Broker(clock=self.clock, retention={})
        self.store = self.q._engine.store
        self.count = 0
        self.shown: dict[str, set[bytes]] = {"t": set(), "u": set()}
        self.staged: dict[str, dict[str, tuple[str, list[bytes]]]] = {}
        self.until: dict[str, int] = {}
        self.over: dict[str, tuple[str, int]] = {}
        self.pins: dict[tuple[str, str], tuple[list[int], list[set[int]], list[int], int]] = {}
        """Offsets, what of each partition was there from them on, where it ended, and until when that holds."""
        for topic in ("t", "u"):
            self.q.configure(topic, partitions=1)

    # What users do

    @rule(topic=TOPICS, count=st.integers(1, 6), keyed=st.booleans())
    def publish(self, topic: str, count: int, keyed: bool) -> None:
        drafts = self._drafts(count, keyed)
        self.q.publish_many(topic, drafts)
        self.shown[topic] |= {draft.payload for draft in drafts}

    @rule(topic=TOPICS, retention=RULES, keyed=st.booleans())
    def wear(self, topic: str, retention: dict[str, Any], keyed: bool) -> None:
        """Give retention something to drop, and the time to do it."""
        self.q.configure(topic, retention=retention)
        self.publish(topic, 6, keyed)
        self.work(topic, 100)
        self.pass_time("61s")
        self.pass_time("61s")

    @rule(topic=TOPICS, limit=st.integers(1, 20))
    def work(self, topic: str, limit: int) -> None:
        self.q.ack(self.q.receive(topic, limit))

    @rule(topic=TOPICS, retention=RULES, partitions=st.integers(1, 3))
    def configure(self, topic: str, retention: dict[str, Any], partitions: int) -> None:
        more = max(partitions, self.q.settings(topic)["partitions"])
        self.q.configure(topic, retention=retention, partitions=more)

    @rule(topic=TOPICS, sure=st.integers(0, 4))
    def delete_topic(self, topic: str, sure: int) -> None:
        if sure == 0:
            self.q.delete_topic(topic)
            self.q.configure(topic, partitions=1)
            self.shown[topic].clear()
            self.pins = {key: pin for key, pin in self.pins.items() if key[0] != topic}

    @rule(step=st.sampled_from(["10ms", "3s", "61s", "61s", "2h", "25h", "8d"]))
    def pass_time(self, step: str) -> None:
        self.clock.advance(step)
        now = self.clock.now()
        for id in [id for id in self.staged if self.until[id] <= now]:
            del self.staged[id]
            self.over[id] = ("aborted", now)
            assert self.q.transaction(id).state == "aborted"
        self.over = {id: end for id, end in self.over.items() if end[1] + WEEK_MS > now}
        self.pins = {key: pin for key, pin in self.pins.items() if pin[3] > now}
        self.q.stats("t")

    # Cursors

    @rule(topic=TOPICS, name=st.sampled_from(["c", "d"]), back=st.integers(0, 9), moved=st.booleans())
    def set_cursor(self, topic: str, name: str, back: int, moved: bool) -> None:
        partitions = self.store.state.names["default", topic].partitions
        given = {0: max(partitions[0].first, partitions[0].next - back)} if moved else None
        cursor = self.q.set_cursor(topic, name, given, ttl="2h")
        known = self.pins.get((topic, name))
        places = [partition.first for partition in partitions]
        if known is not None:
            places[: len(known[0])] = known[0]
        places = [given[0], *places[1:]] if given else places
        assert cursor.offsets == dict(enumerate(places))
        there = [
            {offset for offset in range(place, partition.next) if partition.is_alive(offset)}
            for place, partition in zip(places, partitions, strict=True)
        ]
        ends = [partition.next for partition in partitions]
        self.pins[topic, name] = (places, there, ends, self.clock.now() + 7_200_000)

    @rule(topic=TOPICS, name=st.sampled_from(["c", "d"]))
    def delete_cursor(self, topic: str, name: str) -> None:
        if self.pins.pop((topic, name), None) is None:
            with pytest.raises(NotFound):
                self.q.delete_cursor(topic, name)
        else:
            self.q.delete_cursor(topic, name)

    # Transactions

    @rule(id=IDS, part=PARTS, topic=TOPICS, count=st.integers(1, 6), keyed=st.booleans())
    def stage(self, id: str, part: str, topic: str, count: int, keyed: bool) -> None:
        drafts = self._drafts(count, keyed)
        if id in self.over:
            return self._refused(lambda: self.q.stage(id, topic, drafts, part=part), id)
        self.q.stage(id, topic, drafts, part=part)
        self.staged.setdefault(id, {})[part] = (topic, [draft.payload for draft in drafts])
        self.until[id] = self.clock.now() + DAY_MS
        return None

    @rule(id=IDS, chosen=st.none() | st.sets(PARTS))
    def commit(self, id: str, chosen: set[str] | None) -> None:
        if id not in self.staged and self.over.get(id, ("", 0))[0] != "committed":
            return self._refused(lambda: self.q.commit(id, chosen), id)
        if chosen is not None and not chosen <= self.staged.get(id, dict.fromkeys(chosen)).keys():
            with pytest.raises(Conflict, match="nothing is published"):
                self.q.commit(id, chosen)
            return None
        answer = self.q.commit(id, chosen)
        assert answer.state == "committed"
        if id in self.staged:
            parts = {name: part for name, part in self.staged.pop(id).items() if chosen is None or name in chosen}
            assert (answer.parts, answer.messages) == (len(parts), sum(len(some) for _, some in parts.values()))
            self.over[id] = ("committed", self.clock.now())
            for topic, payloads in parts.values():
                self.shown[topic] |= set(payloads)
                assert set(payloads) <= {message.payload for message in self.q.scan(topic)}
        return None

    @rule(id=IDS)
    def abort(self, id: str) -> None:
        if id not in self.staged and self.over.get(id, ("", 0))[0] != "aborted":
            return self._refused(lambda: self.q.abort(id), id)
        assert self.q.abort(id).state == "aborted"
        if self.staged.pop(id, None) is not None:
            self.over[id] = ("aborted", self.clock.now())
        return None

    @rule(whole=st.booleans())
    def checkpoint(self, whole: bool) -> None:
        self.store.flush()
        topics = [topic for topic in self.store.state.topics.values() if whole or topic.hidden]
        self.store.log.checkpoint(checkpoint(self.store.state, topics, self.clock.now()))

    # What must hold

    @invariant()
    def what_shows_was_published_and_shows_once(self) -> None:
        assert set(self.q.topics()) == {"t", "u"}
        assert self.q.metrics()["topics"] == 2
        for topic, shown in self.shown.items():
            found = [message.payload for message in self.q.scan(topic)]
            assert len(set(found)) == len(found)
            assert set(found) <= shown

    @invariant()
    def what_is_pinned_is_there(self) -> None:
        for (topic, name), (places, there, ends, _) in self.pins.items():
            assert name in [cursor.name for cursor in self.q.cursors(topic)]
            partitions = self.store.state.names["default", topic].partitions
            for number, partition in enumerate(partitions):
                alive = {offset for offset in range(partition.next) if partition.is_alive(offset)}
                if number < len(places):
                    assert there[number] <= alive
                    assert set(range(ends[number], partition.next)) <= alive
                else:
                    assert alive == set(range(partition.next))

    @invariant()
    def folding_the_log_gives_the_state(self) -> None:
        self.q.stats("t")
        self.store.flush()
        now = self.clock.now()
        folded = heart_of(recover(self.store.log))
        folded.advance(now)
        live, told = snapshot(self.store.state, now), snapshot(folded.state, now)
        del live["recent"], told["recent"]  # a log forgets them with their topic
        assert not list(differences(live, told))

    def _drafts(self, count: int, keyed: bool) -> list[Draft]:
        self.count += count
        numbers = range(self.count - count, self.count)
        return [Draft(b"%d" % n, key=f"k{n % 3}" if keyed else None, priority=n % 2 * 50) for n in numbers]

    def _refused(self, call: Any, id: str) -> None:
        with pytest.raises(Conflict if id in self.over else NotFound):
            call()


@pytest.mark.timeout(0 if LONG else 300)
def test_cursors_and_transactions_are_the_model() -> None:
    print(f"MQUEUE_LAWS_SEED={SEED}")
    run_state_machine_as_test(seed(SEED)(Machine), settings=profile(120, 2_000, steps=60 if LONG else 30))
