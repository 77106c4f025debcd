"""What all servers of one's own have in common: a directory, a port of 127.0.0.1, and the verbs of their processes.

A kind of server says which command starts it, when it is ready, and what it says when its port is taken.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from mqueue.assembly.process import DEADLINE_SECONDS, ServerProcess, free_port, pause_between_looks, tail
from mqueue.model.errors import Unavailable


class LocalServer:
    """Without a directory it has one of its own, which goes when it is closed, or when its owner is gone."""

    kind = "the server"
    port_taken = ""
    """The words of its log that say so."""
    last = signal.SIGTERM
    """The signal that ends it when its owner is gone."""

    def __init__(self, directory: Path | None, port: int | None) -> None:
        self._temporary = directory is None
        self.directory = _temporary() if directory is None else directory.resolve()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.log = self.directory / "log"
        self._port = port
        self._made_by = os.getpid()
        self._owner: tuple[int, int] | None = None
        self._process: ServerProcess | None = None
        atexit.register(self.close)

    @property
    def port(self) -> int:
        """The same for as long as this object lives."""
        assert self._port is not None
        return self._port

    @property
    def pid(self) -> int:
        """Its first process, the last time it was started."""
        assert self._process is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.runs

    def start(self) -> None:
        """Again, on the same port. Nothing happens if it runs."""
        until = time.monotonic() + DEADLINE_SECONDS
        while not self.runs:
            port = self._port or free_port()
            begin = self.log.stat().st_size if self.log.exists() else 0
            remove = self.directory if self._temporary else None
            process = ServerProcess(self._command(port), self.log, self.last, self._owner, remove, self._environment())
            try:
                ready = self._wait(process, begin, until)
            except BaseException:
                process.kill()
                raise
            if ready:
                self._port, self._process = port, process
            elif self.port_taken not in tail(self.log, begin) or time.monotonic() > until:
                raise Unavailable(f"{self.kind} did not start: {tail(self.log, begin)}")
            else:
                pause_between_looks()

    def kill(self) -> None:
        """All its processes at once, as a power failure would end them."""
        if self._process is not None:
            self._process.kill()

    def pause(self) -> None:
        """Hold all its processes still: connections stay, and nobody answers."""
        if self._process is not None:
            self._process.pause()

    def resume(self) -> None:
        if self._process is not None:
            self._process.resume()

    def close(self) -> None:
        """Stop it for good. What a directory of the caller's has stays there."""
        atexit.unregister(self.close)
        if os.getpid() != self._made_by:  # a fork of its owner ends
            return
        try:
            self._close()
        finally:
            if self._temporary:
                shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _command(self, port: int) -> list[str]:
        raise NotImplementedError

    def _environment(self) -> Mapping[str, str] | None:
        return None

    def _is_ready(self, process: ServerProcess, begin: int) -> bool:
        """Whether it takes connections. Its log of this start is from `begin` on."""
        raise NotImplementedError

    def _close(self) -> None:
        self._end(self.last)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None and not self._process.end(number):
            raise TimeoutError(f"{self.kind} did not stop within {DEADLINE_SECONDS:g} seconds: {tail(self.log)}")

    def _wait(self, process: ServerProcess, begin: int, until: float) -> bool:
        """True: it is ready. False: it ended."""
        while process.runs:
            if self._is_ready(process, begin):
                return True
            if time.monotonic() > until:
                said = tail(self.log, begin)
                raise Unavailable(f"{self.kind} did not start within {DEADLINE_SECONDS:g} seconds: {said}")
            pause_between_looks()
        return False


def kept_password(directory: Path) -> str:
    """A random one, kept for those who come again."""
    place = directory / "password"
    if not place.exists():
        write_secret(place, secrets.token_hex(16))
    return place.read_text(encoding="utf-8")


def write_secret(place: Path, text: str) -> None:
    """Readable for its owner only, from the first moment."""
    with open(place, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(text)


def no_package(what: str, package: str) -> Unavailable:
    return Unavailable(
        f"{what} needs the package {package}: pip install 'mqueue[dev-cluster]'", code="no_package", retryable=False
    )


def _temporary() -> Path:
    place = Path(tempfile.mkdtemp(prefix="mqueue-")).resolve()
    place.chmod(0o711)  # a server that runs as another user has to get through
    return place
