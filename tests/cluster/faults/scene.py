"""Where a fault happens: a cluster with a load on it, and what a fault needs to know of both."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from itertools import count
from random import Random

from msgspec import Struct

from mqueue.model.errors import Error
from mqueue.testing import NodeServer
from tests.cluster.faults import measures
from tests.cluster.faults.calls import BRIEF, PATIENT, Caller
from tests.cluster.faults.checks import holds
from tests.cluster.faults.history import NO, Dead, Final, History, Receive, Row, Settle, Topic, digest, now, uid_of
from tests.cluster.faults.stage import Stage

BACK_SECONDS_MAX = 30.0
PROBES_MAX = 60
PROBES = ("ack", "nack", "extend", "reject")
_PAGE = 10_000


class Disturbance(Struct):
    """What a fault did, for those who measure. Times are those of the history."""

    since: float
    until: float
    topics: list[Topic]
    """Whose delivery it stopped."""
    silent: list[Topic] = []
    """Which could not be published to."""
    nodes: list[str] = []
    """Who could not be asked."""
    apart: list[tuple[str, int]] = []
    """Nodes, by url, that could not reach a server, by its number: about its topics they could not be asked."""
    complaints: list[str] = []
    """What else was not as it should be, in its own words."""
    general: bool = False
    """Whether nobody could be sure of anything: then there is nothing to measure."""
    whole: float = 0.0
    """From when on whoever owned before may deliver again; 0: it has to be an owner that came later."""
    in_time: float = 0.0
    """Within so many seconds somebody has to deliver again: a session lasts five, and nodes look once a second. Whoever
    asks one that stands still needs another to give up."""


class Scene:
    def __init__(self, stage: Stage, caller: Caller, namespace: str, topics: Sequence[Topic], rng: Random) -> None:
        self.stage = stage
        self.caller = caller
        self.history: History = caller.history
        self.namespace = namespace
        self.topics = list(topics)
        self.rng = rng

    def busiest(self) -> NodeServer:
        """The node that delivers most of the topics."""
        return max(self.stage.nodes, key=lambda node: len(self.owned(node)))

    def owned(self, node: NodeServer) -> list[Topic]:
        return self.stage.owned(self.topics, self.namespace, node)

    def on(self, server: int) -> list[Topic]:
        return [topic for topic in self.topics if topic.server == server]

    def wait(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    def wait_back(self, topics: Sequence[Topic], since: float) -> None:
        """Until all of them are delivered again by an owner that came later. Whether they are is for others to say.

        It is we who ask, beside the load: those who were not answered may still wait.
        """
        self._ask_until(topics, lambda topic: measures.back_after(self.history, [topic], since)[topic.name] < math.inf)

    def wait_for(self, topics: Sequence[Topic], since: float) -> None:
        """Until all of them are delivered, by whoever does it."""
        self._ask_until(topics, lambda topic: measures.served(self.history, topic, since))

    def _ask_until(self, topics: Sequence[Topic], done: Callable[[Topic], bool]) -> None:
        threads = [threading.Thread(target=self._ask_for, args=(topic, done), daemon=True) for topic in topics]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _ask_for(self, topic: Topic, done: Callable[[Topic], bool]) -> None:
        until = now() + BACK_SECONDS_MAX
        for number in count():
            nodes = self.stage.alive()
            if done(topic) or now() > until or not nodes:
                return
            url = nodes[number % len(nodes)].url
            lease = self.caller.receive(url, topic.name, 1, 4.0, timeout=BRIEF)
            if lease.got:
                self.caller.settle(url, topic.name, "ack", lease.token, [got.id for got in lease.got])
            self.wait(0.1)

    def take(self, node: NodeServer, topic: Topic, limit: int, seconds: float) -> Receive:
        return self.caller.receive(node.url, topic.name, limit, seconds, timeout=PATIENT)

    def ack_later(self, node: NodeServer, leases: Sequence[Receive]) -> list[threading.Thread]:
        """Ask a node that stands still to ack these: it finds the requests when it goes on."""

        def ack(lease: Receive) -> None:
            ids = [got.id for got in lease.got]
            self.caller.settle(node.url, lease.topic, "ack", lease.token, ids, timeout=PATIENT)

        threads = [threading.Thread(target=ack, args=(lease,), daemon=True) for lease in leases if lease.got]
        for thread in threads:
            thread.start()
        return threads

    # Afterwards

    def probe(self, nodes: Sequence[NodeServer]) -> tuple[int, int]:
        """Settle on purpose with tokens that others have overtaken; how often that was tried, and refused.

        What was asked with a token before is not asked again: that would be answered as it was then.
        """
        old: dict[str, list[int]] = {}
        for id, found in holds(self.history).items():
            for hold in sorted(found, key=lambda hold: hold.start)[:-1]:
                old.setdefault(hold.token, []).append(id)
        where = {call.token: call.topic for call in self.history.answered(Receive)}
        before = {(call.token, call.verb) for call in self.history.of(Settle)}
        tokens = self.rng.sample(sorted(old), min(PROBES_MAX, len(old)))
        tried: list[Settle] = []
        for token in tokens:
            new = [verb for verb in PROBES if (token, verb) not in before]
            if not new:
                continue
            verb = self.rng.choice(new)
            node = self.rng.choice(nodes)
            seconds = 5.0 if verb == "extend" else 0.0
            tried.append(self.caller.settle(node.url, where[token], verb, token, old[token], seconds=seconds))
        return len(tried), sum(call.outcome == NO and bool(call.lost) for call in tried)

    def left(self) -> dict[str, int] | None:
        """By topic, how many messages are neither acked nor dead; None: nobody knows."""
        client = self.caller.client(self.stage.alive()[0].url, PATIENT)
        found = {}
        try:
            for topic in self.topics:
                stats = client.stats(topic.name)
                found[topic.name] = stats.ready + stats.waiting + stats.leased + stats.scheduled
        except Error:
            return None
        return found

    def final(self) -> Final:
        """All that is there. Asked when nothing is broken any more."""
        client = self.caller.client(self.stage.alive()[0].url, PATIENT)
        final = Final(left=self.left() or {"?": 1})
        for topic in self.topics:
            for m in client.scan(topic.name):
                row = Row(topic.name, m.partition, m.offset, m.id, uid_of(m.payload), digest(m.payload))
                final.rows.append(row)
            for dead in client.dlq(topic.name).messages(_PAGE):
                if dead.headers["x-group"] != self.caller.group:
                    continue
                final.dead.append(Dead(topic.name, int(dead.headers["x-origin-id"]), dead.attempts))
        return final


def until_true(condition: Callable[[], bool], seconds: float) -> bool:
    end = now() + seconds
    while not condition():
        if now() > end:
            return False
        threading.Event().wait(0.1)
    return True
