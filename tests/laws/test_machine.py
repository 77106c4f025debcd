"""The real broker and the model queue, driven by the same calls: they must agree on everything a user can see.

After every step the statistics, the dead letters and the fold of the log are compared. `MQUEUE_LAWS=long` runs many
more and longer histories, from a seed that is printed; `MQUEUE_LAWS_SEED=n` repeats a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import seed
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from mqueue import Broker, Conflict, Draft, LeaseLost, Message, QueueFull, Receipt, Refused
from mqueue.heart.checkpoint import checkpoint
from mqueue.heart.runs import each
from mqueue.store.recover import recover
from mqueue.store.retain import retain
from mqueue.testing import ManualClock
from tests.laws.drafts import DRAFTS, ms, typed
from tests.laws.model import Dead, Model, Msg, Rules, in_order
from tests.laws.profile import LONG, SEED, profile
from tests.laws.snapshot import differences, heart_of, snapshot

TOPIC = "t"
YEAR_MS = 365 * 24 * 3_600_000
GROUPS = st.sampled_from(["default", "g1", "g2"])
VISIBILITIES = st.sampled_from([None, 20, 1_000, 5_000, 7_200_000])
LIMITS = st.sampled_from([1, 1, 2, 3, 5, 8, 12, 60])
STEPS = st.sampled_from([2, 10, 20, 1_000, 1_000, 4_000, 30_000, 61_000, 61_000, 3_700_000])
PICK = st.integers(0, 1_000_000)
VERBS = st.sampled_from(["ack", "ack", "nack", "nack", "reject", "release", "extend"])
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "partitions": st.sampled_from([2, 3]),
        "max_retries": st.sampled_from([0, 1, None]),
        "in_flight_max": st.sampled_from([2, 5]),
        "backoff": st.sampled_from(["10ms", "3s"]),
        "max_depth": st.sampled_from([3, 6]),
        "overflow": st.sampled_from(["refuse", "drop_oldest", "drop_ready"]),
        "dlq_expired": st.booleans(),
        "dlq_dropped": st.booleans(),
        "dedup": st.sampled_from(["window", "until_acked", "forever"]),
        "retention": st.sampled_from(
            [{"on_ack": True}, {"compact": True}, {"compact": True, "on_ack": True}, {"hours": 1}]
        ),
    },
)


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.q = Broker(clock=self.clock, dedup_window="20s", retention={})
        self.store = self.q._engine.store
        self.store._jitter = lambda: 0.0
        self.model = Model(self.clock.now(), Rules())
        self.points = self.sound = False
        self.handed: list[tuple[Message, int]] = []
        self.last_id = self.count = 0
        self.last_token = b""

    @initialize(settings=SETTINGS, points=st.booleans())
    def begin(self, settings: dict[str, Any], points: bool) -> None:
        self.points = points
        self.q.configure(TOPIC, **settings)
        self._learn(settings)

    # Publish

    @rule(draft=DRAFTS, idem=st.sampled_from([None, None, "i1", "i2"]), payload=st.sampled_from([None, b"same"]))
    def publish(self, draft: dict[str, Any], idem: str | None, payload: bytes | None) -> None:
        body = self._payload() if payload is None else payload
        known = None if idem is None else self.model.claim(idem)
        if known is not None and known.payload != body:
            with pytest.raises(Conflict):
                self.q.publish(TOPIC, body, idempotency_key=idem, **typed(draft))
            return
        if known is not None:
            receipt = self.q.publish(TOPIC, body, idempotency_key=idem, **typed(draft))
            assert (receipt.id, receipt.duplicate) == (known.id, True)
            return
        receipts = self._publish(
            [draft | {"payload": body}], lambda: [self.q.publish(TOPIC, body, idempotency_key=idem, **typed(draft))]
        )
        if receipts and idem is not None:
            self.model.claims[idem] = receipts[0].id

    @rule(drafts=st.lists(DRAFTS, min_size=1, max_size=8))
    def publish_many(self, drafts: list[dict[str, Any]]) -> None:
        bodies = [draft | {"payload": self._payload()} for draft in drafts]
        items = [Draft(body["payload"], **typed(body)) for body in bodies]
        self._publish(bodies, lambda: self.q.publish_many(TOPIC, items))

    @rule(count=st.integers(1, 20))
    def publish_plain(self, count: int) -> None:
        plain: dict[str, Any] = {"priority": None, "delay": None, "ttl": None, "key": None}
        bodies = [plain | {"payload": self._payload()} for _ in range(count)]
        self._publish(bodies, lambda: self.q.publish_many(TOPIC, [body["payload"] for body in bodies]))

    # Deliver

    @rule(
        group=GROUPS,
        limit=LIMITS,
        visibility=VISIBILITIES,
        once=st.sampled_from([False, False, False, True]),
    )
    def receive(self, group: str, limit: int, visibility: int | None, once: bool) -> None:
        if group not in self.model.groups:
            self.model.make_group(group, self.model.firsts)
        ready = self.model.ready(group)
        mode = "at_most_once" if once else "at_least_once"
        messages = self.q.receive(TOPIC, limit, group=group, visibility=ms(visibility), mode=mode)
        ids = [message.id for message in messages]
        _nothing_in(in_order(ready, min(limit, self.model.room(group)), ids))
        if not messages:
            return
        token = messages[0]._lease.token
        assert token > self.last_token
        self.last_token = token
        attempts = self.model.lease(group, token, ids, self.model.now + (30_000 if visibility is None else visibility))
        assert [message.attempt for message in messages] == attempts
        for message in messages:
            self._same(message, self.model.messages[message.id])
        if once:
            self.model.settle(token, "ack", ids)
        self.handed = [*self.handed, *((message, token) for message in messages)][-60:]

    @precondition(lambda self: self.handed)
    @rule(pick=PICK, verb=VERBS, delay=st.sampled_from([None, 0, 20, 5_000, 600_000]))
    def settle_one(self, pick: int, verb: str, delay: int | None) -> None:
        message, token = self.handed[pick % len(self.handed)]
        if verb == "extend":
            settled, _ = self.model.extend(token, [message.id], self.model.now + 10_000)
        else:
            settled, _ = self.model.settle(token, verb, [message.id], delay if verb == "nack" else None)
        arguments: dict[str, list[str | None]] = {"nack": [ms(delay)], "extend": ["10s"]}
        argument = arguments.get(verb, [])
        if settled:
            getattr(message, verb)(*argument)
        else:
            with pytest.raises(LeaseLost):
                getattr(message, verb)(*argument)

    @precondition(lambda self: self.handed)
    @rule(pick=PICK, size=st.integers(1, 8), stride=st.integers(1, 3), verb=VERBS)
    def settle_many(self, pick: int, size: int, stride: int, verb: str) -> None:
        first = pick % len(self.handed)
        chosen = self.handed[first : first + size * stride : stride]
        settled, lost = 0, []
        for message, token in chosen:
            if verb == "extend":
                done, gone = self.model.extend(token, [message.id], self.model.now + 10_000)
            else:
                done, gone = self.model.settle(token, verb, [message.id])
            settled += done
            lost += gone
        call = getattr(self.q, verb)
        messages = [message for message, _ in chosen]
        if settled:
            answer = call(messages, "10s") if verb == "extend" else call(messages)
            assert (answer.settled, Counter(answer.lost)) == (settled, Counter(lost))
        else:
            with pytest.raises(LeaseLost) as error:
                call(messages, "10s") if verb == "extend" else call(messages)
            assert Counter(error.value.lost) == Counter(lost)

    # Time

    @rule(ms=STEPS, fine=st.booleans())
    def advance(self, ms: int, fine: bool) -> None:
        target = self.model.now + ms
        while (fine or self._tangled(target)) and (stops := self.model.moments(target)):
            self._move(stops[0])
        self._move(target)

    # Manage

    @precondition(lambda self: self.model.messages)
    @rule(pick=PICK, to=st.sampled_from([None, 10, 20, 1_000, 3_000, 60_000]))
    def cancel_or_reschedule(self, pick: int, to: int | None) -> None:
        scheduled = [m.id for m in self.model.scheduled]
        kept = [m.id for m in self.model.messages.values() if m.state != "gone"]
        if not kept:
            return
        message = self._pick(pick, scheduled or kept)
        late = to is not None and bool(message.expires) and self.model.now + to >= message.expires
        if message.state != "scheduled":
            with pytest.raises(Conflict):
                self.q.cancel(message.id) if to is None else self.q.reschedule(message.id, delay=ms(to))
        elif to is None:
            self.q.cancel(message.id)
            self.model.end(message, "cancelled")
        elif not late:
            self.q.reschedule(message.id, delay=ms(to))
            message.due = self.model.now + to

    @rule(sure=st.integers(0, 5))
    def purge(self, sure: int) -> None:
        if sure == 0:
            assert self.q.purge(TOPIC) == self.model.purge()

    @rule(group=GROUPS, sure=st.integers(0, 5))
    def purge_ready(self, group: str, sure: int) -> None:
        if sure == 0:
            if group not in self.model.groups:
                self.model.make_group(group, self.model.firsts)
            assert self.q.purge(TOPIC, ready_for=group) == self.model.purge_ready(group)

    @rule(group=GROUPS, to=st.sampled_from(["earliest", "earliest", "latest", 0, 2, 5]))
    def seek(self, group: str, to: str | int) -> None:
        if isinstance(to, int) and to > max(self.model.ends):
            with pytest.raises(Refused, match="beyond the log"):
                self.q.create_group(TOPIC, f"{group}-anew", start=to)
        elif group in self.model.groups:
            self.q.seek(TOPIC, group=group, to=to)
            self.model.seek(group, self._starts(to))
        else:
            self.q.create_group(TOPIC, group, start=to)
            self.model.make_group(group, self._starts(to))

    @rule(group=GROUPS, sure=st.integers(0, 3))
    def delete_group(self, group: str, sure: int) -> None:
        if sure == 0 and group in self.model.groups:
            self.q.delete_group(TOPIC, group)
            del self.model.groups[group]

    @precondition(lambda self: self.model.dlq)
    @rule(pick=PICK, size=st.integers(1, 4))
    def redrive(self, pick: int, size: int) -> None:
        first = pick % len(self.model.dlq)
        chosen = [dead for dead in self.model.dlq[first : first + size] if self._redrivable(dead)]
        asked = Counter(chosen)
        wanted = Counter(chosen)

        def next_one(message: Any) -> bool:
            dead = _dead(message)
            wanted[dead] -= 1
            return wanted[dead] >= 0

        answer = self.q.dlq(TOPIC).redrive(filter=next_one)
        assert answer.redriven == asked.total()
        anew = [dead for dead in chosen if self.model.redrive(dead) == "gone"]
        self._adopt(Counter(self.model.messages[dead.id].payload for dead in anew))

    @rule(settings=SETTINGS)
    def configure(self, settings: dict[str, Any]) -> None:
        settings.pop("dedup", None)
        settings["partitions"] = max(len(self.model.ends), settings.get("partitions", 1))
        self.q.configure(TOPIC, **settings)
        self._learn(settings)

    @precondition(lambda self: self.points)
    @rule(whole=st.booleans())
    def checkpoint(self, whole: bool) -> None:
        self.store.flush()
        state = self.store.state
        topics = list(state.topics.values()) if whole else [state.names["default", TOPIC]]
        self.store.log.checkpoint(checkpoint(state, topics, self.model.now))

    @rule(restart=st.booleans())
    def retain(self, restart: bool) -> None:
        """Retention comes by, perhaps after it has lost what it remembers."""
        if restart:
            self.store.visits.clear()
        retain(self.store, [self.store.state.names["default", TOPIC]], self.model.now)
        self._trim()
        if self.model.rules.compact:
            _nothing_in(self.model.uncompacted())

    # Look

    @rule(group=GROUPS)
    def explain(self, group: str) -> None:
        ready = self.model.ready(group) if group in self.model.groups else []
        for id, message in self.model.messages.items():
            if message.state == "gone":
                continue
            want, got = self.model.explain(id, group), self.q.explain(id, group=group).code
            tied = len(self.model.ends) > 1 and ready and message.order[:2] == ready[0].order[:2]
            assert got == want or (tied and {got, want} == {"ready", "behind"}), (id, got, want)

    @rule(group=GROUPS, limit=st.integers(1, 20))
    def peek(self, group: str, limit: int) -> None:
        if group in self.model.groups:
            seen = [message.id for message in self.q.peek(TOPIC, limit, group=group)]
            _nothing_in(in_order(self.model.ready(group), limit, seen))

    @rule()
    def look(self) -> None:
        due = sorted((m.due, m.partition, m.offset, m.id) for m in self.model.scheduled)
        assert [m.id for m in self.q.scheduled(TOPIC, 10_000)] == [entry[3] for entry in due]
        seen = list(self.q.scan(TOPIC))
        places = sorted((m.partition, m.offset) for m in self.model.messages.values() if m.state != "gone")
        assert [(message.partition, message.offset) for message in seen] == places
        for message in seen:
            self._same(message, self.model.messages[message.id])

    @invariant()
    def the_numbers_agree(self) -> None:
        stats, model = self.q.stats(TOPIC), self.model
        assert (stats.published, stats.scheduled) == (len(model.messages), len(model.scheduled))
        assert stats.depth == model.depth
        assert stats.retained == sum(message.state != "gone" for message in model.messages.values())
        assert set(stats.groups) == set(model.groups)
        for name, group in model.groups.items():
            real = stats.groups[name]
            for state in ("ready", "waiting", "leased", "acked", "dead", "expired", "cancelled"):
                assert getattr(real, state) == group.count(state), (name, state, real)
            assert real.delivered == group.delivered
            oldest = min((m.visible_at for m in model.ready(name)), default=None)
            assert real.oldest_ready_seconds == (None if oldest is None else (model.now - oldest) / 1000)

    @invariant()
    def the_dead_agree(self) -> None:
        found = self.q.dlq(TOPIC).messages(10_000)
        assert Counter(map(_dead, found)) == Counter(self.model.dlq)
        for message in found:
            origin = self.model.messages[_dead(message).id]
            assert (message.payload, message.key, message.priority) == (origin.payload, origin.key, origin.priority)
            assert {k: v for k, v in message.headers.items() if not k.startswith("x-")} == origin.headers

    @invariant()
    def folding_the_log_gives_the_state(self) -> None:
        self.sound = False
        self.q.stats(TOPIC)
        self.store.flush()
        folded = heart_of(recover(self.store.log))
        folded.advance(self.model.now)
        assert not folded.news, "the fold had to decide something that is not in the log"
        now = self.model.now
        _nothing_in(differences(snapshot(self.store.state, now), snapshot(folded.state, now)))
        for name, group in self.store.state.names["default", TOPIC].groups.items():
            known = folded.state.names["default", TOPIC].groups[name].heard_at
            assert 0 <= group.heard_at - known < 3_600_000, f"a restart would forget that {name} was heard of"
        self.sound = True

    def teardown(self) -> None:
        """The folded state is not only equal, it also lives on in the same way."""
        if not self.sound:
            return
        self.store.flush()
        live, folded = self.store.heart, heart_of(recover(self.store.log))
        folded.advance(self.model.now)
        end = self.model.now + YEAR_MS
        while (now := max(self.model.now, min(live.next_at, folded.next_at))) < end:
            live.advance(now)
            folded.advance(now)
            _nothing_in(differences(snapshot(live.state, now), snapshot(folded.state, now)))

    # Inside

    def _publish(self, bodies: list[dict[str, Any]], call: Any) -> list[Receipt]:
        """Publish messages that are all new, and tell the model."""
        model, count = self.model, len(bodies)
        full = model.full(count)
        if full and not model.could_drop(count):
            with pytest.raises(QueueFull):
                call()
            return []
        receipts: list[Receipt] = call()
        if full:
            model.drop([m.id for m in model.messages.values() if m.state == "visible" and self._void(m)], count)
        now = self.model.now
        assert min(receipt.id for receipt in receipts) > self.last_id
        self.last_id = self.store.ids._next - 1
        places: dict[tuple[int, int, int], int] = {}
        for receipt, body in zip(receipts, bodies, strict=True):
            assert not receipt.duplicate
            key = None if body["key"] is None else body["key"].encode()
            if key is not None:
                assert receipt.partition == _fnv(key) % len(self.model.ends)
            due = now + (body["delay"] or 0)
            expires = 0 if body["ttl"] is None else due + body["ttl"]
            priority = 50 if body["priority"] is None else body["priority"]
            headers = {} if body["key"] is None else {"h": body["key"]}
            place = (receipt.partition, priority, due)
            assert receipt.offset > places.get(place, -1), "the order of the call is lost"
            places[place] = receipt.offset
            where = (receipt.id, receipt.partition, receipt.offset)
            self.model.publish(Msg(*where, priority, now, due, expires, body["payload"], key, headers))
        return receipts

    def _void(self, message: Msg) -> bool:
        return message.offset in self.store.state.names["default", TOPIC].partitions[message.partition].void

    def _adopt(self, payloads: Counter[bytes]) -> None:
        """Messages that were published anew: the model learns their places."""
        fresh = [m for m in self.q.scan(TOPIC) if m.id not in self.model.messages]
        assert Counter(message.payload for message in fresh) == payloads
        now = self.model.now
        for message in fresh:
            headers = {name: str(value) for name, value in message.headers.items()}
            where = (message.id, message.partition, message.offset)
            self.model.publish(Msg(*where, message.priority, now, now, 0, message.payload, message.key, headers))

    def _learn(self, settings: dict[str, Any]) -> None:
        rules = self.model.rules
        if "max_retries" in settings:
            rules.attempts_max = None if settings["max_retries"] is None else settings["max_retries"] + 1
        if "backoff" in settings:
            rules.backoff_ms = {"10ms": 10, "3s": 3_000}[settings["backoff"]]
        rules.in_flight_max = settings.get("in_flight_max", rules.in_flight_max)
        rules.max_depth = settings.get("max_depth", rules.max_depth)
        rules.overflow = settings.get("overflow", rules.overflow)
        rules.dlq_expired = settings.get("dlq_expired", rules.dlq_expired)
        rules.dlq_dropped = settings.get("dlq_dropped", rules.dlq_dropped)
        rules.dedup = settings.get("dedup", rules.dedup)
        if "retention" in settings:
            rules.on_ack = settings["retention"].get("on_ack", False)
            rules.compact = settings["retention"].get("compact", False)
            rules.hours = settings["retention"].get("hours")
        for _ in range(len(self.model.ends), settings.get("partitions", 1)):
            self.model.ends.append(0)
            self.model.floors.append(0)
            self.model.kept.append(set())
            for group in self.model.groups.values():
                group.starts.append(0)

    def _redrivable(self, dead: Dead) -> bool:
        """Leave out what would be published anew into a full topic, and what died in a group that was deleted."""
        gone = self.model.messages[dead.id].state != "visible"
        return (not gone and dead.group in self.model.groups) or (gone and self.model.rules.max_depth is None)

    def _tangled(self, target: int) -> bool:
        """Whether a lease and the message it holds would both run out: then the order of the two matters."""
        return any(
            entry.state == "leased" and entry.until <= target and 0 < self.model.messages[id].expires <= target
            for group in self.model.groups.values()
            for id, entry in group.entries.items()
        )

    def _move(self, now: int) -> None:
        self.clock.advance(f"{now - self.model.now}ms")
        self.q.stats(TOPIC)
        self.model.advance(now)
        self._trim()

    def _trim(self) -> None:
        """Tell the model what retention dropped."""
        topic = self.store.state.names["default", TOPIC]
        kept = [{offset for a, mask in p.kept.spans() for offset in each(a, mask)} for p in topic.partitions]
        self.model.trim(list(topic.floors), kept)

    def _starts(self, to: str | int) -> list[int]:
        if isinstance(to, int):
            pairs = zip(self.model.firsts, self.model.ends, strict=True)
            return [min(max(to, first), end) for first, end in pairs]
        return self.model.firsts if to == "earliest" else list(self.model.ends)

    def _same(self, message: Message, known: Msg) -> None:
        assert (message.payload, message.key, message.priority) == (known.payload, known.key, known.priority)
        assert (message.partition, message.offset, dict(message.headers)) == (
            known.partition,
            known.offset,
            known.headers,
        )

    def _pick(self, pick: int, ids: list[int]) -> Msg:
        return self.model.messages[ids[pick % len(ids)]]

    def _payload(self) -> bytes:
        self.count += 1
        return b"m%d" % self.count


def _nothing_in(complaints: Iterable[str]) -> None:
    found = list(complaints)
    assert not found, found


def _fnv(data: bytes) -> int:
    state = 0x811C9DC5
    for byte in data:
        state = (state ^ byte) * 0x01000193 % 2**32
    return state


def _dead(message: Any) -> Dead:
    return Dead(int(message.headers["x-origin-id"]), message.group, message.attempts, message.reason)


@pytest.mark.timeout(0 if LONG else 300)
def test_the_broker_is_the_model() -> None:
    print(f"MQUEUE_LAWS_SEED={SEED}")
    run_state_machine_as_test(seed(SEED)(Machine), settings=profile(800, 6_000, steps=60 if LONG else 40))
