"""How many messages a namespace may publish: a token bucket each, of N tokens, refilled by N a minute.

Tokens are counted in sixty-thousandths, so that one millisecond refills exactly N of them and nothing ever drifts.
Does not know what is published, nor the clock (`now` is handed in). One owner calls it; there is no lock inside.
"""

from __future__ import annotations

from collections.abc import Mapping

from mqueue.model.errors import BadSetting, QuotaExceeded
from mqueue.model.names import check_name

TOKEN = 60_000
_SWEEP_MIN = 1024


class Quotas:
    """`unlimited` is true while no limit is set at all: a caller in a hurry need not even call."""

    __slots__ = ("_buckets", "_default", "_limits", "_sweep_at", "refused", "unlimited")

    def __init__(self, per_minute: Mapping[str, int] | None = None, default: int | None = None) -> None:
        self.replace(per_minute or {}, default)
        self.refused = 0
        """Messages that did not fit."""
        # What is left and when that was so. A namespace without an entry has a full bucket.
        self._buckets: dict[str, tuple[int, int]] = {}
        self._sweep_at = _SWEEP_MIN

    def admit(self, namespace: str, count: int, now: int) -> None:
        """Take one token for each message, or refuse and take none."""
        limit = self._limits.get(namespace, self._default)
        if limit is None:
            return
        if count > limit:
            self.refused += count
            raise QuotaExceeded(
                f"{count} messages in one call never fit the quota of namespace {namespace!r}: {limit} a minute",
                code="quota_too_small",
                retryable=False,
            )
        left, at = self._refilled(namespace, limit, now)
        missing = count * TOKEN - left
        if missing > 0:
            self.refused += count
            wait_ms = self._lacks(namespace, count * TOKEN, missing, limit, at) + at - now
            raise QuotaExceeded(
                f"quota of namespace {namespace!r} is {limit} messages a minute: {count} asked, {left // TOKEN} left",
                retry_after=wait_ms / 1000,
            )
        self._buckets[namespace] = -missing, at
        if len(self._buckets) > self._sweep_at:
            self._sweep(now)

    def set(self, namespace: str, per_minute: int | None) -> None:
        """Change a limit; None goes back to the default. What was spent stays spent."""
        if per_minute is None:
            self._limits.pop(namespace, None)
        else:
            self._limits[namespace] = check_quota(namespace, per_minute)
        self.unlimited = self._default is None and not self._limits

    def replace(self, per_minute: Mapping[str, int], default: int | None) -> None:
        """All limits anew. What was spent stays spent."""
        limits = {name: check_quota(name, limit) for name, limit in per_minute.items()}
        self._default = None if default is None else check_quota("default", default)
        self._limits = limits
        self.unlimited = default is None and not limits

    def level(self, namespace: str, now: int) -> int | None:
        """Whole tokens that are free now; None without a limit."""
        limit = self._limits.get(namespace, self._default)
        return None if limit is None else self._refilled(namespace, limit, now)[0] // TOKEN

    def _lacks(self, namespace: str, asked: int, missing: int, limit: int, at: int) -> int:
        """Of what was asked so much is missing: how many milliseconds that takes."""
        return -(-missing // limit)

    def _refilled(self, namespace: str, limit: int, now: int) -> tuple[int, int]:
        """What is left at `now`, or at the latest time seen: a clock that steps back must not refill twice."""
        bucket = self._buckets.get(namespace)
        room = self._room(namespace, limit, now)
        if bucket is None:
            return room, now
        left, at = bucket
        later = max(at, now)
        return min(room, left + limit * (later - at)), later

    def _room(self, namespace: str, limit: int, now: int) -> int:
        """What a bucket holds when it is full."""
        return limit * TOKEN

    def _sweep(self, now: int) -> None:
        """Forget the buckets that are full again. Next at twice the rest, so that the cost spreads over the calls."""
        kept = {}
        for namespace, bucket in self._buckets.items():
            limit = self._limits.get(namespace, self._default)
            if limit is not None and self._refilled(namespace, limit, now)[0] < self._room(namespace, limit, now):
                kept[namespace] = bucket
        self._buckets = kept
        self._sweep_at = max(_SWEEP_MIN, 2 * len(kept))


def check_quota(namespace: str, per_minute: int) -> int:
    """The limit as it came, or BadSetting."""
    check_name(namespace, "namespace")
    if type(per_minute) is not int or per_minute < 0:
        raise BadSetting(f"quota of {namespace!r:.80}: {per_minute!r} messages a minute; at least 0 are allowed")
    return per_minute
