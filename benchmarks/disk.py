"""Measuring on disk: where, and against what.

Everything is held against the least that the disk asks for: write the same number of bytes into a file in the same
directory and fdatasync it. Both take turns of a few milliseconds, so that whatever else the disk has to do meets both.
A disk that others use swings by a factor of ten within a second: so a rate is the best of its rounds (the median stands
beside it), and a ratio is the median of the ratios of the rounds. It knows no calls of a broker.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.harness import Result, short
from mqueue import Broker
from mqueue.broker.loop import LoopBroker
from mqueue.log.segments.storage import Storage

BARE_MOST = 1.5
STORAGE = Storage(reserve_bytes=1 << 20)
"""As users have it, but for the reserved room: to fill that keeps the disk busy for a second after each opening."""
_IN_MEMORY = ("tmpfs", "ramfs")
_SLICES = 4
"""Into so many pieces a round is cut, for the turns to be short."""


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory on a real disk, gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix=".mqueue-bench-", dir=home()))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def home() -> Path:
    """What TMPDIR names, or if that is memory or not given, the directory of the results."""
    given = os.environ.get("TMPDIR")
    if given and file_system(Path(given)) not in _IN_MEMORY:
        return Path(given)
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    return results


def file_system(path: Path) -> str:
    """The kind of file system that a directory is on; empty if the system does not tell."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return ""
    above = [(len(point), kind) for point, kind in mounts if path.resolve().is_relative_to(point)]
    return max(above, default=(0, ""))[1]


class Bare:
    """A file that grows by so many bytes at a time, each time made durable."""

    def __init__(self, directory: Path, size: int, *, sync: bool = True) -> None:
        self._file = os.open(directory / "bare", os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o600)
        self._data = os.urandom(size)
        self._end = 0
        self._sync = sync

    def turns(self, count: int) -> float:
        """The seconds that so many writes take."""
        started = perf_counter()
        for _ in range(count):
            os.pwrite(self._file, self._data, self._end)
            self._end += len(self._data)
            if self._sync:
                os.fdatasync(self._file)
        return perf_counter() - started

    def close(self) -> None:
        os.close(self._file)


@dataclass(frozen=True)
class Work:
    """What is measured. `turns(count)` does it so often and says how many seconds that took."""

    label: str
    messages: int
    """How many messages a turn moves."""
    turns: Callable[[int], float]
    target: float | None = None
    """Messages per second."""
    ratio_most: float | None = None
    sync: bool = True
    unit: str = "msg/s"


def against_bare(work: Work, broker: Broker | LoopBroker, directory: Path, count: int, rounds: int) -> Iterator[Result]:
    """How fast it is, and how many times longer a turn takes than writing and syncing as many bytes."""
    before = position(broker)
    work.turns(count)
    bare = Bare(directory, max(1, (position(broker) - before) // count), sync=work.sync)
    try:
        bare.turns(count)
        pairs = [_pair(work, bare, max(1, count // _SLICES)) for _ in range(rounds)]
    finally:
        bare.close()
    yield _rate(work, [mine for mine, _ in pairs])
    ratios = [mine / least for mine, least in pairs]
    least = min(least for _, least in pairs)
    note = f"bare {least * 1e6:.0f} µs at best; best/best {min(mine for mine, _ in pairs) / least:.2f} ×"
    bound = "<=" if work.ratio_most else ""
    yield Result(f"{work.label} / bare", median(ratios), "×", bound, work.ratio_most, note=note, samples=ratios)


def _pair(work: Work, bare: Bare, count: int) -> tuple[float, float]:
    """Seconds per turn, of both."""
    mine = least = 0.0
    for _ in range(_SLICES):
        least += bare.turns(count)
        mine += work.turns(count)
    return mine / count / _SLICES, least / count / _SLICES


def _rate(work: Work, seconds: list[float]) -> Result:
    if work.unit == "µs":
        shown = [1e6 * taken / work.messages for taken in seconds]
        return Result(work.label, min(shown), "µs", note=f"median {median(shown):.0f} µs", samples=shown)
    rates = [work.messages / taken for taken in seconds]
    note = f"median {short(median(rates))}/s"
    return Result(work.label, max(rates), "msg/s", ">=" if work.target else "", work.target, note=note, samples=rates)


def position(broker: Broker | LoopBroker) -> int:
    """How long the log is."""
    return int(broker._engine.store.log.writer.link.position)  # type: ignore[attr-defined]


def chill(directory: Path) -> int:
    """Have nothing of a directory in memory; how many bytes it has."""
    total = 0
    for path in directory.iterdir():
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            total += os.fstat(file).st_size
        finally:
            os.close(file)
    return total


def bare_read(directory: Path) -> float:
    """The seconds that it takes to read the log as it lies, out of nothing."""
    chill(directory)
    started = perf_counter()
    for path in sorted(directory.glob("seg-*.log")):
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 20):
                pass
    return perf_counter() - started
