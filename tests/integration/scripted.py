"""A server that does what a test tells it: one act for each request. It understands nothing."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

CLOSE = b""
"""The act of a line that breaks: the request was read, and nothing comes back."""


def answer(status: int = 200, body: Any = None, **headers: str) -> bytes:
    """The act of a server that answers. Names of headers are written with `_` for `-`."""
    data = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(data)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + data


def refusal(status: int, code: str, *, retryable: bool = True, **headers: str) -> bytes:
    return answer(status, {"error": {"code": code, "message": code, "retryable": retryable}}, **headers)


class Scripted:
    """`seen` has the first lines of the requests, `heads` all before the bodies, `arrived` says that there is one.

    An act that is an event holds the answer back until it is set.
    """

    def __init__(self, acts: Sequence[bytes | threading.Event], listening: bool = True) -> None:
        self._acts = list(acts)
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.seen: list[str] = []
        self.heads: list[str] = []
        self.arrived = threading.Event()
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        if listening:
            self.listen()

    def listen(self) -> None:
        """Until then nobody can connect, but the port is ours."""
        self._socket.listen()
        self._thread.start()

    def __enter__(self) -> Scripted:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # nobody may have listened
            self._socket.shutdown(socket.SHUT_RDWR)  # closing alone wakes nobody who waits in `accept`
        for one in (*self._open, self._socket):
            one.close()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            while self._read(connection):
                act = self._acts.pop(0) if self._acts else CLOSE
                while isinstance(act, threading.Event):
                    act.wait()
                    act = self._acts.pop(0)
                if act == CLOSE:
                    break
                connection.sendall(act)
        except OSError:
            return
        connection.close()

    def _read(self, connection: socket.socket) -> bool:
        data = b""
        while b"\r\n\r\n" not in data:
            piece = connection.recv(65536)
            if not piece:
                return False
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.decode().lower().split("\r\n")
        left = sum(int(line.split(":")[1]) for line in lines if line.startswith("content-length:")) - len(body)
        while left > 0:
            piece = connection.recv(65536)
            if not piece:
                return False
            left -= len(piece)
        self.heads.append(head.decode("latin-1"))
        self.seen.append(head.decode().split("\r\n")[0].rsplit(" ", 1)[0])
        self.arrived.set()
        return True
