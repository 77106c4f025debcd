"""A server as a process of its own, for tests that end it, one way or the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

DEADLINE_SECONDS = 120


class Process:
    """Runs `mqueue serve` in a directory, on a free port; `url` and all `addresses` once it is ready."""

    def __init__(self, place: Path, *arguments: str) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("MQUEUE_", "GOMQ_"))}
        self._errors = (place / "stderr").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mqueue", "serve", "--http", "127.0.0.1:0", *arguments],
            cwd=place,
            env=clean | {"MQUEUE_GRPC": "off", "MQUEUE_AMQP": "off"},  # unless arguments say otherwise
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        assert self._process.stdout is not None
        self._out = self._process.stdout
        self.line = self._out.readline().decode()
        if not self.line.startswith("ready http="):
            self.kill()
            raise AssertionError(f"it did not start: {(place / 'stderr').read_text()}")
        self.addresses = dict(word.split("=") for word in self.line.split()[1:])
        self.url = f"http://{self.addresses['http']}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def outlive(self) -> None:
        """Wait until it ends, however long that takes."""
        self._process.wait()
        self.wait()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stop(self) -> tuple[int, str]:
        """Tell it to stop; its exit code, and what else it had written to stdout."""
        self.send(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """As a power cut would end it, as far as the process can tell."""
        self._process.kill()
        self.wait()

    def wait(self) -> tuple[int, str]:
        code = self._process.wait(DEADLINE_SECONDS)
        rest = "" if self._out.closed else self._out.read().decode()
        self._out.close()
        self._errors.close()
        return code, rest

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self.wait()
