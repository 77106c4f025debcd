"""One run: loads that go on, mischief that comes and goes, looks in between, and the reckoning at the end."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from random import Random

from msgspec import Struct

from tests.cluster.chaos.mischief import MISCHIEFS, Mischief
from tests.cluster.chaos.watching import Use, too_much, use_of, wrong_lately
from tests.cluster.faults.calls import PATIENT, Caller, configure
from tests.cluster.faults.checks import wrong
from tests.cluster.faults.history import KEYED, UNKNOWN, History, Topic, now
from tests.cluster.faults.load import Load
from tests.cluster.faults.scene import Scene, until_true
from tests.cluster.faults.stage import Stage, make_topics

DRAIN_SECONDS_MAX = 300.0
BACK_SECONDS_MAX = 60.0
"""So long after everything is whole each topic has to be delivered again."""
CALM_SECONDS = 2.0
LOOK_SECONDS = 30.0


class Crowd(Struct):
    """A load, and what came of it for one group."""

    name: str
    scene: Scene
    load: Load


class Storm:
    def __init__(self, stage: Stage, seed: int, rate: int) -> None:
        self.stage = stage
        self.seed = seed
        self._rng = Random(seed)
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self.use = [Use(), Use()]
        """In the first quarter of the time, and in all of it."""
        self.longest_back = 0.0
        self.messages: dict[str, int] = {}
        self.calls = self.unknown = 0
        self._crowds = [*self._crowd("plain", rate, ["default"], None), *self._crowd("fan", rate, ["a", "b"], "wal")]

    def _crowd(self, name: str, rate: int, groups: list[str], durability: str | None) -> list[Crowd]:
        """The first of the groups publishes, too."""
        namespace = f"chaos-{name}-{self.seed}"
        topics = make_topics(namespace, len(self.stage.databases))
        histories = [History(topics) for _ in groups]
        made = []
        for number, (group, history) in enumerate(zip(groups, histories, strict=True)):
            caller = Caller(history, namespace, group, histories[1:] if number == 0 else ())
            scene = Scene(self.stage, caller, namespace, topics, Random(f"{self.seed} {name} {group}"))
            workers = (2, 4) if number == 0 else (0, 4)
            seed = f"{self.seed} {name} {group}"
            load = Load(caller, topics, self.stage.urls, seed, rate=rate, durability=durability, workers=workers)
            made.append(Crowd(f"{name} {group}", scene, load))
        client = made[0].scene.caller.client(self.stage.urls()[0], PATIENT)
        for topic in topics:
            configure(client, topic, 3 if topic.kind == KEYED else 2)
            for group in groups:
                client.create_group(topic.name, group)
        return made

    def run(self, seconds: float) -> None:
        begun = now()
        try:
            for crowd in self._crowds:
                crowd.load.start()
            looked = now()
            while now() < begun + seconds and not self.wrong:
                self._mischief()
                self._look_back()
                self._watch(now() < begun + seconds / 4)
                if now() > looked + LOOK_SECONDS:
                    looked = now()
                    self._look(begun)
            self._reckon()
        finally:
            for crowd in self._crowds:
                crowd.load.stop()
                crowd.scene.history.save(self.stage.place / f"{crowd.name}.jsonl")
                crowd.scene.caller.close()

    def _mischief(self) -> None:
        """One or two things break at once, and are whole again when this returns."""
        kinds = sorted({mischief.breaks for mischief in MISCHIEFS})
        chosen: dict[tuple[str, int], Mischief] = {}
        for _ in range(self._rng.choice((1, 2, 2))):
            kind = self._rng.choice(kinds)
            mischief = self._rng.choice([one for one in MISCHIEFS if one.breaks == kind])
            chosen[kind, self._rng.randrange(mischief.victims(self.stage))] = mischief
        with ThreadPoolExecutor(2) as threads:
            works = []
            for (_, victim), mischief in chosen.items():
                self.counts[mischief.name] += 1
                works.append(threads.submit(mischief.run, self.stage, victim, Random(self._rng.random())))
            for work in works:
                work.result()
        self._wait(self._rng.uniform(0, CALM_SECONDS))

    def _look_back(self) -> None:
        """All is whole: everything is delivered again, whoever asks for it."""
        since = now()
        late: list[str] = []
        threads = [
            threading.Thread(target=self._ask, args=(crowd.scene, topic, since, late), daemon=True)
            for crowd in self._crowds
            for topic in crowd.scene.topics
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.longest_back = max(self.longest_back, now() - since)
        self.wrong += late

    def _ask(self, scene: Scene, topic: Topic, since: float, late: list[str]) -> None:
        """Whether a receive is answered; there need not be a message."""
        urls = self.stage.urls()
        number = scene.rng.randrange(len(urls))
        code = ""
        while now() < since + BACK_SECONDS_MAX:
            number += 1
            url = urls[number % len(urls)]
            call = scene.caller.receive(url, topic.name, 1, 4.0)
            if call.got:
                scene.caller.settle(url, topic.name, "ack", call.token, [got.id for got in call.got])
            if not call.code:
                return
            code = call.code
            self._wait(0.1)
        late.append(f"{topic.name} was not delivered for {BACK_SECONDS_MAX:g} s though all was whole: {code}")

    def _watch(self, early: bool) -> None:
        for node in self.stage.nodes:
            used = use_of(node)
            self.use[1] = self.use[1].most(used)
            if early:
                self.use[0] = self.use[0].most(used)

    def _look(self, begun: float) -> None:
        for crowd in self._crowds:
            self.wrong += [f"{crowd.name}: {line}" for line in wrong_lately(crowd.scene.history)]
        published = sum(crowd.scene.history.published for crowd in self._crowds)
        print(
            f"{now() - begun:5.0f} s  {sum(self.counts.values()):4} mischiefs  {published:7} messages"
            f"  back within {self.longest_back:4.1f} s  {self.use[1].memory_mb:4.0f} MB"
            f"  {self.use[1].files} files  {self.use[1].threads} threads  {len(self.wrong)} wrong",
            flush=True,
        )

    def _reckon(self) -> None:
        for crowd in self._crowds:
            crowd.load.stop_publishing()
        for crowd in self._crowds:
            scene = crowd.scene
            until_true(lambda scene=scene: not any((scene.left() or {"?": 1}).values()), DRAIN_SECONDS_MAX)  # type: ignore[misc]
        for crowd in self._crowds:
            crowd.load.stop()
            self.wrong += [f"{crowd.name}: {line}" for line in wrong(crowd.scene.history, crowd.scene.final())]
            calls = crowd.scene.history.calls
            self.messages[crowd.name] = crowd.scene.history.published
            self.calls += len(calls)
            self.unknown += sum(call.outcome == UNKNOWN for call in calls)
        self.wrong += too_much(self.use[1])

    def report(self) -> str:
        """The table."""
        lines = [f"{name:32} {count:4}" for name, count in sorted(self.counts.items())]
        lines += [f"{f'messages: {name}':32} {count:7}" for name, count in self.messages.items()]
        lines += [
            f"{'calls, of them unknown':32} {self.calls:7} {self.unknown:5}",
            f"{'longest until all delivered':32} {self.longest_back:7.1f} s",
            *(f"{when:32} {use}" for when, use in zip(("used at first", "used at most"), self.use, strict=True)),
            f"seed {self.seed}: {sum(self.counts.values())} mischiefs, {len(self.wrong)} wrong",
            *(f"    WRONG {line}" for line in self.wrong),
        ]
        return "\n".join(lines)

    def _wait(self, seconds: float) -> None:
        threading.Event().wait(seconds)
