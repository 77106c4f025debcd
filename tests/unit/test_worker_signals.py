"""A worker in a process of its own, and the signals it is sent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mqueue

DEADLINE_SECONDS = 120

PROGRAM = """
import asyncio, logging, sys
import mqueue

logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="log %(message)s")
app = mqueue.Worker("file:data", drain="1h")

async def line():
    return (await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)).strip()

@app.handler("orders", concurrency=1)
async def ship(text: str) -> None:
    print("begun", text, flush=True)
    if text == "patient":
        await line()
    else:
        await asyncio.Event().wait()

app.run()
print("returned", flush=True)
"""


class Child:
    """The program, and what it prints."""

    def __init__(self, folder: Path) -> None:
        (folder / "program.py").write_text(PROGRAM)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "program.py"],
            cwd=folder,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def read_until(self, wanted: str) -> None:
        """Up to a line that holds some words; pytest's own time limit is the deadline."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if wanted in line:
                return
        raise AssertionError(f"it ended without {wanted!r}")

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self) -> int:
        self.process.communicate(timeout=DEADLINE_SECONDS)
        return self.process.returncode


@pytest.fixture
def children() -> Iterator[list[Child]]:
    found: list[Child] = []
    yield found
    for child in found:
        if child.process.poll() is None:
            child.process.kill()
        child.process.communicate(timeout=DEADLINE_SECONDS)


def started(folder: Path, children: list[Child], *texts: str) -> Child:
    with mqueue.Broker(folder / "data") as q:
        q.publish_many("orders", list(texts))
    child = Child(folder)
    children.append(child)
    child.read_until(f"begun {texts[0]}")
    return child


def counts(folder: Path) -> tuple[int, int]:
    """(acked, ready)"""
    with mqueue.Broker(folder / "data") as q:
        group = q.stats("orders").groups["default"]
        assert [m.attempt for m in q.receive("orders", limit=10)] == [1] * group.ready
        return group.acked, group.ready


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_drains(number: signal.Signals, tmp_path: Path, children: list[Child]) -> None:
    child = started(tmp_path, children, "patient", "another")
    child.process.send_signal(number)
    child.read_until("takes no more messages and has 1 at hand")
    child.say("go on")
    child.read_until("returned")
    assert child.end() == 0
    assert counts(tmp_path) == (1, 1)


def test_the_second_signal_ends_it_at_once(tmp_path: Path, children: list[Child]) -> None:
    child = started(tmp_path, children, "endless", "another")
    child.process.send_signal(signal.SIGTERM)
    child.read_until("takes no more messages and has 1 at hand")
    child.process.send_signal(signal.SIGTERM)
    child.read_until("returned")
    assert child.end() == 0
    assert counts(tmp_path) == (0, 2)
