"""The command line, called as a shell would call it, in this process: what it is given, what it prints, how it ends."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mqueue.cli.main import main


class Result(NamedTuple):
    code: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode()

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def records(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]


class Stream(io.TextIOWrapper):
    """`seated`: somebody sits there, as at a terminal."""

    seated = False

    def isatty(self) -> bool:
        return self.seated


class Terminal:
    """`run("produce", "orders", "hi")`. Its environment is empty but for what a test sets; its home is a new folder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
        self._monkeypatch = monkeypatch
        self.home = home
        for name in ("MQUEUE_URL", "MQUEUE_TOKEN", "MQUEUE_TOKEN_FILE", "MQUEUE_NAMESPACE", "MQUEUE_CONTEXT"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv("MQUEUE_CONFIG", raising=False)
        monkeypatch.delenv("MQUEUE_CA_FILE", raising=False)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
        monkeypatch.setattr(sys, "path", list(sys.path))  # running a worker adds to it
        monkeypatch.chdir(home)

    def set(self, name: str, value: str) -> None:
        self._monkeypatch.setenv(name, value)

    def run(self, *words: object, stdin: bytes | str = b"", seated: bool = False) -> Result:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        with _streams(given, seated) as (out, err):
            code = main([str(word) for word in words])
            sys.stdout.flush()
            sys.stderr.flush()
        return Result(code, out.getvalue(), err.getvalue().decode())


@contextmanager
def _streams(stdin: bytes, seated: bool) -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    before = sys.stdin, sys.stdout, sys.stderr
    out, err = io.BytesIO(), io.BytesIO()
    mine = [Stream(raw, encoding="utf-8", write_through=True) for raw in (io.BytesIO(stdin), out, err)]
    for stream in mine:
        stream.seated = seated
    sys.stdin, sys.stdout, sys.stderr = mine
    try:
        yield out, err
    finally:
        sys.stdin, sys.stdout, sys.stderr = before
        for stream in mine:
            stream.detach()
