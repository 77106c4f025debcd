"""What the broker answered, written down beside the disk that is cut: one line each, whole or not at all.

P id sha256     published, with these bytes
R id            received under a lease
a id            about to ack: from now on it may be gone
A id            acked
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path


class Notebook:
    """Appends. A write of the whole text at once: lines of several threads do not mix."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, lines: Iterable[str]) -> None:
        text = "".join(f"{line}\n" for line in lines).encode()
        assert os.write(self._file, text) == len(text)


@dataclass
class Answers:
    published: dict[int, str] = field(default_factory=dict)
    received: Counter[int] = field(default_factory=Counter)
    acking: set[int] = field(default_factory=set)
    acked: set[int] = field(default_factory=set)


def read(path: str) -> Answers:
    answers = Answers()
    text = Path(path).read_text() if os.path.exists(path) else ""
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):
            kind, number, *rest = line.split()
            _take(answers, kind, int(number), rest)
    return answers


def _take(answers: Answers, kind: str, id: int, rest: list[str]) -> None:
    if kind == "P":
        answers.published[id] = rest[0]
    elif kind == "R":
        answers.received[id] += 1
    else:
        (answers.acked if kind == "A" else answers.acking).add(id)
