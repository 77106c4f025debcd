"""Wires between the parts of a cluster, each with a weather of its own. A process apart carries what they say, so that
tests which are busy do not slow them down.

    with Wires() as wires:
        wire = wires.open(server.port)
        connect("127.0.0.1", wire.port)
        wire.set(HOLE)      # connections stay, nothing gets through
        wire.heal()

When whoever made them ends, in whatever way, so does the process.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType

import msgspec
from msgspec import Struct

from tests.cluster.network.proxy import Weather

GOOD = Weather()
CUT = Weather(cut=True)
HOLE = Weather(requests=False, answers=False)
NO_ANSWERS = Weather(answers=False)
"""What is asked is done, and nobody hears of it."""
NO_REQUESTS = Weather(requests=False)
_ROOT = Path(__file__).parents[3]
_SECONDS = 20.0


class Told(Struct, omit_defaults=True):
    """A line to the process."""

    do: str
    target: int = 0
    port: int = 0
    weather: Weather | None = None
    reset: bool = False
    side: str = ""


class Wires:
    """May be used by any thread."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.network"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
        )

    def open(self, target: int) -> Wire:
        """To a port of 127.0.0.1, where nobody need listen yet."""
        return Wire(self, self.tell(Told("open", target=target)), target)

    def close(self) -> None:
        """Connections are reset."""
        with self._turn:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(_SECONDS)
            finally:
                self._process.kill()
                self._process.wait()
                assert self._process.stdout is not None
                self._process.stdout.close()

    def tell(self, told: Told) -> int:
        with self._turn:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(msgspec.json.encode(told) + b"\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        assert answer, f"the wires have ended with {self._process.poll()}"
        return int(answer)

    def __enter__(self) -> Wires:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Wire:
    """One of them: whoever connects to `port` talks to `target`."""

    def __init__(self, wires: Wires, port: int, target: int) -> None:
        self._wires = wires
        self.port = port
        self.target = target

    def set(self, weather: Weather) -> None:
        self._wires.tell(Told("set", port=self.port, weather=weather))

    def heal(self, reset: bool = False) -> None:
        """What was held goes on; `reset`: or is lost, with its connections."""
        self._wires.tell(Told("set", port=self.port, weather=GOOD, reset=reset))

    def abandon(self, side: str) -> int:
        """The machine at one side is gone without a word; of how many connections."""
        return self._wires.tell(Told("abandon", port=self.port, side=side))

    @property
    def connections(self) -> int:
        return self._wires.tell(Told("count", port=self.port))
