"""Drivers and servers as processes of their own, which may be killed, and what they are told.

`Driver` is the other end of `driver`; `Supervised` is a server that is started again when it dies, as on any machine
that is looked after.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.integration.process import Process
from tests.pipeline.breaking import SERVER, VARIABLE, Folder
from tests.pipeline.cluster import ROOT, environment

LOCAL = {"spark.master": "local[2,2]"}
"""Two cores; a task may fail once."""
CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.log.level": "ERROR",
    "spark.sql.streaming.pollingDelay": "100ms",
}
_DEADLINE_SECONDS = 240


class Gone(Exception):
    """The driver died before it answered."""


class Failed(Exception):
    """The driver answered that it could not."""


class Driver:
    """A process with a session. `folder`: where its plans lie."""

    def __init__(self, place: Path, folder: Folder, conf: Mapping[str, str] = LOCAL) -> None:
        places = {"spark.sql.warehouse.dir": str(place / "warehouse"), "spark.local.dir": str(place / "local")}
        elsewhere = {f"spark.executorEnv.{VARIABLE}": str(folder.path)}
        self._log = (place / "driver.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.driver", json.dumps({**CONF, **places, **elsewhere, **conf})],
            cwd=ROOT,
            env=environment(**{VARIABLE: str(folder.path)}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            bufsize=1,
            start_new_session=True,  # its JVM is in the same group, so that both are killed at once
        )
        self._answer()

    def order(self, work: str, **words: Any) -> Any:
        """What it answers. `Gone` if it dies over it, `Failed` if it cannot."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"work": work, "words": words}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Gone from None
        return self._answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_DEADLINE_SECONDS)
        finally:
            self.kill()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(_DEADLINE_SECONDS)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._log.close()

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        guard = threading.Timer(_DEADLINE_SECONDS, self._process.kill)
        guard.start()
        try:
            line = self._process.stdout.readline()
        finally:
            guard.cancel()
        if not line.endswith("\n"):
            raise Gone
        told = json.loads(line)
        if "error" in told:
            raise Failed(told["error"])
        return told["answer"]


class Supervised:
    """A server on disk that comes back at the same address with the same messages, `pause_seconds` after its death."""

    def __init__(self, place: Path, folder: Folder) -> None:
        self._place = place
        self._folder = folder
        self._closing = threading.Event()
        self.pause_seconds = 0.0
        self.deaths = 0
        self.failure: BaseException | None = None
        self._process = self._start("127.0.0.1:0")
        self.url = self._process.url
        self._thread = threading.Thread(target=self._look_after, name="supervisor")
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._process.send(signal.SIGTERM)
        self._thread.join(_DEADLINE_SECONDS)
        assert not self._thread.is_alive(), "the server does not stop"
        if self.failure is not None:
            raise self.failure

    def __enter__(self) -> Supervised:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, address: str) -> Process:
        words = ("--data-dir", str(self._place / "data"), "--set", "storage.reserveSize=0", "--http", address)
        process = Process(self._place, *words)
        self._folder.write(SERVER, str(process.pid))
        return process

    def _look_after(self) -> None:
        try:
            while True:
                self._process.outlive()
                if self._closing.is_set():
                    return
                self.deaths += 1
                self._closing.wait(self.pause_seconds)
                self._process = self._start(self.url.removeprefix("http://"))
                if self._closing.is_set():
                    self._process.send(signal.SIGTERM)
        except BaseException as failure:
            self.failure = failure
