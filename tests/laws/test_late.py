"""Late acks: what somebody lost to time is his again only as long as nobody else has had it; and the log tells it all.

A random walk, by seed, over a queue with and without fairness keys.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from mqueue import AsyncBroker, Draft, LeaseLost
from mqueue.broker import remote
from mqueue.broker.loop import LoopBroker
from mqueue.store.recover import recover
from mqueue.testing import ManualClock
from tests.laws.snapshot import differences, snapshot

STEPS = 60


class Walk:
    """Who let which message go last, and who has it."""

    def __init__(self, queue: LoopBroker, clock: ManualClock, random: Random) -> None:
        self.queue, self.clock, self.random = queue, clock, random
        self.receipts: list[tuple[str, int]] = []
        self.held: dict[int, tuple[str, int]] = {}
        self.last: dict[int, tuple[int, set[str]]] = {}
        """When, and by whom. In one millisecond there may be several."""
        self.acked: set[int] = set()

    async def receive(self) -> None:
        visibility = self.random.choice([1, 5])
        wanted = remote.Wanted(("t",), self.random.choice([1, 2, 5]), visibility=visibility)
        for lease in await remote.receive(self.queue, wanted):
            for message in lease.messages:
                assert message.id not in self.acked
                self.receipts.append((lease.token, message.id))
                self.held[message.id] = lease.token, self.clock.now() + visibility * 1000

    def advance(self) -> None:
        self.clock.advance(self.random.choice([1, 3]))
        for id, (token, until) in list(self.held.items()):
            if until <= self.clock.now():
                self._let_go(id, token, self.clock.now())
                del self.held[id]

    def _let_go(self, id: int, token: str, at: int) -> None:
        before, tokens = self.last.get(id, (0, set()))
        self.last[id] = at, {token, *(tokens if at == before else ())}

    async def settle(self, verb: str) -> None:
        """nack at once, or give back, what is held."""
        if not self.held:
            return
        id = self.random.choice(sorted(self.held))
        token, _ = self.held.pop(id)
        await remote.settle(self.queue, verb, token, [id], wait=0 if verb == "nack" else None)
        if verb == "nack":
            self._let_go(id, token, self.clock.now())
        elif verb == "ack":
            self.acked.add(id)

    async def come_late(self) -> None:
        if not self.receipts:
            return
        token, id = self.random.choice(self.receipts)
        if id in self.acked or (self.held.get(id) or ("",))[0] == token:
            return
        with pytest.raises(LeaseLost):
            await remote.settle(self.queue, "ack", token, [id])
        mine = id not in self.held and token in self.last.get(id, (0, set()))[1]
        assert await remote.ack_late(self.queue, token, [id]) == ({id} if mine else set())
        if mine:
            self.acked.add(id)


@pytest.mark.parametrize("fairness", [False, True], ids=["plain", "fair"])
@pytest.mark.parametrize("seed", range(10))
def test_a_late_ack_is_for_who_had_it_last(seed: int, fairness: bool) -> None:
    asyncio.run(_walk(seed, fairness))


async def _walk(seed: int, fairness: bool) -> None:
    clock, random = ManualClock(), Random(seed)
    async with AsyncBroker(clock=clock) as q:
        await q.configure("t", fairness=fairness, max_retries=None)
        drafts = [Draft(b"%d" % n, fairness_key=random.choice(["a", "b", None])) for n in range(12)]
        await q.publish_many("t", drafts)
        queue = q._sync
        walk = Walk(queue, clock, random)
        store = queue._engine.store
        for _ in range(STEPS):
            step = random.choice(["receive", "receive", "advance", "nack", "release", "ack", "late", "late", "late"])
            if step == "receive":
                await walk.receive()
            elif step == "advance":
                walk.advance()
            elif step == "late":
                await walk.come_late()
            else:
                await walk.settle(step)
            stats = (await q.stats("t")).groups.get("default")
            assert stats is None or (stats.acked, stats.leased) == (len(walk.acked), len(walk.held))
            store.flush()
            now = clock.now()
            assert not list(differences(snapshot(store.state, now), snapshot(recover(store.log), now)))
        clock.advance(10)
        left = await remote.receive(queue, remote.Wanted(("t",), 100))
        assert len(walk.acked) + sum(len(lease.messages) for lease in left) == len(drafts)
