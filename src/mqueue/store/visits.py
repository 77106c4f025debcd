"""What retention remembers of a topic from one visit to the next. Lost with the process, and found again in the log."""

from __future__ import annotations

from msgspec import Struct

from mqueue.heart.marks import Marks


class Cut(Struct, frozen=True):
    """What a visit does to one partition. `kept` and `gone` are (start, mask), in order."""

    floor: int
    kept: list[tuple[int, int]]
    gone: list[tuple[int, int]]


class Latest:
    """Which messages below the floor of one partition are the last of their keys, and what is kept besides them."""

    __slots__ = ("floor", "keyless", "last", "loose", "upto")

    def __init__(self, floor: int) -> None:
        self.floor = floor
        """The floor that this was made for: if another has come about, it is of no use any more."""
        self.upto = 0
        """Everything that is kept below this offset is known here."""
        self.last: dict[bytes, tuple[int, int]] = {}
        """Of each key, when its last message became visible, and its offset."""
        self.loose: set[int] = set()
        """What is kept only because somebody needs it still: to be looked at again."""
        self.keyless = Marks()

    def beaten(self, key: bytes, at: int, offset: int) -> int | None:
        """Take note of a visible message; the offset of the one that is not the last any more, be it itself."""
        known = self.last.get(key)
        if known is None or known < (at, offset):
            self.last[key] = (at, offset)
            return None if known is None else known[1]
        return offset if known[1] != offset else None

    def forget(self, key: bytes | None, offset: int) -> None:
        """A message has ended."""
        self.loose.discard(offset)
        self.keyless.remove(offset, 1)
        if key is not None and key in self.last and self.last[key][1] == offset:
            del self.last[key]


class Visits:
    __slots__ = ("latest", "rests_until")

    def __init__(self) -> None:
        self.latest: dict[int, Latest] = {}
        """By partition, for topics that are compacted."""
        self.rests_until = 0
        """Looking costs what is kept and needed, so the more that is the less often it is looked at."""
