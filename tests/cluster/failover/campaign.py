"""One load, and what a cluster stands on is failed over under it again and again; then the history is checked."""

from __future__ import annotations

import statistics
from pathlib import Path
from random import Random

from msgspec import Struct

from tests.cluster.failover.engines import Engine
from tests.cluster.faults import measures
from tests.cluster.faults.calls import PATIENT, Caller, configure
from tests.cluster.faults.checks import wrong
from tests.cluster.faults.history import KEYED, OK, UNKNOWN, History, Publish, now
from tests.cluster.faults.load import Load
from tests.cluster.faults.run import DRAIN_SECONDS_MAX, HELD_BRIEFLY
from tests.cluster.faults.scene import Scene, until_true
from tests.cluster.faults.stage import Stage, make_topics

CALM_SECONDS = 2.0
BACK_SECONDS_MAX = 60.0


class Result(Struct):
    engine: str
    gaps: list[float] = []
    """Of each failover: the longest time in which no publish was answered."""
    promoting: list[float] = []
    """How much of that it took to make another the primary: that is not ours."""
    messages: int = 0
    calls: int = 0
    unknown: int = 0
    sure: int = 0
    """Publishes that were answered with the durability that was asked for."""
    wrong: list[str] = []

    def __str__(self) -> str:
        gaps = sorted(self.gaps)
        told = (
            f"{self.engine:20} {len(gaps):5} failovers {self.messages:7} messages {self.calls:7} calls"
            f" {self.unknown:4} unknown {self.sure:6} as asked for"
            f"  write gap p50 {statistics.median(gaps):4.1f} s, max {gaps[-1]:4.1f} s"
            f" (a successor after p50 {statistics.median(self.promoting):4.1f} s)  wrong {len(self.wrong)}"
        )
        return "\n".join([told, *(f"    WRONG {line}" for line in self.wrong)])


def run(stage: Stage, engine: Engine, kills: int, seed: int = 0, rate: int = 200) -> Result:
    namespace = f"failover-{seed}"
    topics = make_topics(namespace, len(stage.databases), 1)
    history = History(topics)
    caller = Caller(history, namespace)
    scene = Scene(stage, caller, namespace, topics, Random(seed))
    name = f"{engine.name} {seed}"
    load = Load(caller, topics, stage.urls, name, rate=rate, durability=engine.durability, held=HELD_BRIEFLY)
    result = Result(engine.name)
    try:
        for topic in topics:
            configure(caller.client(stage.urls()[0], PATIENT), topic, 3 if topic.kind == KEYED else 2)
        load.start()
        for number in range(kills):
            scene.wait(CALM_SECONDS)
            gap, promoting = _failed_over(scene, engine)
            result.gaps.append(gap)
            result.promoting.append(promoting)
            print(f"  {engine.name} {number + 1}: {gap:.2f} s, a successor after {promoting:.2f} s", flush=True)
            engine.haunt(number)
            if number + 1 < kills:
                engine.mend()
        scene.wait(CALM_SECONDS)
        load.stop_publishing()
        until_true(lambda: not any((scene.left() or {"?": 1}).values()), DRAIN_SECONDS_MAX)
        load.stop()
        result.wrong = wrong(history, scene.final())
    finally:
        load.stop()
        history.save(stage.place / f"{namespace}.jsonl")
        caller.close()
    calls = history.calls
    result.messages, result.calls = history.published, len(calls)
    result.unknown = sum(call.outcome == UNKNOWN for call in calls)
    result.sure = sum(call.durability == engine.durability for call in history.answered(Publish))
    return result


def _failed_over(scene: Scene, engine: Engine) -> tuple[float, float]:
    """Seconds without an answer to who publishes, from the failure on until several were answered; how long it took
    until there was a successor."""
    history, since = scene.history, now()
    engine.fail()
    promoted = now()

    def back() -> bool:
        later = [call for call in history.of(Publish) if call.outcome == OK and call.begun > promoted]
        return len(later) >= 5

    if not until_true(back, BACK_SECONDS_MAX):
        return BACK_SECONDS_MAX, promoted - since
    return measures.longest_gap(measures.publishing(history, scene.topics), since, now()), promoted - since


def staged(place: Path, engine: Engine, databases: list[str], nodes: int) -> Stage:
    return Stage(place, nodes=nodes, databases=databases, settings=engine.settings)
