"""Idempotency keys of one topic: which key was used, for which message, with which payload.

Keys are kept as 128-bit hashes (a false duplicate would be a lost message), beside a hash of the payload. They lie in
buckets by time, oldest first, so that the mode `window` forgets by whole buckets.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from msgspec import Struct

from mqueue.model.errors import QueueFull
from mqueue.model.settings import Settings

_BUCKETS_PER_WINDOW = 24
_PRUNE_PERIOD_MS = 1_000


class Claim(Struct, frozen=True, gc=False):
    """A key that was used: where its message is, and what was in it."""

    made_at: int
    id: int
    partition: int
    offset: int
    priority: int
    at: int
    digest: bytes


class Bucket(Struct):
    first_at: int
    last_at: int
    claims: dict[bytes, Claim]


def digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


class Dedup:
    __slots__ = ("_pruned_at", "buckets", "count")

    def __init__(self) -> None:
        self.buckets: list[Bucket] = []
        self.count = 0
        self._pruned_at = 0

    def find(self, key: bytes, settings: Settings, now: int) -> Claim | None:
        """The newest claim on a key, unless its window is over."""
        for bucket in reversed(self.buckets):
            claim = bucket.claims.get(key)
            if claim is not None:
                over = settings.dedup == "window" and claim.made_at <= now - settings.dedup_window_ms
                return None if over else claim
        return None

    def add(self, key: bytes, claim: Claim, settings: Settings) -> None:
        grain = settings.dedup_window_ms // _BUCKETS_PER_WINDOW
        in_time = settings.dedup != "window" or not self.buckets or claim.made_at - self.buckets[-1].first_at <= grain
        if not self.buckets or not in_time:
            self.buckets.append(Bucket(claim.made_at, claim.made_at, {}))
        bucket = self.buckets[-1]
        self.count += key not in bucket.claims
        bucket.claims[key] = claim
        bucket.last_at = claim.made_at

    def make_room(self, keys: int, settings: Settings, now: int, done: Callable[[Claim], bool]) -> None:
        """Forget what need not be kept; raise if the new keys still do not fit. `done`: every group has settled it."""
        if settings.dedup == "window":
            while self.buckets and self.buckets[0].last_at <= now - settings.dedup_window_ms:
                self.count -= len(self.buckets.pop(0).claims)
        full = self.count + keys > settings.dedup_keys_max
        if full and settings.dedup == "until_acked" and now >= self._pruned_at + _PRUNE_PERIOD_MS:
            self._pruned_at = now
            self._prune(done)
            full = self.count + keys > settings.dedup_keys_max
        if full:
            raise QueueFull(
                f"{self.count} idempotency keys are kept; {keys} more exceed dedup_keys_max {settings.dedup_keys_max}",
                code="dedup_full",
            )

    def _prune(self, done: Callable[[Claim], bool]) -> None:
        for bucket in self.buckets:
            bucket.claims = {key: claim for key, claim in bucket.claims.items() if not done(claim)}
        self.buckets = [bucket for bucket in self.buckets if bucket.claims]
        self.count = sum(len(bucket.claims) for bucket in self.buckets)
