"""One run: a load, a fault in the middle of it, and what came of it."""

from __future__ import annotations

import re
from random import Random

from msgspec import Struct

from tests.cluster.faults import measures
from tests.cluster.faults.breaking import Fault
from tests.cluster.faults.calls import PATIENT, Caller, configure
from tests.cluster.faults.checks import wrong
from tests.cluster.faults.history import KEYED, UNKNOWN, History, now
from tests.cluster.faults.load import Load
from tests.cluster.faults.scene import Disturbance, Scene, until_true
from tests.cluster.faults.stage import Stage, make_topics

DRAIN_SECONDS_MAX = 180.0
AFTER_SECONDS = 2.0
SILENCE_SECONDS_MAX = 6.0
"""Whoever publishes gives up a node that stands still after three, and at worst all of them wait for one at a time."""


class Outcome(Struct):
    fault: str
    seed: int
    messages: int = 0
    calls: int = 0
    unknown: int = 0
    """Calls of which nobody knows what became of them."""
    back: float = 0.0
    """Seconds until everything was delivered again."""
    silence: float = 0.0
    """The longest time in which nothing could be published to topics that were to be published to."""
    others: int = 0
    """Calls on topics that had nothing to do with it, at nodes that could be asked, and yet were not answered."""
    rates: tuple[float, float] = (0.0, 0.0)
    """Messages a second that were delivered from these, before and meanwhile."""
    probes: tuple[int, int] = (0, 0)
    """Stale tokens that were tried, and refused."""
    wrong: list[str] = []
    slow: list[str] = []
    """What took too long: wrong on a machine that has time for it."""

    def __str__(self) -> str:
        told = (
            f"{self.fault:24} seed {self.seed:3}  {self.messages:6} messages {self.calls:6} calls"
            f" {self.unknown:4} unknown"
            f"  back {self.back:5.1f} s  silence {self.silence:4.1f} s  others {self.others:3} failed,"
            f" {self.rates[0]:4.0f} -> {self.rates[1]:4.0f}/s  stale {self.probes[1]}/{self.probes[0]} refused"
        )
        return "\n".join(
            [told, *(f"    WRONG {line}" for line in self.wrong), *(f"    SLOW {line}" for line in self.slow)]
        )


HELD, HELD_BRIEFLY = (4.0, 14.0), (1.5, 4.0)


def run(
    stage: Stage,
    fault: Fault,
    seed: int,
    messages: int,
    number: int = 0,
    held: tuple[float, float] = HELD,
) -> Outcome:
    """`number`: so that runs on one stage have namespaces of their own. `held`: how long messages are."""
    rng = Random(f"{fault.name} {seed}")
    namespace = re.sub(r"\W", "-", f"{fault.name}-{seed}-{number}")
    topics = make_topics(namespace, len(stage.databases), 1 if len(stage.databases) > 1 else 2)
    history = History(topics)
    caller = Caller(history, namespace)
    scene = Scene(stage, caller, namespace, topics, rng)
    durability = "wal" if fault.wal else None
    load = Load(caller, topics, stage.urls, f"{fault.name} {seed}", durability=durability, held=held)
    try:
        for topic in topics:
            configure(caller.client(stage.urls()[0], PATIENT), topic, 3 if topic.kind == KEYED else 2)
        begun = now()
        load.start()
        _reach(load, int(messages * rng.uniform(0.2, 0.4)))
        disturbance = fault.run(scene)
        _reach(load, messages)
        scene.wait(AFTER_SECONDS)
        load.stop_publishing()
        until_true(lambda: not any((scene.left() or {"?": 1}).values()), DRAIN_SECONDS_MAX)
        load.stop()
        outcome = Outcome(fault.name, seed, probes=scene.probe(stage.alive()))
        outcome.wrong = wrong(history, scene.final())
    finally:
        load.stop()
        history.save(stage.place / f"{namespace}.jsonl")
        caller.close()
    measure(outcome, history, disturbance, begun)
    return outcome


def _reach(load: Load, messages: int) -> None:
    history = load.history
    reached = until_true(lambda: history.published >= messages or bool(load.failures), DRAIN_SECONDS_MAX)
    assert reached, f"{history.published} of {messages} messages were published in {DRAIN_SECONDS_MAX:g} seconds"


def measure(outcome: Outcome, history: History, disturbance: Disturbance, begun: float) -> None:
    """How long it took, and what took too long."""
    since, until = disturbance.since, disturbance.until
    outcome.messages = history.published
    outcome.slow += disturbance.complaints
    calls = history.calls
    outcome.calls, outcome.unknown = len(calls), sum(call.outcome == UNKNOWN for call in calls)
    if disturbance.general:
        return
    if disturbance.whole:
        back = measures.served_after(history, disturbance.topics, since, disturbance.whole)
    else:
        back = measures.back_after(history, disturbance.topics, since)
    outcome.back = max(back.values(), default=0.0)
    open_topics = [topic for topic in history.topics.values() if topic not in disturbance.silent]
    outcome.silence = measures.longest_gap(measures.publishing(history, open_topics), since, until)
    others = [topic for topic in history.topics.values() if topic not in disturbance.topics]
    failed = measures.troubled(history, others, since, until)
    server = {topic.name: topic.server for topic in history.topics.values()}
    blamed = [
        call
        for call in failed
        if call.node not in disturbance.nodes and (call.node, server[call.topic]) not in disturbance.apart
    ]
    outcome.others = len(blamed)
    outcome.rates = measures.rate(history, others, begun, since), measures.rate(history, others, since, until)
    if 0 < disturbance.in_time < outcome.back:
        outcome.slow.append(f"delivered again after {outcome.back:.1f} s; {disturbance.in_time:g} s are allowed")
    if open_topics and outcome.silence > SILENCE_SECONDS_MAX:
        outcome.slow.append(f"nothing was published for {outcome.silence:.1f} s; {SILENCE_SECONDS_MAX:g} s are allowed")
    if blamed:
        outcome.slow.append(f"{len(blamed)} calls on other topics failed, such as {blamed[0]!r:.300}")
