"""How things are measured: rounds that take turns, medians, and results that a machine can read.

A *case* is something that can be run again and again, each round saying how many messages took how many seconds.
Cases that are to be compared run in turns, round by round, so that a slow second of the machine hits all of them. The
garbage collector stays on, as it is for users. It knows nothing of brokers.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from benchmarks.calibration import REFERENCE_SECONDS, speed

Sample = tuple[int, float]
"""How many messages took how many seconds."""


@dataclass(frozen=True)
class Profile:
    """How much is measured."""

    name: str
    rounds: int
    singles: int
    """Messages of a round of single calls."""
    batches: int
    """Batches of 1000 of a round."""
    depth: int
    """How many messages lie in a deep queue."""
    shallow: int
    """How many in the one that it is compared with."""
    bulk: int
    """Messages of the measurements that are run once: memory, worst cases."""
    frames: int
    """Messages of the logs on disk that take long to make."""
    topics: int
    pause: float
    """For how many seconds to watch out for a pause: longer than what the broker does now and then is apart."""

    def at_depth(self, depth: int) -> Profile:
        """The same for another depth; what is measured beside it never gets bigger than the depth."""
        return replace(
            self,
            depth=depth,
            singles=min(self.singles, depth // 10),
            batches=min(self.batches, depth // 1000),
            shallow=min(self.shallow, max(1000, depth // 10)),
            bulk=min(self.bulk, depth),
            frames=min(self.frames, depth),
            topics=min(self.topics, depth // 10),
            pause=min(self.pause, depth / 100_000),
        )


FULL = Profile(
    "full",
    rounds=11,
    singles=10_000,
    batches=20,
    depth=10_000_000,
    shallow=10_000,
    bulk=1_000_000,
    frames=1_000_000,
    topics=10_000,
    pause=1.5,
)
QUICK = Profile(
    "quick",
    rounds=3,
    singles=2_000,
    batches=5,
    depth=100_000,
    shallow=10_000,
    bulk=50_000,
    frames=5_000,
    topics=1_000,
    pause=0.3,
)


@dataclass
class Result:
    """One row. `value` is what was measured; the target says at least (`>=`) or at most (`<=`, `<`) how much of it."""

    name: str
    value: float
    unit: str
    bound: str = ""
    target: float | None = None
    normalised: float | None = None
    """The value as a machine as fast as the reference would have shown it; None if it does not depend on that."""
    note: str = ""
    samples: list[float] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """Of the value itself, not of the normalised one: only what was seen counts."""
        if self.target is None:
            return "-"
        met = {">=": self.value >= self.target, "<=": self.value <= self.target, "<": self.value < self.target}
        return "ok" if met[self.bound] else "short"


class Case(Protocol):
    def round(self) -> dict[str, Sample]:
        """Do it once; leave everything as it was found."""


@dataclass(frozen=True)
class Rates:
    """What a case showed: messages per second, as measured, and each held against the machine's speed just then."""

    raw: list[float] = field(default_factory=list)
    calm: list[float] = field(default_factory=list)

    def add(self, count: int, seconds: float, fast: float) -> None:
        self.raw.append(count / seconds)
        self.calm.append(count / seconds / fast)

    def result(self, label: str, bound: str = "", target: float | None = None, note: str = "") -> Result:
        """The rate as a row."""
        return Result(label, median(self.raw), "msg/s", bound, target, median(self.calm), note, self.raw)


@dataclass(frozen=True)
class Race:
    """What some cases showed, by case and by the name of what was measured."""

    rates: dict[tuple[str, str], Rates]

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(name for _, name in self.rates))

    def slowdown(self, label: str, slow: str, fast: str, name: str, most: float) -> Result:
        """How many times slower one case is than another, as a row."""
        below, above = (median(self.rates[case, name].calm) for case in (slow, fast))
        return Result(label, above / below, "×", "<=", most, note=f"{short(below)}/s against {short(above)}/s")


def race(cases: Mapping[str, Case], rounds: int) -> Race:
    """Let cases take turns. The first round of each warms up and does not count."""
    rates: dict[tuple[str, str], Rates] = {}
    for case in cases.values():
        case.round()
    for number in range(rounds):
        turns = list(cases.items())
        for label, case in turns if number % 2 else reversed(turns):
            before = speed()
            samples = case.round()
            fast = (before + speed()) / 2
            for name, (count, seconds) in samples.items():
                rates.setdefault((label, name), Rates()).add(count, seconds, fast)
    return Race(rates)


@dataclass(frozen=True)
class Benchmark:
    name: str
    about: str
    run: Callable[[Profile], Iterator[Result]]


def run(benchmark: Benchmark, profile: Profile) -> list[Result]:
    """The rows of one benchmark; what it held is gone before the next one starts."""
    gc.collect()
    results = list(benchmark.run(profile))
    gc.collect()
    return results


def machine(profile: Profile) -> dict[str, Any]:
    """What has to be known to judge the numbers. No host names, no paths."""
    return {
        "kind": "machine",
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "python": platform.python_version(),
        "system": platform.system(),
        "architecture": platform.machine(),
        "cpus": os.cpu_count(),
        "packages": {name: version(name) for name in ("pyarrow", "numpy", "msgspec")},
        "calibration_reference_seconds": REFERENCE_SECONDS,
        "profile": asdict(profile),
    }


def as_json(benchmark: str, result: Result) -> dict[str, Any]:
    return {
        "kind": "result",
        "benchmark": benchmark,
        **asdict(result),
        "verdict": result.verdict,
    }


def write(path: Path, lines: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


HEADER = f"{'':<46} {'measured':>12} {'normalised':>12}   {'target':<14} {'':<5}"


def as_line(result: Result) -> str:
    target = "" if result.target is None else f"{result.bound} {short(result.target)} {result.unit}"
    normalised = "" if result.normalised is None else f"{short(result.normalised)} {result.unit}"
    measured = f"{short(result.value)} {result.unit}"
    return (
        f"  {result.name:<44} {measured:>12} {normalised:>12}   {target:<14} {result.verdict:<5} {result.note}".rstrip()
    )


def short(number: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}" if number < 1000 * size else f"{number / size:.0f}{letter}"
    return f"{number:.3g}"


def _commit() -> str:
    """The commit measured, with a + if the sources differ from it; empty outside a checkout."""
    root = Path(__file__).parent
    try:
        head = _git(root, "rev-parse", "--short", "HEAD")
        return head + ("+" if _git(root, "status", "--porcelain", "--", "../src") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()
