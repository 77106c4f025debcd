"""Quotas that the nodes of a cluster have in common: each fills its own share of every bucket, and lends to the others.

Of a quota of N a minute each of k nodes mints N/k a minute, whatever it hears of the others. What one does not need
others may have: it is taken from here before it is given there, and if it is lost on the way it is spent. So there is
never more than N, also if nobody can lend just now, or only some can: then a node has its share and no more.

What was lent counts against the room of the bucket that it came from until it is spent or gone: else that would be
full again while the other is, too. Who comes to a cluster that runs begins with nothing: the others have it all.

Knows no Redis, and not who lends: see `mqueue.cluster.redis.lending`. Asked by every estate, so there is a lock.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from msgspec import Struct

from mqueue.policy.quota import TOKEN, Quotas

MINUTE_MS = 60_000
KEEP_MS = 5_000
"""So long what was borrowed waits to be spent."""
_WANT_MS = 2_000
"""So long somebody who was refused is expected to come again."""
LENT_MS = 10_000
"""What was lent counts as out for once to twice this time."""
WANTS_MAX = 1_000
"""Of so many buckets it is said at once that they are short; others have their share meanwhile."""
_NEWCOMER_MS = 3_000
"""By then all nodes know that there is one more."""


class _Borrowed(Struct):
    until: int


class _Lent(Struct):
    """In this period of time, and in the one before."""

    period: int
    now: int
    before: int

    def out(self, period: int) -> int:
        if period == self.period:
            return self.now + self.before
        return self.now if period == self.period + 1 else 0


class _Want(Struct):
    """Since it was told last: what was asked for here, and what was borrowed."""

    asked: int = 0
    borrowed: int = 0
    largest: int = 0
    """What the largest call asked for that was refused."""
    until: int = 0


class SharedQuotas(Quotas):
    __slots__ = (
        "_begun",
        "_borrowed",
        "_fill_ms",
        "_guard",
        "_keep_ms",
        "_lent",
        "_lent_ms",
        "_level",
        "_nodes",
        "_wants",
        "lends",
    )

    def __init__(self, per_minute: Mapping[str, int] | None = None, default: int | None = None) -> None:
        self._guard = threading.Lock()
        self._nodes = 1
        self._level, self._begun = 1.0, 0
        """How full a bucket was, of which nothing is written down, and when: as a part of what it holds."""
        self._fill_ms, self._keep_ms, self._lent_ms = MINUTE_MS, KEEP_MS, LENT_MS
        """How long it takes to fill one, and how long what was borrowed and lent counts."""
        self._borrowed: dict[str, _Borrowed] = {}
        self._lent: dict[str, _Lent] = {}
        self._wants: dict[str, _Want] = {}
        self.lends = False
        """Whether others can be asked just now."""
        super().__init__(per_minute, default)

    def admit(self, namespace: str, count: int, now: int) -> None:
        with self._guard:
            super().admit(namespace, count, now)
            if (want := self._wants.get(namespace)) is not None:
                want.asked += count * TOKEN

    # Shares

    def join(self, nodes: int, now: int) -> None:
        """There are so many nodes, and this is one of them from now on."""
        with self._guard:
            self._nodes = nodes
            if nodes > 1:
                self._level, self._begun = 0.0, now + _NEWCOMER_MS

    def share(self, nodes: int, now: int) -> None:
        """There are so many nodes by now: nothing that was minted so far changes."""
        with self._guard:
            if nodes == self._nodes:
                return
            for namespace, (_, at) in list(self._buckets.items()):
                limit = self._limits.get(namespace, self._default)
                if limit is not None:
                    self._buckets[namespace] = self._refilled(namespace, limit, max(at, now))
            grown = max(0, now - self._begun) / self._fill_ms / self._nodes
            self._level, self._begun = min(1 / self._nodes, self._level + grown), max(now, self._begun)
            self._nodes = nodes

    @property
    def nodes(self) -> int:
        return self._nodes

    def _refilled(self, namespace: str, limit: int, now: int) -> tuple[int, int]:
        left, at = self._buckets.get(namespace) or (int(limit * self._fill_ms * self._level), self._begun)
        later = max(at, now)
        room = self._room(namespace, limit, later)
        if left >= room:
            borrowed = self._borrowed.get(namespace)
            return (left if borrowed is not None and later < borrowed.until else room), later
        # As a difference, so that no part of a token is lost however often this is asked.
        minted = limit * later // self._nodes - limit * at // self._nodes
        return min(room, left + minted), later

    def _room(self, namespace: str, limit: int, now: int) -> int:
        share = limit * self._fill_ms // self._nodes
        lent, want = self._lent.get(namespace), self._wants.get(namespace)
        if lent is not None:
            share = max(0, share - lent.out(now // self._lent_ms))
        if want is not None and not self.lends:  # nobody can help: a node saves for a call that is above its share
            return max(share, want.largest)
        return share

    # Lending

    def _lacks(self, namespace: str, asked: int, missing: int, limit: int, at: int) -> int:
        """Somebody was refused. He is told to come again soon if others may help out, else when the share suffices."""
        wait_ms = -(-missing * self._nodes // limit)
        if self._nodes > 1:
            want = self._wants.get(namespace)
            if want is None or at >= want.until:
                want = self._want(namespace)
            want.asked += asked
            want.largest = max(want.largest, asked)
            want.until = at + (_WANT_MS if self.lends else 2 * wait_ms + _WANT_MS)
        return min(wait_ms, _WANT_MS // 2) if self.lends else wait_ms

    def _want(self, namespace: str) -> _Want:
        """It is said from now on that this is short, unless too much is."""
        want = _Want()
        if len(self._wants) < WANTS_MAX or namespace in self._wants:
            self._wants[namespace] = want
        return want

    def wants(self, now: int) -> dict[str, tuple[int, int]]:
        """What this node is short of, in parts of tokens: each time that this is asked, and once, so that the largest
        call fits."""
        with self._guard:
            self._wants = {name: want for name, want in self._wants.items() if now < want.until}
            told = {name: self._needs(name, want, now) for name, want in self._wants.items()}
            return {name: parts for name, parts in told.items() if max(parts) > 0}

    def _needs(self, namespace: str, want: _Want, now: int) -> tuple[int, int]:
        """What was asked for since the last time will be again, and the largest call comes back."""
        limit = self._limits.get(namespace, self._default)
        if limit is None:
            return 0, 0
        left, at = self._refilled(namespace, limit, now)
        if want.asked and want.borrowed:
            want.until = at + _WANT_MS
        again = min(want.asked, limit * self._fill_ms) - left
        want.asked = want.borrowed = 0
        return max(0, again), max(0, want.largest - left)

    def borrow(self, namespace: str, parts: int, now: int) -> None:
        """Somebody has lent this."""
        with self._guard:
            limit = self._limits.get(namespace, self._default)
            if limit is None or parts <= 0:
                return
            left, at = self._refilled(namespace, limit, now)
            self._borrowed[namespace] = _Borrowed(at + self._keep_ms)
            self._buckets[namespace] = left + parts, at
            if (want := self._wants.get(namespace)) is not None:
                want.borrowed += parts

    def lend(self, namespace: str, parts: int, now: int, yields: bool = False) -> int:
        """Take out what another node is short of, as far as this one can do without; how much that was.

        Half of what there is: somebody may come here, too. Less than a token is of no use here. Who is short himself
        keeps it, unless it is for a call that is above his share: those wait for each other, so all but one yield.
        """
        with self._guard:
            limit = self._limits.get(namespace, self._default)
            if limit is None:
                return 0
            if namespace in self._wants and not (yields and self._is_hopeless(namespace, limit)):
                return 0
            left, at = self._refilled(namespace, limit, now)
            given = min(parts, left if left < TOKEN else left // 2)
            if given > 0:
                self._buckets[namespace] = left - given, at
                self._note(namespace, given, at // self._lent_ms)
            return max(0, given)

    def _is_hopeless(self, namespace: str, limit: int) -> bool:
        want = self._wants.get(namespace)
        return want is not None and want.largest > limit * self._fill_ms // self._nodes

    def _note(self, namespace: str, given: int, period: int) -> None:
        lent = self._lent.get(namespace)
        if lent is None or lent.period < period - 1:
            lent = self._lent[namespace] = _Lent(period, 0, 0)
        elif lent.period < period:
            lent = self._lent[namespace] = _Lent(period, 0, lent.now)
        lent.now += given

    def _sweep(self, now: int) -> None:
        super()._sweep(now)
        self._borrowed = {name: one for name, one in self._borrowed.items() if now < one.until}
        self._lent = {name: one for name, one in self._lent.items() if one.out(now // self._lent_ms)}
