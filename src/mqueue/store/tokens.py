"""Lease tokens: rising, so that a later lease is told from an earlier one, and not to be guessed.

 127        96 95         64 63                    0
+-------------+-------------+-----------------------+
|    epoch    |   counter   |      random bits      |
+-------------+-------------+-----------------------+
"""

from __future__ import annotations

import struct
from collections.abc import Callable

_BATCH = 512
_UNPACK = struct.Struct(f"<{_BATCH}Q").unpack


class Tokens:
    """Gives out tokens. `entropy` gives that many random bytes; a batch of tokens is made at once."""

    __slots__ = ("_entropy", "_next", "_ready")

    def __init__(self, epoch: int, entropy: Callable[[int], bytes]) -> None:
        self._next = epoch << 32
        self._entropy = entropy
        self._ready: list[int] = []

    def take(self) -> int:
        if not self._ready:
            numbers = range(self._next + _BATCH, self._next, -1)  # the last one goes first
            random = _UNPACK(self._entropy(8 * _BATCH))
            self._ready = [number << 64 | bits for number, bits in zip(numbers, random, strict=True)]
            self._next += _BATCH
        return self._ready.pop()
