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
    """Gives out tokens. `entropy` gives that many random bytes; a batch of them is fetched at once."""

    __slots__ = ("_entropy", "_next", "_random")

    def __init__(self, epoch: int, entropy: Callable[[int], bytes]) -> None:
        self._next = epoch << 32
        self._entropy = entropy
        self._random: list[int] = []

    def take(self) -> int:
        if not self._random:
            self._random = list(_UNPACK(self._entropy(8 * _BATCH)))
        self._next += 1
        return self._next << 64 | self._random.pop()
