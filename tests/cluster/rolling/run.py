"""A load on a cluster whose nodes are told to stop and started again in turn, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random

from msgspec import Struct

from tests.cluster.faults import measures
from tests.cluster.faults.calls import PATIENT, Caller, configure
from tests.cluster.faults.checks import wrong
from tests.cluster.faults.history import KEYED, AnyCall, History, now
from tests.cluster.faults.load import Load
from tests.cluster.faults.run import AFTER_SECONDS, DRAIN_SECONDS_MAX, HELD
from tests.cluster.faults.scene import Scene, until_true
from tests.cluster.faults.stage import Stage, make_topics

WAITS = (0, 0.05, 5.0)
"""Some consumers wait long, so that nodes are told to stop while somebody waits."""


class Outcome(Struct):
    restarts: int
    seconds: float = 0.0
    messages: int = 0
    calls: int = 0
    failed: list[AnyCall] = []
    """Calls that a user would have seen fail. That a lease is over is an answer."""
    stops: list[float] = []
    """How long each node took to end."""
    publishing: dict[str, float] = {}
    """By topic, the longest time in which nothing was published."""
    delivering: dict[str, float] = {}
    slowest: float = 0.0
    """The longest call of a publisher."""
    wrong: list[str] = []

    def __str__(self) -> str:
        codes = Counter(f"{type(call).__name__.lower()} {call.code} {call.outcome}" for call in self.failed)
        told = [
            f"{self.restarts} restarts in {self.seconds:.0f} s: {self.messages} messages, {self.calls} calls,"
            f" {len(self.failed)} failed {dict(codes) or ''}",
            f"a node ended within {max(self.stops, default=0):.2f} s; the slowest publish took {self.slowest:.2f} s",
            *(
                f"{topic:10} longest pause: publishing {self.publishing[topic]:5.2f} s, delivering {pause:5.2f} s"
                for topic, pause in sorted(self.delivering.items())
            ),
        ]
        return "\n".join([*told, *(f"    WRONG {line}" for line in self.wrong)])


def run(
    stage: Stage,
    rounds: int,
    seed: int,
    durability: str | None = None,
    held: tuple[float, float] = HELD,
    rate: int = 600,
    tell: Callable[[str], None] = lambda _: None,
) -> Outcome:
    namespace = f"rolling-{seed}"
    rng = Random(f"rolling {seed}")
    topics = make_topics(namespace, len(stage.databases))
    history = History(topics)
    caller = Caller(history, namespace, retry=True)
    scene = Scene(stage, caller, namespace, topics, rng)
    load = Load(
        caller, topics, lambda: list(_rotated(stage.urls())), namespace, rate=rate, durability=durability, held=held,
        waits=WAITS,
    )  # fmt: skip
    outcome = Outcome(rounds * len(stage.nodes))
    try:
        for topic in topics:
            configure(caller.client(next(_rotated(stage.urls())), PATIENT), topic, 3 if topic.kind == KEYED else 2)
        load.start()
        scene.wait(AFTER_SECONDS)
        begun = now()
        for number in range(rounds):
            for node in stage.nodes:
                at = now()
                node.stop()
                outcome.stops.append(now() - at)
                node.start()
            tell(f"round {number + 1} of {rounds}: {now() - begun:.0f} s, {len(failed(history))} calls failed")
        ended = now()
        scene.wait(AFTER_SECONDS)
        load.stop_publishing()
        until_true(lambda: not any((scene.left() or {"?": 1}).values()), DRAIN_SECONDS_MAX)
        load.stop()
        outcome.wrong = wrong(history, scene.final())
    finally:
        load.stop()
        history.save(stage.place / f"{namespace}.jsonl")
        caller.close()
    _measure(outcome, history, begun, ended)
    return outcome


def failed(history: History) -> list[AnyCall]:
    topics = list(history.topics.values())
    return measures.troubled(history, topics, 0.0, float("inf"))


def _measure(outcome: Outcome, history: History, begun: float, ended: float) -> None:
    outcome.seconds, outcome.messages, outcome.calls = ended - begun, history.published, len(history.calls)
    outcome.failed = failed(history)
    for topic in history.topics.values():
        published = measures.publishing(history, [topic])
        outcome.publishing[topic.name] = measures.longest_gap(published, begun, ended)
        outcome.delivering[topic.name] = measures.longest_gap(measures.delivering(history, [topic]), begun, ended)
    times = (call.ended - call.begun for call in measures.publishing(history, list(history.topics.values())))
    outcome.slowest = max(times, default=0.0)


def _rotated(urls: list[str]) -> Iterator[str]:
    """All nodes, for clients that begin at different ones."""
    for number in range(len(urls)):
        yield ",".join(urls[number:] + urls[:number])
