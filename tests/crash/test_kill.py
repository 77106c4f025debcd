"""kill -9 of a real process with a real directory, at any moment: at work, and while it recovers.

Proves what no simulated disk can: that threads, system calls and the lock of the directory keep the promises together.
It cannot tell whether anything was synced (the page cache outlives a process): that is what the simulation is for.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from random import Random

import pytest

from mqueue import Broker
from mqueue.testing import ManualClock
from tests.crash.doomed import Notes, storage

ROOT = Path(__file__).resolve().parents[2]
LIVES = 8
"""So many times one directory is worked on and killed."""
SERIES = 15
SERIES_MAX = 60
"""A slow machine does less in a life: then there are more of them, until so much was answered as is to be proven."""
ACKED = 1_000
SEED = 20260101


class Doom:
    """The server that forks, and the hand that kills."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.crash.doomed"]
        self._server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, cwd=ROOT
        )

    def run(self, folder: Path, answers: Path, rng: Random, *, early: bool) -> None:
        """Let a process live for a while, or not even until it is ready."""
        server = self._server
        assert server.stdin is not None
        server.stdin.write(f"{folder} {answers} {rng.random()}\n")
        server.stdin.flush()
        born = ready = 0
        while not born or not (ready or early):
            word, pid = self._hear()
            assert word != "dead", "it died by itself"
            born, ready = (int(pid), ready) if word == "born" else (born, int(pid))
        threading.Event().wait(rng.uniform(0.0, 0.02) if early else rng.uniform(0.005, 0.15))
        os.kill(born, signal.SIGKILL)
        while self._hear()[0] != "dead":
            pass

    def _hear(self) -> list[str]:
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        assert line, "the server is gone"
        return line.split()

    def close(self) -> None:
        self._server.kill()
        self._server.communicate()


@pytest.fixture(scope="module")
def doom() -> Iterator[Doom]:
    doom = Doom()
    yield doom
    doom.close()


class Told:
    """What the broker had answered."""

    def __init__(self, path: Path) -> None:
        self.published: dict[int, str] = {}
        self.received: Counter[int] = Counter()
        self.acking: set[int] = set()
        self.acked: set[int] = set()
        self.staged: dict[int, list[int]] = {}
        self.committed: set[int] = set()
        for line in path.read_text().splitlines() if path.exists() else ():
            *words, mark = line.split() or [""]
            if mark != ".":
                continue  # cut short by a kill
            kind, id, rest = words[0], int(words[1]), words[2:]
            if kind == "P":
                self.published[id] = rest[0]
            elif kind == "R":
                self.received[id] += 1
            elif kind == "S":
                self.staged[id] = [int(count) for count in rest[0].split(",")]
            elif kind == "C":
                self.committed.add(id)
            else:
                (self.acked if kind == "A" else self.acking).add(id)

    @property
    def held(self) -> set[int]:
        return {id for id in self.received if id not in self.acking}


def test_a_note_that_a_kill_cut_short_does_not_borrow_the_next_ones_mark(tmp_path: Path) -> None:
    path, whole = tmp_path / "answers", f"P 17 {'a' * 64} .\n"
    for cut in range(len(whole)):
        path.unlink(missing_ok=True)
        Notes(str(path))
        path.write_text(path.read_text() + whole[:cut])
        Notes(str(path)).note([f"P 18 {'b' * 64}", "R 18"])
        told = Told(path)
        assert told.published == {18: "b" * 64} | ({17: "a" * 64} if cut == len(whole) - 1 else {})
        assert told.received == {18: 1}
        assert not told.acking


def wrong_transactions(broker: Broker, told: Told) -> Iterator[str]:
    """What was committed is there once; what was staged is there wholly or not at all, and once it is committed."""
    for again in (False, True):
        shown = Counter(
            message.text() for topic in {"tx", "tx2"} & {*broker.topics()} for message in broker.scan(topic)
        )
        yield from (f"{payload} is there {times} times" for payload, times in shown.items() if times > 1)
        if shown["replaced"]:
            yield "a part that was replaced is there"
        for number, counts in told.staged.items():
            found = [sum(shown[f"{number}-{part}-{n}"] for n in range(count)) for part, count in enumerate(counts)]
            if found != counts and (again or number in told.committed or any(found)):
                yield f"transaction {number} shows {found} of {counts}"
            if not again:
                broker.commit(f"x/{number}")


def wrong(folder: Path, told: Told) -> Iterator[str]:
    """Everything that is not as it was answered, found by working off a copy of the directory."""
    yield from (f"{id} was in two leases at a time" for id, times in told.received.items() if times > 1)
    clock, came = ManualClock(datetime.now(UTC)), Counter[int]()
    with Broker(folder, clock=clock, storage=storage()) as broker:
        yield from wrong_transactions(broker, told)
        for later in (False, True):
            clock.advance("1h" if later else "1s")
            while messages := broker.receive("t", 1000):
                for message in messages:
                    came[message.id] += 1
                    if message.id in told.held and not later:
                        yield f"{message.id} is leased, and came"
                    if message.id in told.acked:
                        yield f"{message.id} was acked, and came"
                    known = told.published.get(message.id)
                    if known is not None and known != sha256(message.payload).hexdigest():
                        yield f"{message.id} has other bytes"
                broker.ack(messages)
    yield from (f"{id} came {times} times" for id, times in came.items() if times > 1)
    yield from (f"{id} was published, and is lost" for id in told.published.keys() - came.keys() - told.acking)


def test_a_hundred_kills_break_no_promise(doom: Doom, tmp_path: Path) -> None:
    kills = published = acked = committed = 0
    for series in range(SERIES_MAX):
        if series >= SERIES and acked > ACKED and committed:
            break
        rng = Random(f"{SEED} {series}")
        folder, answers = tmp_path / f"data{series}", tmp_path / f"answers{series}"
        for life in range(LIVES):
            doom.run(folder, answers, rng, early=life > 0 and rng.random() < 0.25)
            kills += 1
            copy = tmp_path / "copy"
            shutil.copytree(folder, copy)
            found = list(wrong(copy, Told(answers)))
            assert not found, f"seed {SEED}, series {series}, life {life}: {len(found)} wrong: {found[:5]}"
            shutil.rmtree(copy)
        told = Told(answers)
        published, acked = published + len(told.published), acked + len(told.acked)
        committed += len(told.committed)
    assert kills >= 100
    assert acked > ACKED
    assert committed > 0
    print(f"{kills} kills, {published} published, {acked} acked, {committed} transactions, none lost, none twice")
