"""Random lives of assigned groups on a real store, by a seed: joins, leaves, deaths, restarts, growth, late settles,
and in half of them policies, fairness keys and ordering keys that change as they go.

After every step the promises are checked against what was handed out, and now and then the folded log against the
state. No threads, no clock but the one that is moved here.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from typing import Any

import mqueue
from mqueue.heart.checkpoint import checkpoint
from mqueue.heart.crew import Crew
from mqueue.model.limits import MEMBER_SESSION_MS, REBALANCE_PATIENCE_MS
from mqueue.store.recover import recover
from mqueue.testing import ManualClock
from tests.laws.snapshot import differences, heart_of, snapshot

TOPIC, GROUP = "t", "g"
PARTITIONS_MAX = 9
MEMBERS_MAX = 7
KEY_LIMIT = 3
RULES: list[dict[str, Any]] = [
    {"policy": "strict"},
    {"policy": "weighted"},
    {"policy": "ageing", "age_limit": "3s"},
    {"ordered": True},
    {"ordered": False},
    {"fairness": False},
    {"fairness": True},
    {"fairness": {"in_flight_max": KEY_LIMIT}},
    {"fairness": {"rate": 50}},
]


class Lives:
    """`problems`: what was promised and is not so."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.q = mqueue.Broker(clock=self.clock, partitions=self.chance.randint(1, 6), max_retries=None)
        self.q.create_group(TOPIC, GROUP, assigned=True)
        self.seats: dict[str, mqueue.Membership] = {}
        """Who we take for a member; of some the broker knows better."""
        self.silent: set[str] = set()
        """Those whose heartbeats are lost."""
        self.hands: list[tuple[str, Any]] = []
        """(member, message) of what is held, as far as those who hold it know."""
        self.done: set[int] = set()
        self.sent = 0
        self.last: dict[bytes, int] = {}
        """Of each key, the number that was acked last."""
        self.problems: list[str] = []
        self.moves = 0
        self.turning = seed % 2 == 1
        """Whether messages take turns, now and then."""
        self.free: set[int] = set()
        """What is held since before a limit of keys was set: it need not heed that."""

    @property
    def store(self) -> Any:
        return self.q._engine.store

    @property
    def crew(self) -> Crew:
        crew: Crew = self.store.state.names["default", TOPIC].groups[GROUP].crew
        return crew

    def run(self, steps: int) -> None:
        for _ in range(steps):
            verb = self.chance.choices(list(_STEPS), weights=list(_STEPS.values()))[0]
            before = self._before()
            getattr(self, verb)()
            self._check(verb, before)
            if self.problems:
                return
            if self.chance.random() < 0.05:
                self._check_fold()
        self._check_progress()

    # Steps

    def publish(self) -> None:
        for _ in range(self.chance.randint(1, 8)):
            key = b"k%d" % self.chance.randrange(12)
            priority = self.chance.choice([0, 50, 100]) if self.turning else 50
            self.q.publish(TOPIC, b"%d" % self.sent, key=key, priority=priority, fairness_key=f"f{self.sent % 3}")
            self.sent += 1

    def change(self) -> None:
        """Other rules for whose turn it is; whoever works goes on."""
        if self.turning:
            self.q.configure(TOPIC, **self.chance.choice(RULES))
            self.free = {message.id for message in self._live()}

    def join(self) -> None:
        name = f"m{self.chance.randrange(MEMBERS_MAX)}"
        self.seats[name] = self.q.join(TOPIC, group=GROUP, member=name)
        self.silent.discard(name)
        self.hands = [(holder, m) for holder, m in self.hands if holder != name]  # it has forgotten them

    def leave(self) -> None:
        self._as_some(lambda name, held: (self.q.leave(held), self.seats.pop(name)))

    def fall_silent(self) -> None:
        if self.seats:
            self.silent.add(self.chance.choice(sorted(self.seats)))

    def speak(self) -> None:
        for name in sorted(set(self.seats) - self.silent):
            self._as(name, lambda _, held: self.seats.__setitem__(held.member, self.q.heartbeat(held)))

    def give_up(self) -> None:
        """A member lets go of all that is revoked."""
        self._as_some(lambda _, held: self.q.heartbeat(held, released=range(PARTITIONS_MAX)))

    def receive(self) -> None:
        def take(name: str, held: mqueue.Membership) -> None:
            own = set(self.crew.seats_of(name))
            for message in self.q.receive(TOPIC, self.chance.randint(1, 5), group=GROUP, member=held, visibility="20s"):
                if message.partition not in own:
                    self.problems.append(f"{name} got a message of partition {message.partition}, has {own}")
                self.hands.append((name, message))

        self._as_some(take)

    def settle(self) -> None:
        self.chance.shuffle(self.hands)
        for _ in range(min(len(self.hands), self.chance.randint(1, 6))):
            name, message = self.hands.pop()
            verb = self.chance.choice(["ack", "ack", "ack", "nack", "release"])
            try:
                message.nack(0) if verb == "nack" else getattr(message, verb)()
            except mqueue.LeaseLost:
                continue
            if verb == "ack":
                if message.id in self.done:
                    self.problems.append(f"{message.payload!r} was acked twice, lastly by {name}")
                self.done.add(message.id)

    def wait(self) -> None:
        self.clock.advance(self.chance.choice([0.01, 0.5, 1, 3, 4, 12]))
        self.speak()
        self.q.stats(TOPIC)

    def grow(self) -> None:
        partitions = len(self.crew.owners)
        if partitions < PARTITIONS_MAX:
            try:
                self.q.configure(TOPIC, partitions=partitions + self.chance.randint(0, 2))
            except mqueue.BadSetting as error:
                if not self.q.settings(TOPIC)["ordered"]:
                    self.problems.append(f"it cannot grow: {error}")

    def save(self) -> None:
        """From now on the log is folded from here."""
        store, now = self.store, self.clock.now()
        store.advance(now)
        store.flush()
        store.log.checkpoint(checkpoint(store.state, list(store.state.topics.values()), now))
        self._check_fold()

    def _as_some(self, call: Any) -> None:
        if self.seats:
            self._as(self.chance.choice(sorted(self.seats)), call)

    def _as(self, name: str, call: Any) -> None:
        try:
            call(name, self.seats[name])
        except mqueue.Conflict as error:
            if error.code != "stale_member" or name in self.crew.members:
                self.problems.append(f"{name} is refused, though it is a member: {error}")
            self.seats.pop(name, None)
            self.silent.discard(name)

    # Checks

    def _before(self) -> tuple[dict[int, str], int]:
        crew = self.crew
        return {n: owner for n, owner in enumerate(crew.owners) if owner and n not in crew.moving}, crew.rebalances

    def _check(self, verb: str, before: tuple[dict[int, str], int]) -> None:
        crew, now = self.crew, self.clock.now()
        members = set(crew.members)
        for number, (owner, target) in enumerate(zip(crew.owners, crew.targets, strict=True)):
            if owner and owner not in members:
                self.problems.append(f"{verb}: partition {number} belongs to {owner}, who is gone")
            if members and target not in members:
                self.problems.append(f"{verb}: partition {number} is for {target!r}, who is not there")
            if target and (owner != target) != (number in crew.moving):
                self.problems.append(f"{verb}: partition {number} of {owner!r} for {target!r}: moving is wrong")
        shares = [crew.targets.count(member) for member in members]
        if shares and max(shares) - min(shares) > 1:
            self.problems.append(f"{verb}: {shares} is not even")
        self._check_moves(verb, before, members)
        for number, move in crew.moving.items():
            held = sum(count for partition, count in self._held() if partition == number)
            if held != move.held or not held:
                self.problems.append(f"{verb}: partition {number} waits for {move.held}, {held} are held")
            if now - move.since >= REBALANCE_PATIENCE_MS:
                self.problems.append(f"{verb}: partition {number} has waited since {move.since}, now {now}")
        for member in crew.members.values():
            if now - member.heard_at >= MEMBER_SESSION_MS and verb in ("wait", "publish"):
                self.problems.append(f"{verb}: {member.id} should be dead")
        self._check_leases(verb)
        self._check_keys(verb)

    def _check_keys(self, verb: str) -> None:
        """What holds for keys holds for the group, however many members have some of them."""
        settings = self.q.settings(TOPIC)
        held = self._live()
        self.free &= {message.id for message in held}
        keys = Counter(message.key for message in held if message.id not in self.free)
        if settings["ordered"] and any(count > 1 for count in keys.values()):
            self.problems.append(f"{verb}: keys have more than one message in flight: {keys}")
        shares = Counter(message.fairness_key for message in held)
        limited = isinstance(settings["fairness"], dict) and "in_flight_max" in settings["fairness"]
        if limited and not self.free and any(count > KEY_LIMIT for count in shares.values()):
            self.problems.append(f"{verb}: fairness keys have more than {KEY_LIMIT} in flight: {shares}")

    def _live(self) -> list[Any]:
        """What is held and not lost."""
        return [m for _, m in self.hands if m._lease.find(m.partition, m.offset, 1)]

    def _check_moves(self, verb: str, before: tuple[dict[int, str], int], members: set[str]) -> None:
        """What need not move stays and gets deliveries; what moves is no more than has to."""
        standing, rebalances = before
        crew = self.crew
        left = [n for n, owner in standing.items() if owner in members and crew.targets[n] != owner]
        share, more = divmod(len(crew.owners), max(len(members), 1))
        counts = sorted((sum(o == m for o in standing.values()) for m in members), reverse=True)
        least = sum(max(0, count - share - (place < more)) for place, count in enumerate(counts))
        if crew.rebalances == rebalances + 1 and not before[0].keys() - standing.keys() and len(left) > least:
            still = len(standing) == len(crew.owners)  # nothing was on its way, which also counts as somebody's
            if still:
                self.problems.append(f"{verb}: {len(left)} partitions leave their owners, {least} have to")
        for number, owner in standing.items():
            if owner in members and crew.targets[number] == owner and number not in crew.seats_of(owner):
                self.problems.append(f"{verb}: partition {number} stays with {owner} and pauses")
        self.moves += len(left)

    def _held(self) -> list[tuple[int, int]]:
        state = self.store.state
        found: list[tuple[int, int]] = state.held(state.names["default", TOPIC].groups[GROUP])
        return found

    def _check_leases(self, verb: str) -> None:
        """No message is in two live leases; whatever is leased of a partition is its owner's."""
        seen: set[tuple[int, int]] = set()
        for lease in self.store.state.leases.values():
            for run in lease.runs:
                for bit in range(run.stop - run.start):
                    if run.mask >> bit & 1:
                        place = (run.partition, run.start + bit)
                        if place in seen:
                            self.problems.append(f"{verb}: {place} is in two leases")
                        seen.add(place)
                if run.mask and not self.crew.owners[run.partition]:
                    self.problems.append(f"{verb}: partition {run.partition} is leased and belongs to nobody")
        for name, message in self.hands:
            held = message._lease.find(message.partition, message.offset, 1)
            if held and self.crew.owners[message.partition] != name:
                self.problems.append(f"{verb}: {name} holds a message of partition {message.partition}, not its own")

    def _check_fold(self) -> None:
        now = self.clock.now()
        self.store.advance(now)
        self.store.flush()
        folded = recover(self.store.log)
        for group in folded.names["default", TOPIC].groups.values():
            if group.crew is not None:
                group.crew.revive(now)
        heart_of(folded).advance(now)
        self.problems += differences(snapshot(self.store.state, now), snapshot(folded, now))

    def _check_progress(self) -> None:
        """Whoever is left, or comes, gets everything that is left."""
        for _, message in self.hands:
            with suppress(mqueue.LeaseLost):
                message.release()
        self.silent = set()
        self.join()
        for _ in range(200):
            self.clock.advance("3s")
            self.speak()
            for name in sorted(self.seats):
                self._as(name, self._finish)
            if len(self.done) == self.sent:
                return
        self.problems.append(f"{self.sent - len(self.done)} of {self.sent} messages are never delivered")

    def _finish(self, name: str, held: mqueue.Membership) -> None:
        got = self.q.receive(TOPIC, 1000, group=GROUP, member=held)
        self.q.ack(got)
        self.done |= {message.id for message in got}


_STEPS = {
    "publish": 6,
    "join": 4,
    "leave": 1,
    "fall_silent": 1,
    "speak": 4,
    "give_up": 1,
    "receive": 8,
    "settle": 8,
    "wait": 5,
    "grow": 0.3,
    "change": 1,
    "save": 0.5,
}
