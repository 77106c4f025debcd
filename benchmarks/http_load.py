"""Load for a server: connections that send requests made beforehand, and look at answers no closer than they must.

The generator shares the machine with the server, so it does as little as it can. It knows no routes.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

ARROW = "application/vnd.apache.arrow.stream"
_END = b"\r\n\r\n"
_LENGTH = b"content-length: "


class Server:
    """A server in a child process, over a directory of its own; with databases it is a node of a cluster.

    `telemetry`: where its spans go, and how many of its traces.
    """

    def __init__(
        self,
        directory: Path,
        headers_timeout_ms: int = 10_000,
        databases: Sequence[str] = (),
        redis: Sequence[str] = (),
        flight: bool = False,
        amqp: bool = False,
        telemetry: tuple[str, float] | None = None,
    ) -> None:
        about = {
            "dir": str(directory),
            "headers_timeout_ms": headers_timeout_ms,
            "databases": databases,
            "redis": redis,
            "flight": flight,
            "amqp": amqp,
            "telemetry": telemetry,
        }
        words = [sys.executable, "-m", "benchmarks.http_server", json.dumps(about)]
        root = Path(__file__).parents[1]
        self._child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root)
        self.ports: dict[str, int] = self._read()
        """By the name of the listener."""
        self.port = self.ports["http"]

    def usage(self) -> tuple[float, int]:
        """Seconds of processor time used so far, and bytes of memory."""
        assert self._child.stdin is not None
        self._child.stdin.write("\n")
        self._child.stdin.flush()
        told = self._read()
        return told["seconds"], told["memory"]

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.communicate(timeout=120)

    def _read(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        told: dict[str, Any] = json.loads(self._child.stdout.readline())
        return told


class Line(asyncio.Protocol):
    """One connection: one request at a time."""

    def __init__(self) -> None:
        self._data = b""
        self._wanted = 0
        self._head = 0
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: Any = None
        self.headers = b""
        """Those of the last answer."""
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data = self._data + data if self._data else data
        if not self._wanted:
            head = self._data.find(_END)
            if head < 0:
                return
            if not self._data.startswith(b"HTTP/1.1 200"):
                self._finish(RuntimeError(self._data[:500]))
                return
            at = self._data.rindex(_LENGTH, 0, head) + len(_LENGTH)
            self._head = head + len(_END)
            self._wanted = self._head + int(self._data[at : self._data.index(b"\r", at)])
        if len(self._data) >= self._wanted:
            self._finish(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        self._finish(exc or ConnectionResetError("the server closed the connection"))

    def _finish(self, error: Exception | None) -> None:
        self.headers, body, self._data, self._wanted = self._data[: self._head], self._data[self._head :], b"", 0
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result(body) if error is None else answer.set_exception(error)

    def ask(self, request: bytes) -> asyncio.Future[bytes]:
        """The body of the answer, to be awaited."""
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def send(self, data: bytes) -> None:
        self._transport.write(data)

    def close(self) -> None:
        self._transport.close()


@asynccontextmanager
async def lines(port: int, count: int) -> AsyncIterator[list[Line]]:
    """So many connections."""
    loop = asyncio.get_running_loop()
    found: list[Line] = []
    try:
        for _ in range(count):
            _, line = await loop.create_connection(Line, "127.0.0.1", port)
            found.append(line)
        yield found
    finally:
        for line in found:
            line.close()


def request(
    method: str, path: str, body: bytes = b"", kind: str = "application/json", accept: str = "", action: str = ""
) -> bytes:
    wanted = f"accept: {accept}\r\n" if accept else ""
    if action:
        wanted += f"x-amz-target: {action}\r\n"
    about = f"content-type: {kind}\r\n{wanted}content-length: {len(body)}\r\n"
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n{about}"
    return head.encode() + b"\r\n" + body


@contextmanager
def many_files() -> Iterator[None]:
    """As many open files as the system allows, for as long as it takes."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
