"""A topic of which some is loaded late behaves exactly like one that knows everything: the embedded one, call by call.

And whatever happened, what a take-over loads late is in the end what it would have loaded at once.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

import mqueue
from mqueue.broker.aio import AsyncBroker
from mqueue.heart.far import FAR_MS
from mqueue.heart.schedule import NEVER
from mqueue.heart.state import State
from mqueue.log.postgres.cache import Cache
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.log import PostgresLog
from mqueue.model.errors import Error
from mqueue.model.message import Draft
from mqueue.store.ahead import Ahead
from mqueue.store.recover import recover
from mqueue.testing import ManualClock
from tests.cluster.alone import VSHARD, Alone
from tests.laws.snapshot import differences, snapshot

SEED = int(os.environ.get("MQUEUE_SEED", "1"))
STEPS = 120
SPANS_MS = (5, 900, 40_000, 1_800_000, 7_200_000, 86_400_000, 900_000_000)
"""From milliseconds to ten days: so far ahead something is scheduled, and so far time goes on."""


class Pair:
    """The same calls at a node and at an embedded broker, with one clock."""

    def __init__(self, url: str, seed: int) -> None:
        self.dice = random.Random(f"far {seed}")
        self.clock = ManualClock()
        self.node = Alone(url, self.clock)
        self.broker = mqueue.Broker(clock=self.clock)
        self.ids: list[tuple[int, int]] = []
        """Of each message, at the node and embedded."""
        self.late = 0
        """How many frames were not loaded at a take-over."""
        self.done: list[str] = []
        self.keeps = self.dice.random() < 0.5
        """Else what is settled goes, at the node perhaps a moment sooner."""
        retention = {"hours": 24 * 365} if self.keeps else {"on_ack": True}
        self.both("configure", "t", partitions=3, retention=retention)

    def close(self) -> None:
        self.node.close()
        self.broker.close()

    def both(self, verb: str, *args: Any, **more: Any) -> None:
        """A call that has to be answered alike."""
        self.alike(verb, lambda broker, _: getattr(broker, verb)(*args, **more))

    def alike(self, verb: str, call: Callable[[Any, int], Any]) -> None:
        """`call(broker, side)`: at the node it is awaited."""

        async def there(mouth: AsyncBroker, owner: AsyncBroker) -> Any:
            try:
                return seen(await call(owner, 0))
            except Error as error:
                return error.code

        try:
            here = seen(call(self.broker, 1))
        except Error as error:
            here = error.code
        found = self.node.ask(there)
        self.done.append(f"{verb}: {here!r:.200}")
        gone = not self.keeps and (found, here) == ("not_found", "not_scheduled")
        assert found == here or gone, verb

    # What is done

    def publish(self) -> None:
        dice = self.dice
        span = dice.choice(SPANS_MS)
        same = dice.random() < 0.8
        ttl = dice.choice((None, None, f"{dice.choice(SPANS_MS)}ms"))
        drafts = [
            Draft(
                b"%d" % dice.getrandbits(40),
                key=str(dice.randrange(6)),
                delay=f"{span + dice.randrange(span)}ms" if dice.random() < 0.95 or span > 40_000 else None,
                priority=50 if same else dice.choice((0, 50, 100)),
                ttl=ttl,
            )
            for _ in range(dice.randrange(2, 30))
        ]
        there = self.node.ask(lambda mouth, owner: mouth.publish_many("t", drafts))
        here = self.broker.publish_many("t", drafts)
        self.done.append(f"publish: {len(drafts)} within {span} ms, ttl {ttl}")
        assert [(r.partition, r.offset) for r in there] == [(r.partition, r.offset) for r in here]
        self.ids += [(one.id, other.id) for one, other in zip(there, here, strict=True)]

    def cancel(self) -> None:
        if self.ids:
            ids = self.dice.choice(self.ids[-300:])
            self.alike("cancel", lambda broker, side: broker.cancel(ids[side]))

    def reschedule(self) -> None:
        if self.ids:
            ids = self.dice.choice(self.ids[-300:])
            delay = f"{self.dice.randrange(1, self.dice.choice(SPANS_MS))}ms"
            for wait in (delay, *self.dice.choice(((), ("30m",), ("5h", delay)))):
                self.alike(f"reschedule {wait}", lambda b, side, wait=wait: b.reschedule(ids[side], delay=wait))

    def receive(self) -> None:
        group, limit = self.dice.choice(("default", "other")), self.dice.randrange(1, 60)
        verb = self.dice.choice(("ack", "ack", "nack", ""))
        more = {"delay": "20m"} if verb == "nack" else {}

        async def there(mouth: AsyncBroker, owner: AsyncBroker) -> Any:
            messages = await owner.receive("t", limit, group=group, visibility="10m")
            if messages and verb:
                await getattr(owner, verb)(messages, **more)
            return seen(messages)

        messages = self.broker.receive("t", limit, group=group, visibility="10m")
        here = seen(messages)
        if messages and verb:
            getattr(self.broker, verb)(messages, **more)
        self.done.append(f"receive {verb}: {here!r:.200}")
        assert self.node.ask(there) == here

    def look(self) -> None:
        self.both("scheduled", "t", self.dice.choice((1, 10, 1000)))
        if self.ids and self.keeps:
            ids = self.dice.choice(self.ids)
            self.alike("explain", lambda broker, side: broker.explain(ids[side]))

    def purge(self) -> None:
        if self.dice.random() < 0.2:
            self.both("purge", "t")

    def seek(self) -> None:
        if self.dice.random() < 0.3:
            to = self.dice.choice(("latest", self.dice.randrange(50) if self.keeps else "latest"))
            self.both("seek", "t", group="other", to=to)

    def advance(self) -> None:
        self.clock.advance(f"{self.dice.randrange(1, self.dice.choice(SPANS_MS))}ms")
        self.done.append(f"advance: now {self.clock.now()}")

    def take_over(self) -> None:
        if self.dice.random() < 0.5:
            self.node.save()
        self.node.stop()
        self.clock.advance("1ms")  # who starts again in the same millisecond with the same number gives the same ids
        self.done.append("take over")
        try:  # nobody writes meanwhile: both have to read the same log
            early, late = self.folded(NEVER), self.folded(self.clock.now() + FAR_MS)
        finally:
            self.node.start()
        assert list(differences(early, late)) == []

    def folded(self, horizon: int) -> dict[str, Any]:
        """What whoever takes over now knows, once all of it is loaded."""
        link = Link(self.node._url, "law")
        log = PostgresLog(link, VSHARD, Cache(1 << 24))
        log.horizon = horizon
        state = recover(log)
        log.started(state)
        counts = scheduled(state)
        self.late += Ahead(state, log).load(NEVER)
        assert counts == scheduled(state) == scheduled(state, anew=True)
        link.close()
        return snapshot(state, self.clock.now())

    def go(self) -> None:
        verbs = [self.publish] * 5 + [self.cancel, self.reschedule, self.receive, self.look, self.advance] * 3
        verbs += [self.purge, self.seek, self.take_over]
        for _ in range(STEPS):
            self.dice.choice(verbs)()
            self.alike("stats", lambda broker, _: broker.stats("t"))


def scheduled(state: State, *, anew: bool = False) -> list[int]:
    partitions = [partition for topic in state.topics.values() for partition in topic.partitions]
    return [one.scheduled_in(0, one.next) if anew else one.scheduled for one in partitions]


def seen(answer: Any) -> Any:
    """What of an answer has to be alike: neither ids nor bytes are."""
    if isinstance(answer, list):
        return [(m.payload, m.partition, m.offset, m.attempt, m.priority, m.deliver_at) for m in answer]
    if hasattr(answer, "scheduled"):
        groups = {name: (g.ready, g.waiting, g.leased, g.acked, g.cancelled) for name, g in answer.groups.items()}
        return answer.published, answer.scheduled, answer.depth, answer.expired, answer.cancelled, groups
    if hasattr(answer, "sentence"):
        return answer.code, answer.until
    return answer if isinstance(answer, int) else None


@pytest.mark.parametrize("seed", range(SEED, SEED + 4))
def test_it_is_like_one_that_knows_everything(database: str, seed: int) -> None:
    pair = Pair(database, seed)
    try:
        pair.go()
        pair.take_over()
        assert pair.late > 10, "else this proves nothing"
    except BaseException:
        print(f"MQUEUE_SEED={seed}", *pair.done, sep="\n")
        raise
    finally:
        pair.close()
