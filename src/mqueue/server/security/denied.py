"""Tokens that were taken back before they ended: by their `jti`, or all that were issued before a time.

Bounded. When it is full of tokens that still live, adding is refused rather than an old entry forgotten: a token that
was taken back must stay so. Does not know where it is kept; `entries` is what to save, and what to start from.
"""

from __future__ import annotations

from collections.abc import Mapping

from mqueue.model.errors import Refused

DENIED_MAX = 100_000
JTI_LENGTH_MAX = 255


class Denied:
    def __init__(self, entries: Mapping[str, int] | None = None, size_max: int = DENIED_MAX) -> None:
        self._until: dict[str, int] = dict(entries or {})
        self._size_max = size_max
        self._issued_before = 0

    def deny(self, jti: str, until: int, now: int) -> None:
        """Until when it would have lived, leeway included; it may be forgotten then."""
        if not 0 < len(jti) <= JTI_LENGTH_MAX:
            raise Refused(f"jti {jti!r:.80} has {len(jti)} characters: 1 to {JTI_LENGTH_MAX} are allowed")
        if jti not in self._until and len(self._until) >= self._size_max:
            self._until = {each: at for each, at in self._until.items() if at > now}
            if len(self._until) >= self._size_max:
                raise Refused(f"{self._size_max} tokens are denied already: deny all by time, or change the key")
        self._until[jti] = max(until, self._until.get(jti, 0))

    def deny_issued_before(self, at: int) -> None:
        """The big hammer, and the only one for tokens without a `jti`. It never goes back."""
        self._issued_before = max(self._issued_before, at)

    def denies(self, jti: str | None, issued_at: int) -> bool:
        """An entry is obeyed as long as it is there: a clock that jumps must not bring a token back."""
        return issued_at < self._issued_before or (jti is not None and jti in self._until)

    def entries(self) -> dict[str, int]:
        return dict(self._until)

    def __len__(self) -> int:
        return len(self._until)
