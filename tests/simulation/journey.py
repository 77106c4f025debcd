"""A seeded walk through everything a broker can do: several topics, partitions and groups, all verbs, time, upkeep.

Every call tells `Answers` what it was answered. Errors that a caller may get (a lost lease, a conflict, no such topic)
are answers too; anything else ends the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from msgspec.structs import replace

from mqueue import Draft, Error, Message
from mqueue.model.message import Receipt
from tests.simulation.answers import Answers
from tests.simulation.world import World

TOPICS = ("a", "b", "c")
GROUPS = ("default", "g2")
TRANSACTIONS = ("x/1", "x/2", "x/3")
SETTINGS: tuple[dict[str, Any], ...] = (
    {"retention": {"on_ack": True}},
    {"retention": {"hours": 0.01}},
    {"retention": {"compact": True}},
    {"retention": {"bytes": 3_000}},
    {"partitions": 2},
    {"partitions": 3},
    {"max_retries": 1},
    {"dedup": "until_acked"},
    {"dedup_window": "1m"},
    {"dlq": False},
    {"dlq_expired": True},
    {"max_depth": 9, "overflow": "drop_oldest", "dlq_dropped": True},
    {"start": "latest"},
)


class Journey:
    """One walk. `step` makes one call; the world may be another one from one step to the next."""

    def __init__(self, world: World, answers: Answers, seed: int | str) -> None:
        self.world = world
        self.answers = answers
        self.dice = Random(f"journey {seed}")
        self.hands: list[tuple[str, list[Message]]] = []
        self.ids: list[int] = []
        self.staged: dict[str, dict[str, tuple[str, list[bytes]]]] = {}
        """What of each transaction was staged on this walk: part → topic and payloads."""
        self.told: list[str] = []
        """What every call was answered, in words that a second run has to repeat."""
        self._steps = dict(_STEPS)

    def step(self) -> None:
        name = self.choose()
        try:
            said = getattr(self, name)()
            self.answers.ok(name)
        except Error as error:
            self.answers.refused(error)
            said = error.code
        self.told.append(f"{name} {said}")

    def choose(self) -> str:
        return self.dice.choices(list(self._steps), list(self._steps.values()))[0]

    # Publishing

    def publish(self) -> Any:
        draft = self._draft()
        level = self.dice.choice([None] * 6 + ["fsync", "os", "memory"])
        receipt = self.world.broker.publish(
            self.dice.choice(TOPICS),
            draft.payload,
            key=draft.key,
            headers=draft.headers,
            priority=draft.priority,
            delay=draft.delay,
            ttl=draft.ttl,
            idempotency_key=draft.idempotency_key,
            durability=level,
        )
        return self._published([receipt], safe=level in (None, "fsync"))

    def publish_many(self) -> Any:
        far = self.dice.random() < 0.2
        topics = [self.dice.choice(TOPICS) if far else None for _ in range(self.dice.choice([2, 3, 6]))]
        drafts = [self._draft(topic) for topic in topics]
        return self._published(self.world.broker.publish_many(self.dice.choice(TOPICS), drafts))

    def _draft(self, topic: str | None = None) -> Draft:
        dice = self.dice
        idem = f"i{dice.randrange(8)}" if dice.random() < 0.2 else None
        delay = dice.choice(["50ms", "2s", "30s", "10h"]) if dice.random() < 0.25 else None
        return Draft(
            dice.randbytes(dice.choice([0, 8, 30, 120, 900, 2_500])) if idem is None else b"the same " * 3,
            key=dice.choice([None, "k1", "k2", "k3"]),
            headers={"h": str(dice.randrange(99))} if dice.random() < 0.3 else None,
            priority=dice.choice([None, None, 0, 50, 100]),
            delay=delay,
            ttl="45s" if dice.random() < 0.1 and delay is None else None,
            idempotency_key=idem,
            topic=topic,
        )

    def _published(self, receipts: list[Receipt], safe: bool = True) -> Any:
        self.ids += [receipt.id for receipt in receipts]
        self.answers.published(receipts, safe)
        return [(receipt.partition, receipt.offset, receipt.duplicate) for receipt in receipts]

    # Consuming

    def receive(self) -> Any:
        group = self.dice.choice(GROUPS)
        got = self.world.broker.receive(
            self.dice.choice(TOPICS),
            self.dice.choice([1, 2, 5, 40]),
            group=group,
            visibility=self.dice.choice(["3s", "30s", "1h"]),
            mode="at_most_once" if self.dice.random() < 0.05 else "at_least_once",
        )
        if got:
            self.hands.append((group, got))
            self.answers.received(group, got)
        return [(message.topic, message.partition, message.offset, message.attempt) for message in got]

    def settle(self) -> Any:
        if not self.hands:
            return None
        place = self.dice.randrange(len(self.hands)) if self.dice.random() < 0.4 else len(self.hands) - 1
        group, messages = self.hands[place]
        if self.dice.random() < 0.6 or len(self.hands) > 8:
            self.hands.pop(place)
        chosen = [message for message in messages if self.dice.random() < 0.7] or messages[:1]
        verb = self.dice.choices(["ack", "nack", "reject", "release", "extend"], [10, 4, 2, 1, 2])[0]
        if verb == "ack" and self.dice.random() < 0.15:
            followers = [Draft(b"follows", topic=self.dice.choice(TOPICS))]
            answer = self.world.broker.ack(chosen, publish=followers)
        elif verb == "extend":
            answer = self.world.broker.extend(chosen, self.dice.choice(["10s", "1h"]))
        else:
            answer = getattr(self.world.broker, verb)(chosen)
        self.answers.settled(verb, group, chosen, answer.lost)
        return verb, answer.settled, len(answer.lost)

    # Managing

    def cancel(self) -> Any:
        return self.ids and self.world.broker.cancel(self.dice.choice(self.ids[-12:]))

    def reschedule(self) -> Any:
        id, delay = self.dice.choice(self.ids[-12:] or [1]), self.dice.choice(["1s", "40s"])
        return self.world.broker.reschedule(id, delay=delay)

    def purge(self) -> Any:
        return self.world.broker.purge(self.dice.choice(TOPICS))

    def seek(self) -> Any:
        to = self.dice.choice(["earliest", "latest", 2])
        self.world.broker.seek(self.dice.choice(TOPICS), group=self.dice.choice(GROUPS), to=to)

    def configure(self) -> Any:
        self.world.broker.configure(self.dice.choice(TOPICS), **self.dice.choice(SETTINGS))

    def delete_topic(self) -> Any:
        self.world.broker.delete_topic(self.dice.choice(TOPICS))

    def delete_group(self) -> Any:
        self.world.broker.delete_group(self.dice.choice(TOPICS), self.dice.choice(GROUPS))

    def redrive(self) -> Any:
        return self.world.broker.dlq(self.dice.choice(TOPICS)).redrive(limit=self.dice.choice([None, 1])).redriven

    # Cursors and transactions

    def pin(self) -> Any:
        topic, name = self.dice.choice(TOPICS), self.dice.choice(["c1", "c2"])
        if self.dice.random() < 0.2:
            return self.world.broker.delete_cursor(topic, name)
        place = self.dice.choice([None, {0: 3}])
        return self.world.broker.set_cursor(topic, name, place, ttl=self.dice.choice(["20s", "1h"])).offsets

    def stage(self) -> Any:
        id, part, topic = self.dice.choice(TRANSACTIONS), self.dice.choice(["", "p"]), self.dice.choice(TOPICS)
        drafts = [self._draft() for _ in range(self.dice.choice([1, 2, 5]))]
        drafts = [replace(draft, payload=self.dice.randbytes(16), idempotency_key=None) for draft in drafts]
        answer = self.world.broker.stage(id, topic, drafts, part=part, ttl=self.dice.choice(["30s", "24h"]))
        self.staged.setdefault(id, {})[part] = (topic, [draft.payload for draft in drafts])
        return answer.messages

    def commit(self) -> Any:
        id = self.dice.choice(list(self.staged) or TRANSACTIONS)
        parts = self.dice.choice([None, None, [""], ["", "p"]])
        before = self._log_of(TOPICS)
        self.answers.begin()  # to look was a call of its own, and wrote down what was due
        answer = self.world.broker.commit(id, parts)
        self.answers.ok("commit")
        self.answers.begin()  # and so is this: what ran out while it was staged is ended by the next call
        after = self._log_of(TOPICS)
        for name, (topic, payloads) in self.staged.pop(id, {}).items():
            shown = [after[topic].count(payload) - before[topic].count(payload) for payload in payloads]
            if shown != [int(parts is None or name in parts)] * len(payloads):
                self.answers.violations.append(f"a commit of {id} showed the messages of a part {shown} times")
        return answer.messages

    def abort(self) -> Any:
        id = self.dice.choice(TRANSACTIONS)
        answer = self.world.broker.abort(id)
        self.staged.pop(id, None)
        return answer.messages

    def forget(self) -> Any:
        """One that is still open is not forgotten."""
        self.world.broker.forget(self.dice.choice(TRANSACTIONS))

    def _log_of(self, topics: Sequence[str]) -> dict[str, list[bytes]]:
        known = self.world.broker.topics()
        return {
            topic: [message.payload for message in self.world.broker.scan(topic)] if topic in known else []
            for topic in topics
        }

    # Time and upkeep

    def pass_time(self) -> Any:
        self.world.clock.advance(self.dice.choice(["1ms", "400ms", "3s", "21s", "61s"]))

    def keep_up(self) -> Any:
        self.world.upkeep.run_once()

    def save_points(self) -> Any:
        self.world.upkeep.save_points()

    def reopen(self) -> Any:
        """Closed well, and opened again: what was held was given back."""
        self.world.engine.close()
        self.hands.clear()
        self.world = self.world.again()


_STEPS = {
    "publish": 22,
    "publish_many": 12,
    "receive": 24,
    "settle": 28,
    "cancel": 2,
    "reschedule": 2,
    "purge": 0.6,
    "seek": 1,
    "configure": 5,
    "delete_topic": 0.7,
    "delete_group": 0.4,
    "redrive": 2,
    "pin": 1.5,
    "stage": 6,
    "commit": 5,
    "abort": 0.5,
    "forget": 0.5,
    "pass_time": 12,
    "keep_up": 12,
    "save_points": 2,
    "reopen": 1.5,
}
"""How often each call is made."""


class Tidy(Journey):
    """A walk on which nearly everything is done and dropped: segments die, and what is left of them is copied on."""

    ROUND = ("prepare", "publish_much", "publish_late", "take", "finish", "rest", "keep_up", "save_points", "keep_up")

    def __init__(self, world: World, answers: Answers, seed: int | str) -> None:
        super().__init__(world, answers, seed)
        self._turn = 0

    def choose(self) -> str:
        self._turn += 1
        return self.ROUND[(self._turn - 1) % len(self.ROUND)] if self.dice.random() < 0.9 else "reopen"

    def prepare(self) -> Any:
        self.world.broker.configure("a", retention={"on_ack": True})

    def publish_much(self) -> Any:
        drafts = [Draft(self.dice.randbytes(self.dice.choice([300, 900]))) for _ in range(5)]
        return self._published(self.world.broker.publish_many("a", drafts))

    def publish_late(self) -> Any:
        if self.dice.random() < 0.5:
            return None
        return self._published([self.world.broker.publish("a", self.dice.randbytes(40), delay="9h")])

    def take(self) -> Any:
        got = self.world.broker.receive("a", 100, group="default")
        if got:
            self.hands.append(("default", got))
            self.answers.received("default", got)
        return len(got)

    def finish(self) -> Any:
        if not self.hands:
            return None
        group, messages = self.hands.pop()
        answer = self.world.broker.ack(messages)
        self.answers.settled("ack", group, messages, answer.lost)
        return answer.settled

    def rest(self) -> Any:
        self.world.clock.advance("70s")
