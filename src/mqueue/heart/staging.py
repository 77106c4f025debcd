"""Transactions: what is staged and not yet published, and how those that are over have ended.

What is staged lies in a topic of its own that nobody can name, so that it is stored, recovered and copied on like any
other; nobody reads it. Once the transaction is over that topic goes, and a line in the ledger of the namespace stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from mqueue.heart.bulk import Table
from mqueue.heart.partition import Stretch
from mqueue.model.events import Concluded, Staged
from mqueue.model.limits import TRANSACTION_MEMORY_MS
from mqueue.model.priority import NORMAL


class Staging:
    """One transaction that is not over. What its parts are is told by the events that staged them, oldest first."""

    __slots__ = ("moved", "parts")

    def __init__(self) -> None:
        self.parts: dict[str, Staged] = {}
        self.moved = 0
        """What lies below this offset is published already: a commit has begun."""

    def put(self, event: Staged) -> None:
        self.parts.pop(event.part, None)
        self.parts[event.part] = event

    def only(self, parts: Collection[str]) -> Staging:
        """The same with these parts alone, as they lie in the log."""
        chosen = Staging()
        chosen.moved = self.moved
        chosen.parts = {name: part for name, part in self.parts.items() if name in parts}
        return chosen

    def choose(self, parts: Collection[str]) -> None:
        """The other parts will not be published."""
        self.parts = self.only(frozenset(parts)).parts

    @property
    def last(self) -> Staged | None:
        return next(reversed(self.parts.values()), None)

    @property
    def size(self) -> int:
        return self.last.size if self.last else 0

    @property
    def expires_at(self) -> int:
        return self.last.expires_at if self.last else 0

    @property
    def messages(self) -> int:
        return sum(part.stop - part.start for part in self.parts.values())

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(sorted({part.target for part in self.parts.values()}))

    def rest(self) -> Iterator[Staged]:
        """The parts that are not published yet, as they lie in the log."""
        return (part for part in self.parts.values() if part.stop > self.moved)


class Ledger:
    """How the transactions of a namespace ended, oldest first."""

    __slots__ = ("lines",)

    def __init__(self) -> None:
        self.lines: dict[str, Concluded] = {}

    def add(self, event: Concluded) -> None:
        """A transaction is over; those that were over long ago are forgotten."""
        for old in self._over(event.at):
            del self.lines[old]
        self.lines.pop(event.transaction, None)
        self.lines[event.transaction] = event

    def find(self, transaction: str, now: int) -> Concluded | None:
        line = self.lines.get(transaction)
        return line if line is not None and line.at + TRANSACTION_MEMORY_MS > now else None

    def count(self, now: int) -> int:
        """How many transactions are remembered."""
        return len(self.lines) - len(self._over(now))

    def _over(self, now: int) -> list[str]:
        over = []
        for name, line in self.lines.items():
            if line.at + TRANSACTION_MEMORY_MS > now:
                break
            over.append(name)
        return over


def veiled(stretches: Iterable[Stretch]) -> list[Stretch]:
    """What is staged has no priority and no due time yet: nothing happens to it by itself."""
    return [(start, stop, NORMAL, 0, 0) for start, stop, *_ in stretches]


def veiled_table(rows: Table) -> Table:
    """The same for rows of a log."""
    rows = rows.copy()
    rows[:, 2] = NORMAL
    rows[:, 3:5] = 0
    return rows
