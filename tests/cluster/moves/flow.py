"""As many messages as go through: a publisher and a consumer for each topic, in large batches, and how long any topic
was without an answer.

Every message has a number of its own. What was answered has to be there once, in the end, and to have been delivered.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct, field

import mqueue
from mqueue.model.errors import Error, LeaseLost
from tests.cluster.faults.history import now

BATCH = 500
LEASE = "30s"


class Lane(Struct):
    """What one topic has been through. Numbers are those of batches."""

    topic: str
    answered: set[int] = set()
    doubtful: set[int] = set()
    """Nobody knows whether they were stored."""
    published: list[float] = []
    """When somebody was answered."""
    received: list[float] = []
    got: Counter[bytes] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)


class Flow:
    """`urls`: of the nodes; each topic is published to at one and received from at the next."""

    def __init__(self, urls: Sequence[str], topics: Sequence[str]) -> None:
        self.urls = list(urls)
        self.lanes = [Lane(topic) for topic in topics]
        self._publishing = threading.Event()
        self._over = threading.Event()
        self._failures: list[BaseException] = []
        works = [(self._publish, number) for number in range(len(topics))]
        works += [(self._consume, number) for number in range(len(topics))]
        self._threads = [threading.Thread(target=self._do, args=work, daemon=True) for work in works]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def published(self) -> int:
        return sum(len(lane.answered) for lane in self.lanes) * BATCH

    def end(self, seconds: float) -> None:
        """Nothing more is published, and what is there is received: until so long nothing came."""
        self._publishing.set()
        for thread in self._threads[: len(self.lanes)]:
            thread.join()
        until = now() + seconds
        while now() < until and any(sum(lane.got.values()) < len(lane.answered) * BATCH for lane in self.lanes):
            threading.Event().wait(0.2)
        self._over.set()
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def gap(self, since: float, until: float) -> tuple[float, float]:
        """The longest time in which nobody who published to a topic, or received from it, was answered."""
        return (
            max(_gap(lane.published, since, until) for lane in self.lanes),
            max(_gap(lane.received, since, until) for lane in self.lanes),
        )

    def wrong(self) -> list[str]:
        found: list[str] = []
        with mqueue.Client(self.urls[0], timeout="60s") as client:
            for lane in self.lanes:
                there = Counter(message.payload for message in client.scan(lane.topic))
                answered = {b"%d %d" % (batch, row) for batch in lane.answered for row in range(BATCH)}
                known = answered | {b"%d %d" % (batch, row) for batch in lane.doubtful for row in range(BATCH)}
                tests = {
                    "lost": answered - there.keys(),
                    "not delivered": answered - lane.got.keys(),
                    "doubled": {payload for payload, count in there.items() if count > 1},
                    "from nowhere": there.keys() - known,
                }
                found += [f"{lane.topic}: {len(bad)} {name}: {sorted(bad)[:3]}" for name, bad in tests.items() if bad]
        return found

    def _do(self, work: object, number: int) -> None:
        try:
            work(number)  # type: ignore[operator]
        except BaseException as failure:
            self._failures.append(failure)

    def _publish(self, number: int) -> None:
        lane, batch = self.lanes[number], 0
        with mqueue.Client(self.urls[number % len(self.urls)], timeout="30s", retry=False) as client:
            while not self._publishing.is_set():
                try:
                    client.publish_many(lane.topic, [b"%d %d" % (batch, row) for row in range(BATCH)])
                except Error as problem:
                    lane.refused[problem.code] += 1
                    if problem.applied is None:
                        lane.doubtful.add(batch)
                        batch += 1
                    self._publishing.wait(0.02)
                    continue
                lane.published.append(now())
                lane.answered.add(batch)
                batch += 1

    def _consume(self, number: int) -> None:
        lane = self.lanes[number]
        with mqueue.Client(self.urls[(number + 1) % len(self.urls)], timeout="30s", retry=False) as client:
            while not self._over.is_set():
                try:
                    messages = client.receive(lane.topic, limit=2 * BATCH, wait="200ms", visibility=LEASE)
                    lane.received.append(now())
                    if messages:
                        client.ack(messages)
                        lane.got.update(message.payload for message in messages)
                except (Error, LeaseLost) as problem:
                    lane.refused[problem.code] += 1
                    self._over.wait(0.02)


def _gap(times: Sequence[float], since: float, until: float) -> float:
    inside = [since, *(at for at in times if since <= at <= until), until]
    return max(after - before for before, after in pairwise(inside))
