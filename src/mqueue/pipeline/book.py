"""What an archive knows of itself: how far each partition is in the lake, and the ledger of what is there.

The book is the note beside the archive's last append, so it changes with the lake, all at once or not at all: there is
no second truth that could tell otherwise. Whoever appends writes the next version of it; of two that try only one does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from mqueue.lake import Lake
from mqueue.model.errors import Corrupt
from mqueue.pipeline.ledger import NAME, Sum
from mqueue.pipeline.offsets import Places


class Mark(Struct, frozen=True):
    """Offsets [start, stop) of a partition are in the lake, as many rows as the log had. `hash` is hex.

    Both are None where the lake's history no longer tells them: then there is nothing to compare with.
    """

    start: int
    stop: int
    rows: int | None = None
    hash: str | None = None

    @property
    def sum(self) -> Sum | None:
        return None if self.rows is None or self.hash is None else Sum(self.rows, int(self.hash, 16))

    def joined(self, stop: int, more: Sum) -> Mark:
        """With what follows."""
        known = self.sum
        if known is None:
            return Mark(self.start, stop)
        whole = known + more
        return Mark(self.start, stop, whole.rows, f"{whole.hash:016x}")


Marks = dict[str, dict[int, Mark]]


class Gain(Struct, frozen=True):
    """Offsets [start, stop) of a partition, and what was found there."""

    topic: str
    partition: int
    start: int
    stop: int
    sum: Sum


class Book(Struct, frozen=True):
    """`version` is that of the last append; -1: there was none. `made`: when each topic was made, as text."""

    version: int = -1
    marks: Marks = {}
    made: dict[str, str] = {}

    def is_of(self, topic: str, made: str | None) -> bool:
        """Whether a topic that was made then is the one that is archived, as far as anybody knows."""
        return made is None or self.made.get(topic, made) == made

    def stops(self) -> Places:
        return {topic: {n: mark.stop for n, mark in marks.items()} for topic, marks in self.marks.items()}

    def next(self, gains: Iterable[Gain], made: Mapping[str, str] | None = None) -> Book:
        """The book after an append of these, those of one partition in their order. `made`: of their topics."""
        marks = {topic: dict(partitions) for topic, partitions in self.marks.items()}
        for gain in gains:
            known = marks.setdefault(gain.topic, {}).get(gain.partition, Mark(gain.start, gain.start, 0, "0"))
            marks[gain.topic][gain.partition] = known.joined(gain.stop, gain.sum)
        return Book(self.version + 1, marks, {**self.made, **(made or {})})

    def note(self) -> dict[str, Any]:
        marks = msgspec.to_builtins(self.marks, str_keys=True)
        return {"version": self.version, "ledger": NAME, "topics": marks, "made": self.made}


def app_of(namespace: str) -> str:
    """The name that the archive of a namespace has in a lake."""
    return f"mqueue/archive/{namespace}"


def book_of(lake: Lake, namespace: str) -> Book:
    """As it is now."""
    app = app_of(namespace)
    version = lake.version_of(app)
    if version is None:
        return Book()
    note = lake.note_of(app)
    if note is None:
        return Book(version, _found(lake, namespace))
    try:
        # The note says which version it belongs to: it may be newer than what was asked for a moment ago.
        marks = msgspec.convert(note["topics"], Marks, strict=False)
        book = Book(msgspec.convert(note["version"], int), marks, msgspec.convert(note.get("made", {}), dict[str, str]))
    except (msgspec.ValidationError, KeyError) as problem:
        raise Corrupt(f"the note of {app} in the lake {lake.url} cannot be read: {problem}") from problem
    return book if note["ledger"] == NAME else Book(book.version, _without_sums(book.marks), book.made)


def _found(lake: Lake, namespace: str) -> Marks:
    """What the files themselves tell, where the history of the lake is shorter than that."""
    marks: Marks = {}
    for file in lake.files(namespace=namespace):
        known = marks.setdefault(file.topic, {}).get(file.partition)
        start = file.first if known is None else min(known.start, file.first)
        stop = file.next if known is None else max(known.stop, file.next)
        marks[file.topic][file.partition] = Mark(start, stop)
    return marks


def _without_sums(marks: Marks) -> Marks:
    return {topic: {n: Mark(mark.start, mark.stop) for n, mark in known.items()} for topic, known in marks.items()}
