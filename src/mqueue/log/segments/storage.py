"""How a log on disk is kept: sizes, and what to do when something is missing."""

from __future__ import annotations

from msgspec import Struct

from mqueue.model.errors import BadSetting
from mqueue.model.limits import MIB


class Storage(Struct, frozen=True):
    """Settings of a data directory. They may differ from one start to the next."""

    segment_bytes: int = 64 * MIB
    """A segment is closed once it is that long."""
    cache_bytes: int = 64 * MIB
    """So much of what was written or read last stays at hand."""
    reserve_bytes: int = 64 * MIB
    """So much room is kept for settling what is there when the disk is full."""
    checkpoint_bytes: int = 64 * MIB
    checkpoint_seconds: int = 30
    """After so much, or so long, what frames cannot tell is written down, so that the next start is quick."""
    scrub_hours: float = 24.0
    """Every segment is read and checked once in so many hours; 0: never."""
    accept_loss: bool = False
    """Open the directory although something that was durable is missing from it."""

    def __post_init__(self) -> None:
        for name in ("segment_bytes", "cache_bytes", "reserve_bytes", "checkpoint_bytes", "checkpoint_seconds"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise BadSetting(f"{name} {value!r:.80}; it takes a whole number, 0 or more")
        hours: object = self.scrub_hours
        if type(hours) not in (int, float) or not 0 <= self.scrub_hours < 1e6:
            raise BadSetting(f"scrub_hours {hours!r:.80}; it takes a number of hours, 0 or more")
        if type(self.accept_loss) is not bool:
            raise BadSetting(f"accept_loss {self.accept_loss!r:.80}; it takes True or False")
        if self.segment_bytes < 64 * 1024:
            raise BadSetting(f"segment_bytes {self.segment_bytes}; it takes at least 65536")
