"""Lease tokens: rising, so that a later lease is told from an earlier one, and not to be guessed.

 0            4            8                      16
+------------+------------+-----------------------+
|   epoch    |  counter   |      random bytes     |     big-endian: tokens sort as they were given out
+------------+------------+-----------------------+
"""

from __future__ import annotations

from collections.abc import Callable

_BATCH = 512


class Tokens:
    """Gives out tokens. `entropy` gives that many random bytes; a batch of tokens is made at once."""

    __slots__ = ("_entropy", "_next", "_ready")

    def __init__(self, epoch: int, entropy: Callable[[int], bytes]) -> None:
        self._next = epoch << 32
        self._entropy = entropy
        self._ready: list[bytes] = []

    def take(self) -> bytes:
        if not self._ready:
            numbers = range(self._next + _BATCH, self._next, -1)  # the last one goes first
            random = self._entropy(8 * _BATCH)
            self._ready = [
                number.to_bytes(8, "big") + random[8 * place : 8 * place + 8] for place, number in enumerate(numbers)
            ]
            self._next += _BATCH
        return self._ready.pop()
