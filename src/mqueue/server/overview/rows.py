"""The topics of a server as rows with rates, kept from one count to the next; and what they add up to.

Rows are changed in place, and only where something is different: most topics of many are still. Pure: counts and times
come in, nothing is looked up. Does not know who watches.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import log2
from operator import attrgetter
from typing import Protocol

from msgspec import Struct

from mqueue.broker.tallies import Tally

STUCK_MS = 60_000
"""So long the oldest ready message of a group may wait while the group acks nothing: then its topic is stuck."""
_CALM = 0.5
"""How much of a rate is what it was before: numbers that jump cannot be read."""
_STILL = 0.05
"""A rate below this is none."""


class Row(Struct, gc=False):
    """One topic. `interest`: the lower, the sooner shown. `tally`: as it was counted last."""

    tally: Tally
    namespace: str
    topic: str
    published: int
    delivered: int
    acked: int
    ready: int
    waiting: int
    leased: int
    scheduled: int
    dead: int
    oldest_at: int
    groups: int
    cursors: int
    in_per_second: float = 0.0
    out_per_second: float = 0.0
    stuck: bool = False
    interest: float = 0.0
    counted: int = 0
    """The number of the count that it was seen in last."""
    acked_at: dict[str, int] = {}
    """By group: when it was counted that it had acked something; 0: not since this is looked at."""

    @property
    def depth(self) -> int:
        return self.ready + self.waiting + self.leased


class Sums(Struct, frozen=True):
    """What some topics add up to."""

    topics: int = 0
    in_per_second: float = 0.0
    out_per_second: float = 0.0
    ready: int = 0
    waiting: int = 0
    leased: int = 0
    scheduled: int = 0
    dead: int = 0
    stuck: int = 0
    oldest_at: int = 0


_ADDED = [name for name in Sums.__struct_fields__ if name not in ("topics", "oldest_at")]
_GETTERS = [attrgetter(name) for name in _ADDED]
_OLDEST = attrgetter("oldest_at")
_KEPT = tuple(name for name in Tally.__struct_fields__ if name not in ("namespace", "topic", "made_at", "by_group"))
_COUNTS = attrgetter(*_KEPT)
_NAMED = attrgetter("namespace", "topic")


def sums(rows: list[Row]) -> Sums:
    numbers = {name: sum(map(get, rows)) for name, get in zip(_ADDED, _GETTERS, strict=True)}
    for name in ("in_per_second", "out_per_second"):
        numbers[name] = round(numbers[name], 1)
    return Sums(topics=len(rows), oldest_at=min(filter(None, map(_OLDEST, rows)), default=0), **numbers)


def added(several: Iterable[Sums]) -> Sums:
    """What sums add up to."""
    found = list(several)
    numbers = {name: sum(map(get, found)) for name, get in zip(_ADDED, _GETTERS, strict=True)}
    oldest = min(filter(None, map(_OLDEST, found)), default=0)
    return Sums(topics=sum(one.topics for one in found), oldest_at=oldest, **numbers)


class Rows:
    """All topics, and those of each namespace, in the order of their names: whoever sorts them by something else has
    less to do, and equals stay in that order."""

    def __init__(self) -> None:
        self.number = 0
        self.all: list[Row] = []
        self.spaces: dict[str, list[Row]] = {}
        self._by_name: dict[tuple[str, str], Row] = {}
        self._since = self._now = 0
        """When the count before this one was begun, and this one: what was made since then began with nothing."""

    def begin(self, now: int) -> None:
        self.number += 1
        self._since, self._now = self._now, now

    def count(self, tallies: Iterable[Tally], seconds: float) -> None:
        """Take in some topics as they are now, `seconds` after the count before."""
        by_name, number, now = self._by_name, self.number, self._now
        for tally in tallies:
            name = (tally.namespace, tally.topic)
            row = by_name.get(name)
            if row is None:
                row = by_name[name] = Row(tally, tally.namespace, tally.topic, *_COUNTS(tally))
                if self._since and tally.made_at >= self._since:
                    row.published = row.acked = 0
                    _change(row, tally, seconds, now)
                row.interest = interest(row)
            elif row.in_per_second or row.out_per_second or tally != row.tally:
                _change(row, tally, seconds, now)
            row.counted = number
            stuck = bool(row.groups and row.oldest_at and now - row.oldest_at >= STUCK_MS) and _is_stuck(row, now)
            if stuck != row.stuck:
                row.stuck = stuck
                row.interest = interest(row)

    def end(self, count: int) -> None:
        """`count`: how many topics there are. Those that were not seen are gone."""
        if count == len(self._by_name) == len(self.all):
            return
        self._by_name = {name: row for name, row in self._by_name.items() if row.counted == self.number}
        self.all = sorted(self._by_name.values(), key=_NAMED)
        self.spaces = {}
        for row in self.all:
            self.spaces.setdefault(row.namespace, []).append(row)


def _is_stuck(row: Row, now: int) -> bool:
    """Whether any group is: another one that keeps up does not help it."""
    return any(
        oldest_at and now - max(oldest_at, row.acked_at.get(name, 0)) >= STUCK_MS
        for name, _, oldest_at in row.tally.by_group
    )


def _change(row: Row, tally: Tally, seconds: float, now: int) -> None:
    row.in_per_second = _rate(row.in_per_second, tally.published - row.published, seconds)
    row.out_per_second = _rate(row.out_per_second, tally.acked - row.acked, seconds)
    for name in _KEPT:
        setattr(row, name, getattr(tally, name))
    if tally.by_group != row.tally.by_group:
        known = {name: acked for name, acked, _ in row.tally.by_group}
        row.acked_at = {
            name: row.acked_at.get(name, 0) if known.get(name) == acked else now for name, acked, _ in tally.by_group
        }
    row.tally = tally
    row.interest = interest(row)


def _rate(before: float, more: int, seconds: float) -> float:
    """A seek, or a topic that was made anew, takes counts back: that is no rate."""
    rate = _CALM * before + (1 - _CALM) * max(0, more) / seconds
    return 0.0 if rate < _STILL else round(rate, 2)


class Interesting(Protocol):
    """A row, here or as another node tells it."""

    in_per_second: float
    out_per_second: float
    ready: int
    waiting: int
    leased: int
    scheduled: int
    dead: int
    stuck: bool


def interest(row: Interesting) -> float:
    """Stuck topics come first, then those where most happens, then the deepest. In steps of a power of two, so that
    rows do not change places all the time."""
    happens = int(log2(1 + row.in_per_second + row.out_per_second))
    depth = int(log2(1 + row.ready + row.waiting + row.leased + row.scheduled + row.dead))
    return -(10_000.0 * row.stuck + 100.0 * happens + depth)
