"""Calls a second of one address, over all nodes of a cluster: shared and lent as quotas are, in smaller buckets.

Each of k nodes lets through a k-th of the limit, and borrows what the others do not need of it. An address that comes
to one node only is known there to be in a hurry before it is refused, so it gets nearly the whole limit; without Redis
a k-th. A node that is new begins with its share: to refuse everybody for seconds would be worse than a few calls more.

Never more than the limit, but for what is on its way: half a burst for a moment, and the share of a node that comes or
goes, until all know of it.
"""

from __future__ import annotations

from mqueue.cluster.shares import KEEP_MS, LENT_MS, SharedQuotas
from mqueue.model.errors import QuotaExceeded
from mqueue.policy.quota import TOKEN

PEERS_MAX = 65_536
_MINUTE_SECONDS = 60


class Buckets(SharedQuotas):
    """One for each address."""

    __slots__ = ()

    def pace(self, per_second: int, burst: int) -> None:
        """What holds from now on. What was spent stays spent."""
        with self._guard:
            self.replace({}, per_second * _MINUTE_SECONDS)
            # All of it is given back within this time, so nothing that was lent may count for longer than a part of it.
            self._fill_ms = -(-burst * 1000 // per_second)
            self._lent_ms = max(1, min(LENT_MS, self._fill_ms // 4))
            self._keep_ms = min(KEEP_MS, self._lent_ms)

    def join(self, nodes: int, now: int) -> None:
        self.share(nodes, now)

    def admit(self, namespace: str, count: int, now: int) -> None:
        super().admit(namespace, count, now)
        if self._nodes > 1 and self.lends:
            self._look_ahead(namespace, count)

    def _look_ahead(self, peer: str, count: int) -> None:
        """Who has used up half of what there is for him may be short soon."""
        with self._guard:
            left, at = self._buckets[peer]
            limit, want = self._limits.get(peer, self._default), self._wants.get(peer)
            if limit is None or 2 * left >= limit * self._fill_ms // self._nodes:
                return
            if want is None or at >= want.until:
                want = self._want(peer)
                want.asked = count * TOKEN
            want.until = max(want.until, at + self._fill_ms)

    def _sweep(self, now: int) -> None:
        """Too many: those are forgotten that have been here for longest, and have their share again."""
        super()._sweep(now)
        for peer in list(self._buckets)[: max(0, len(self._buckets) - PEERS_MAX)]:
            del self._buckets[peer]


class SharedRate:
    """May be asked by any thread."""

    def __init__(self) -> None:
        self.buckets = Buckets()
        self._pace = (0, 0)

    def paced(self, per_second: int, burst: int) -> SharedRate:
        if not self.is_same(per_second, burst):
            self.buckets.pace(per_second, burst)
            self._pace = (per_second, burst)
        return self

    def admit(self, peer: str, now: int) -> None:
        """Let a call through, or refuse it."""
        try:
            self.buckets.admit(peer, 1, now)
        except QuotaExceeded as error:
            raise QuotaExceeded(
                "too many calls from here", code="rate_limited", retry_after=error.retry_after
            ) from None

    def is_same(self, per_second: int, burst: int) -> bool:
        return self._pace == (per_second, burst)
