"""What goes on while something is broken: publishers and consumers in threads, each call at any node.

A worker that was not answered by a node asks others for a while. Everything is chosen by a seed; what comes of it is
not: threads and servers are as quick as they are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import count
from random import Random

from msgspec import Struct

import mqueue
from tests.cluster.faults.calls import HASTY, PATIENT, Caller
from tests.cluster.faults.history import (
    KEYED,
    NO,
    OK,
    ONCE,
    PLAIN,
    UNKNOWN,
    History,
    Publish,
    Receive,
    Sent,
    Topic,
    now,
)
from tests.cluster.faults.history import digest as digest_of

PUBLISHERS, CONSUMERS = 3, 6
POISON = 61
"""One message in so many fails whoever gets it."""
SHUN_SECONDS = 2.0


class Later(Struct):
    """Something that a consumer does when the time has come."""

    at: float
    verb: str
    topic: str
    token: str
    ids: list[int]


class Load:
    """`nodes` tells the addresses of those that may be asked now. `rate`: messages a second, all publishers together;
    fewer if that is too much. `durability`: what publishers ask for, where they may. `held`: for how many seconds
    messages are, mostly and sometimes. `workers`: how many publish, and how many consume. `waits`: how many seconds
    consumers wait for something to come."""

    def __init__(
        self,
        caller: Caller,
        topics: Sequence[Topic],
        nodes: Callable[[], list[str]],
        seed: str,
        *,
        rate: int = 600,
        durability: str | None = None,
        held: tuple[float, float] = (4.0, 14.0),
        workers: tuple[int, int] = (PUBLISHERS, CONSUMERS),
        waits: Sequence[float] = (0, 0.05),
    ) -> None:
        self.caller = caller
        self.history: History = caller.history
        self._topics = topics
        self._nodes = nodes
        self._seed = seed
        self._durability = durability
        self._held, self._held_long = held
        self._publishers, self._consumers = workers
        self._pause = self._publishers * _BATCH_MEAN / rate
        self._waits = waits
        self._uids = count()
        self._publishing = threading.Event()
        self._over = threading.Event()
        self._shunned: dict[str, float] = {}
        self._threads: list[threading.Thread] = []
        self.failures: list[BaseException] = []

    def start(self) -> None:
        works = [(self._publish, n) for n in range(self._publishers)]
        works += [(self._consume, n) for n in range(self._consumers)]
        for work, number in works:
            name = f"{work.__name__} {number}"
            rng = Random(f"{self._seed} {name}")
            thread = threading.Thread(target=self._do, args=(work, number, rng), name=f"load{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop_publishing(self) -> None:
        self._publishing.set()

    def stop(self) -> None:
        self._publishing.set()
        self._over.set()
        for thread in self._threads:
            thread.join()
        if self.failures:
            raise self.failures[0]

    def node(self, rng: Random, home: int | None = None) -> str:
        """Any that answered lately, if there is one; mostly the one that is `home`: not all are to ask the same."""
        nodes = self._nodes()
        good = [url for url in nodes if self._shunned.get(url, 0) < now()]
        if home is not None and rng.random() < 0.9 and nodes[home % len(nodes)] in good:
            return nodes[home % len(nodes)]
        return rng.choice(good or nodes)

    def _topic(self, number: int, rng: Random) -> Topic:
        """Mostly one of the server that is a worker's own: where one hangs, not all are to hang with it."""
        server = number % (1 + max(topic.server for topic in self._topics))
        mine = [topic for topic in self._topics if topic.server == server]
        return rng.choice(mine if rng.random() < 0.85 else self._topics)

    def _do(self, work: Callable[[int, Random], None], number: int, rng: Random) -> None:
        try:
            work(number, rng)
        except BaseException as failure:
            self.failures.append(failure)

    def _look(self, call: Publish | Receive) -> None:
        if call.code in ("unreachable", "line_broken"):
            self._shunned[call.node] = now() + SHUN_SECONDS

    # Publishers

    def _publish(self, number: int, rng: Random) -> None:
        while not self._publishing.wait(self._pause * rng.uniform(0.2, 1.8)):
            topic = self._topic(number, rng)
            sent, drafts = self._messages(topic, rng)
            call = self.caller.publish(self.node(rng, number), topic.name, sent, drafts, self._asked(topic, sent))
            self._look(call)
            if topic.kind == ONCE:
                self._repeat(topic, call, drafts, rng)

    def _asked(self, topic: Topic, sent: list[Sent]) -> str | None:
        """The log of a node takes neither keys nor what is due later."""
        if self._durability == "wal" and (topic.kind == ONCE or any(one.delay >= 1 for one in sent)):
            return None
        return self._durability

    def _repeat(self, topic: Topic, call: Publish, drafts: list[mqueue.Draft], rng: Random) -> None:
        """Whoever does not know does it again, somewhere else; and some do it again for no reason."""
        for _ in range(4):
            if call.outcome == OK and rng.random() < 0.8:
                return
            if self._publishing.wait(0.1 if call.outcome != OK else 0):
                return
            call = self.caller.publish(self.node(rng), topic.name, call.sent, drafts, self._asked(topic, call.sent))
            self._look(call)

    def _messages(self, topic: Topic, rng: Random) -> tuple[list[Sent], list[mqueue.Draft]]:
        sent, drafts = [], []
        for _ in range(rng.choice(_BATCHES)):
            uid = next(self._uids)
            payload = b"%d " % uid + rng.randbytes(rng.choice((0, 10, 200)))
            delay = rng.choice((0.05, 0.3, 1.5)) if topic.kind == PLAIN and rng.random() < 0.1 else 0.0
            once = f"k{uid}" if topic.kind == ONCE else None
            sent.append(Sent(uid, digest_of(payload), delay, once))
            drafts.append(
                mqueue.Draft(
                    payload,
                    key=b"key%d" % rng.randrange(20) if topic.kind == KEYED else None,
                    priority=rng.choice((0, 50, 50, 75)) if topic.kind == PLAIN else None,
                    delay=delay or None,
                    idempotency_key=once,
                )
            )
        return sent, drafts

    # Consumers

    def _consume(self, number: int, rng: Random) -> None:
        later: list[Later] = []
        while not self._over.is_set():
            due = [one for one in later if one.at <= now()]
            later = [one for one in later if one.at > now()]
            for one in due:
                self._settle(one.topic, one.verb, one.token, one.ids, rng)
            topic = self._topic(number, rng)
            seconds = self._held_long if rng.random() < 0.05 else self._held
            patience = PATIENT if rng.random() < 0.1 else HASTY
            limit = rng.choice((1, 10, 100, 100))
            url = self.node(rng)
            call = self.caller.receive(url, topic.name, limit, seconds, wait=rng.choice(self._waits), timeout=patience)
            self._look(call)
            if call.got:
                self._work(topic, call, later, rng)
            elif call.outcome != OK:
                self._over.wait(0.05)
            else:
                self._over.wait(0.01)

    def _work(self, topic: Topic, call: Receive, later: list[Later], rng: Random) -> None:
        """What becomes of what was received."""
        if call.lasting > self._held and rng.random() < 0.8:  # kept for long, and then done
            at = call.begun + rng.uniform(0.1, 0.8) * self._held_long
            later.append(Later(at, "ack", call.topic, call.token, [got.id for got in call.got]))
            return
        ids = [got.id for got in call.got]
        if topic.kind != KEYED:
            ids = self._fail(call, ids, rng)
        if rng.random() < 0.03:  # forgotten: it comes back to somebody when its time is up
            return
        if ids and rng.random() < 0.05:
            self._settle(call.topic, "extend", call.token, ids, rng, rng.choice((1.0, 6.0)))
        if len(ids) > 1 and rng.random() < 0.1:
            half = len(ids) // 2
            self._settle(call.topic, "ack", call.token, ids[:half], rng)
            ids = ids[half:]
        if ids:
            self._settle(call.topic, "ack", call.token, ids, rng)

    def _fail(self, call: Receive, ids: list[int], rng: Random) -> list[int]:
        """Some fail, always or by chance, and some are given back; what is left."""
        bad = [got.id for got in call.got if got.uid % POISON == 0 or rng.random() < 0.02]
        if bad:
            self._settle(call.topic, "nack", call.token, bad, rng, rng.choice((0, 0.2)))
        back = [id for id in ids if id not in bad and rng.random() < 0.02]
        if back:
            self._settle(call.topic, "release", call.token, back, rng)
        gone = {*bad, *back}
        return [id for id in ids if id not in gone]

    def _settle(self, topic: str, verb: str, token: str, ids: list[int], rng: Random, seconds: float = 0.0) -> None:
        """Whoever is not answered asks again, as long as that may help."""
        for _ in range(3):
            call = self.caller.settle(self.node(rng), topic, verb, token, ids, seconds=seconds)
            if call.outcome == OK or (call.outcome == NO and call.lost):
                return
            if call.code in ("unreachable", "line_broken"):
                self._shunned[call.node] = now() + SHUN_SECONDS
            assert call.outcome in (NO, UNKNOWN)
            if self._over.wait(0.1):
                return


_BATCHES = (1, 1, 2, 5, 20, 60)
_BATCH_MEAN = sum(_BATCHES) / len(_BATCHES)
