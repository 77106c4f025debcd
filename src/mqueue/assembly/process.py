"""One server (PostgreSQL, Redis, a node) as processes of ours: started, stopped, killed, held still.

It knows processes and signals, and nothing of what the server does. Whoever starts one is its only owner: when that
process ends, in whatever way, `guard` ends the server.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from mqueue.assembly import guard
from mqueue.model.errors import Unavailable

DEADLINE_SECONDS = 60.0
_LOOK_SECONDS = 0.01
_TAIL_BYTES = 2000
_NEVER = threading.Event()


class ServerProcess:
    """Runs once it is made, as `owner` (uid and gid), or as we do.

    When we are gone, `last` is the signal that ends it, and then the directory `remove` goes. `env`: what it sees of
    our environment; None: what programs of others may see.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        last: signal.Signals,
        owner: tuple[int, int] | None = None,
        remove: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        as_whom = guard.NONE if owner is None else f"{owner[0]}:{owner[1]}"
        told = (str(int(last)), as_whom, str(remove or guard.NONE))
        with log.open("ab") as errors:
            self._guard = subprocess.Popen(  # noqa: S603 - the command is ours
                [sys.executable, "-I", "-S", guard.__file__, *told, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd="/",
                env=environment() if env is None else env,
                start_new_session=True,  # the ^C of a terminal is for its owner, who then stops it
            )
        assert self._guard.stdout is not None
        with self._guard.stdout as line:
            pid = line.readline()
        if not pid:
            self._gone(DEADLINE_SECONDS)
            raise Unavailable(f"{command[0]} cannot be started: {tail(log)}")
        self.pid = int(pid)

    @property
    def runs(self) -> bool:
        return not self._gone(0)

    def send(self, number: signal.Signals) -> None:
        """To the server's first process."""
        guard.tell({pid: state for pid, state in self._family().items() if pid == self.pid}, number)

    def end(self, number: signal.Signals, seconds: float = DEADLINE_SECONDS) -> bool:
        """Tell it to stop, and wait until it has. False: it did not within that time, and was killed."""
        self.resume()
        self.send(number)
        if self._gone(seconds):
            return True
        self.kill()
        return False

    def kill(self) -> None:
        """All its processes at once, as a power failure would end them."""
        self.send(signal.SIGSTOP)  # it makes no more of them
        until = time.monotonic() + DEADLINE_SECONDS
        while not self._gone(0):
            guard.tell(self._family(), signal.SIGKILL)
            _in_time(until, "be killed")

    def pause(self) -> None:
        """Hold all its processes still; they are when this returns."""
        until = time.monotonic() + DEADLINE_SECONDS
        while any(state not in "Tt" for state in self._family().values()):
            guard.tell(self._family(), signal.SIGSTOP)
            _in_time(until, "be held still")

    def resume(self) -> None:
        guard.tell(self._family(), signal.SIGCONT)

    def _family(self) -> dict[int, str]:
        return guard.family(self._guard.pid) if self.runs else {}

    def _gone(self, seconds: float) -> bool:
        try:
            self._guard.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        return True


def environment() -> dict[str, str]:
    """What the servers' programs see of ours: no variables that set them, and messages in English."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "REDIS", "LC_", "LANG"))}
    return {**kept, "LC_ALL": "C"}


def free_port() -> int:
    """Free right now: somebody else may take it before it is used."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def pause_between_looks() -> None:
    _NEVER.wait(_LOOK_SECONDS)


def tail(log: Path, start: int = 0) -> str:
    """The end of what a server wrote, from `start` on."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(start, log.stat().st_size - _TAIL_BYTES))
        return file.read().decode(errors="replace").strip()


def _in_time(until: float, what: str) -> None:
    if time.monotonic() > until:
        raise TimeoutError(f"the server could not {what} within {DEADLINE_SECONDS:g} seconds")
    pause_between_looks()
