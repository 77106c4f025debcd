"""An assigned group under a load, over HTTP: members come and go, and everything they see is checked.

    python -m tests.cluster.members --seconds 30                 one server, a group of 8
    python -m tests.cluster.members --seconds 30 --kill          a cluster of 3 nodes whose owner of the topic is killed

Each key's messages are numbered. Whoever handles a number writes down when, and whether it could ack it. From that is
read: nothing is lost, nothing is acked twice, nothing is in two hands, no number begins before those before it are
done, and for how long partitions paused: those that moved as the server tells, those that did not as their consumers
saw it. Pauses are bounded where no node is killed: until another has taken over, all wait.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

import mqueue
from mqueue.broker.members import RebalanceStats
from mqueue.policy.routing import virtual_shard
from mqueue.testing.server import RunningServer
from tests.cluster.faults.stage import Stage

TOPIC, GROUP = "orders", "g"
KEYS = 48
WORK_SECONDS = 0.002
DRAIN_SECONDS = 240
PAUSE_SECONDS_MAX = 1.0


class Outcome(msgspec.Struct):
    sent: int = 0
    handled: int = 0
    acked: int = 0
    doubtful: int = 0
    joins: int = 0
    moved: int = 0
    rebalances: int = 0
    told: int = 0
    """Of how many rebalances the server told how they went."""
    paused: float = 0.0
    """The longest pause of a partition that moved, as the server tells it."""
    still: float = 0.0
    """For how long a partition that did not move and had something to do got nothing, while others moved."""
    calm: float = 0.0
    """The same while none moved: what the machine and the load make of it by themselves."""
    wrong: list[str] = []

    def __str__(self) -> str:
        return (
            f"{self.sent} sent, {self.handled} handled, {self.doubtful} acks in doubt, {self.joins} joins,"
            f" {self.rebalances} rebalances, {self.moved} moves; longest pause: {self.paused:.3f} s of what moved,"
            f" {self.still:.3f} s of what did not (when nothing moved: {self.calm:.3f} s); wrong: {self.wrong[:5]}"
        )


class Group:
    """One run. `urls`: of the nodes that are asked."""

    def __init__(
        self, urls: Sequence[str], namespace: str, seed: int, members: int, partitions: int, ordered: bool = False
    ) -> None:
        self.urls = urls
        self.namespace = namespace
        self.rng = random.Random(seed)
        self.size = members
        self.settings = {"partitions": partitions, "max_retries": None, "ordered": ordered}
        self.outcome = Outcome(wrong=[])
        self.told = asyncio.Event()
        self.over = asyncio.Event()
        self.done: dict[bytes, set[int]] = defaultdict(set)
        self.maybe: dict[bytes, set[int]] = defaultdict(set)
        self.sent_at: dict[tuple[bytes, int], float] = {}
        self.hands: dict[tuple[bytes, int], int] = defaultdict(int)
        """How often each was handed out."""
        self.history: dict[int, RebalanceStats] = {}
        self.begun: dict[int, list[tuple[float, float]]] = defaultdict(list)
        """Of each partition, when messages were published and when they were begun."""
        self.moves: dict[int, list[tuple[float, float]]] = defaultdict(list)

    async def run(self, seconds: float, disturb: Callable[[], None] | None = None) -> Outcome:
        async with self._client() as q:
            await self._patiently(lambda: q.configure(TOPIC, **self.settings))
            await self._patiently(lambda: q.create_group(TOPIC, GROUP, assigned=True))
            async with asyncio.TaskGroup() as tasks:
                publishing = tasks.create_task(self._publish(q))
                tasks.create_task(self._watch(q))
                slots = [tasks.create_task(self._slot(number)) for number in range(self.size)]
                await asyncio.sleep(seconds / 2)
                if disturb is not None:
                    await asyncio.to_thread(disturb)
                await asyncio.sleep(seconds / 2)
                self.told.set()
                await publishing
                await self._drain()
                self.over.set()
                await asyncio.wait(slots)
            self._measure(await self._patiently(lambda: q.members(TOPIC, group=GROUP)))
        return self.outcome

    def _client(self) -> mqueue.AsyncClient:
        return mqueue.AsyncClient(self.rng.choice(self.urls), namespace=self.namespace)

    async def _patiently(self, call):
        """A node that is asked may be away, or not know yet who owns what."""
        while True:
            try:
                return await call()
            except mqueue.Conflict:
                return None
            except mqueue.Error as error:
                if not error.retryable:
                    raise
                await asyncio.sleep(0.1)

    async def _publish(self, q: mqueue.AsyncClient) -> None:
        for number in itertools.count():
            if self.told.is_set():
                return
            drafts = [
                mqueue.Draft(b"%d" % number, key=b"k%d" % key, idempotency_key=f"{key}-{number}") for key in range(KEYS)
            ]
            await self._patiently(lambda drafts=drafts: q.publish_many(TOPIC, drafts))
            for draft in drafts:
                self.sent_at[draft.key, number] = time.monotonic()
            self.outcome.sent += KEYS
            await asyncio.sleep(0.05)

    async def _slot(self, number: int) -> None:
        """A place in the group: one member after the other."""
        while not self.over.is_set():
            self.outcome.joins += 1
            until = time.monotonic() + self.rng.uniform(2, 6)
            async with self._client() as q:
                consumer = q.consume(TOPIC, group=GROUP, assigned=True, prefetch=20)
                following = asyncio.ensure_future(self._follow(consumer, until))
                ending = asyncio.ensure_future(self.over.wait())
                await asyncio.wait([following, ending], return_when=asyncio.FIRST_COMPLETED)
                ending.cancel()
                following.cancel()
                ended = await asyncio.gather(following, return_exceptions=True)
                await consumer.aclose()
                if isinstance(ended[0], Exception):
                    self.outcome.wrong.append(f"member {number} ended: {ended[0]!r}")

    async def _follow(self, consumer, until: float) -> None:
        async for message in consumer:
            await asyncio.shield(self._handle(message))  # who is told to leave finishes what is in hand
            if time.monotonic() > until and not self.told.is_set():
                return

    async def _handle(self, message: mqueue.AsyncMessage) -> None:
        key, number = message.key or b"", int(message.payload)
        self.outcome.handled += 1
        now = time.monotonic()
        self.begun[message.partition].append((self.sent_at.get((key, number), now), now))
        self.hands[key, number] += 1
        hand = self.hands[key, number]
        missing = set(range(number)) - self.done[key] - self.maybe[key]
        if missing and number not in self.done[key] and number not in self.maybe[key]:
            self.outcome.wrong.append(f"{key!r}: {number} begins before {min(missing)} is done")
        await asyncio.sleep(WORK_SECONDS)
        in_doubt = False
        while True:
            try:
                await message.ack()
                break
            except mqueue.LeaseLost:
                if in_doubt:
                    self.maybe[key].add(number)
                return
            except mqueue.Error:  # said again it is the same ack; who gives up holds the message, and its key, for good
                self.outcome.doubtful += not in_doubt
                in_doubt = True
                await asyncio.sleep(0.1)
        if number in self.done[key]:
            self.outcome.wrong.append(f"{key!r}: {number} is acked twice")
        if hand != self.hands[key, number] and not in_doubt:  # it went to another while this lease was alive
            self.outcome.wrong.append(f"{key!r}: {number} is in two hands")
        self.done[key].add(number)

    async def _drain(self) -> None:
        end = time.monotonic() + DRAIN_SECONDS
        while self._left() and time.monotonic() < end:
            await asyncio.sleep(0.05)
        if left := self._left():
            self.outcome.wrong.append(f"{left} messages are lost")

    def _left(self) -> int:
        found = sum(len(self.done[key] | self.maybe[key]) for key in list(self.done))
        return self.outcome.sent - found

    async def _watch(self, q: mqueue.AsyncClient) -> None:
        """When partitions moved, as far as one sees it from here."""
        owners: dict[int, str] = {}
        seen_at = time.monotonic()
        while not self.over.is_set():
            view = await self._patiently(lambda: q.members(TOPIC, group=GROUP))
            now = time.monotonic()
            self._note(view)
            for lag in view.partitions if view else ():
                if lag.moving_to or owners.get(lag.partition) != lag.member:
                    self.moves[lag.partition].append((seen_at, now))
                owners[lag.partition] = lag.member
            seen_at = now
            await asyncio.sleep(0.05)

    def _note(self, view: mqueue.GroupMembers | None) -> None:
        """The server remembers the last rebalances only."""
        self.history.update({one.number: one for one in view.history} if view else {})

    def _measure(self, view: mqueue.GroupMembers) -> None:
        self._note(view)
        outcome = self.outcome
        outcome.acked = sum(map(len, self.done.values()))
        outcome.rebalances = view.rebalances
        outcome.told = len(self.history)
        outcome.moved = sum(one.moved for one in self.history.values())
        outcome.paused = max((one.paused_seconds for one in self.history.values()), default=0.0)
        anywhere = [span for spans in self.moves.values() for span in spans]
        for partition, times in self.begun.items():
            for (_, before), (sent, after) in itertools.pairwise(times):
                before = max(before, sent)  # who has nothing to do does not pause
                if before >= after or _meets(self.moves[partition], before, after):
                    continue
                if _meets(anywhere, before, after):
                    outcome.still = max(outcome.still, after - before)
                else:
                    outcome.calm = max(outcome.calm, after - before)


def _meets(spans: Sequence[tuple[float, float]], before: float, after: float) -> bool:
    return any(start < after and end > before for start, end in spans)


def alone(seconds: float, seed: int, members: int = 8, partitions: int = 12, ordered: bool = False) -> Outcome:
    with RunningServer() as server:
        return asyncio.run(Group([server.url], "default", seed, members, partitions, ordered).run(seconds))


def killed(
    stage: Stage, seconds: float, seed: int, members: int = 8, partitions: int = 12, ordered: bool = False
) -> Outcome:
    """The owner of the topic is killed without a word. Members ask the other nodes."""
    namespace = f"members-{seed}"
    vshard = virtual_shard(namespace, TOPIC)
    server = vshard % len(stage.databases)
    victim = next(node for node in stage.nodes if node.url == stage.owners(server)[vshard])
    urls = [node.url for node in stage.nodes if node is not victim]
    return asyncio.run(Group(urls, namespace, seed, members, partitions, ordered).run(seconds, victim.kill))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="of load")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--kill", action="store_true", help="in a cluster, and kill the owner")
    parser.add_argument("--ordered", action="store_true", help="one message of a key at a time")
    given = parser.parse_args()
    if given.kill:
        with tempfile.TemporaryDirectory() as place, Stage(Path(place), servers=1) as stage:
            outcome = killed(stage, given.seconds, given.seed, given.members, ordered=given.ordered)
    else:
        outcome = alone(given.seconds, given.seed, given.members, ordered=given.ordered)
        if outcome.paused >= PAUSE_SECONDS_MAX:
            outcome.wrong.append(f"a partition paused for {outcome.paused:.3f} s; {PAUSE_SECONDS_MAX} s are allowed")
        if outcome.still > max(PAUSE_SECONDS_MAX, 2 * outcome.calm):
            outcome.wrong.append(f"a partition that did not move got nothing for {outcome.still:.3f} s")
    print(outcome)
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
