"""A broker over a simulated disk: the real code from the calls of users down to the bytes, without a thread.

Nothing but the seed decides: the clock is moved by hand, tokens and ids come from the seed, upkeep is stepped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import force_setattr

from mqueue import Broker
from mqueue.broker import foundation
from mqueue.broker.engine import Engine
from mqueue.broker.upkeep import Upkeep
from mqueue.log.segments.log import SegmentLog
from mqueue.log.segments.storage import Storage
from mqueue.model.limits import Limits
from mqueue.model.settings import parse
from mqueue.policy.quota import Quotas
from mqueue.testing import ManualClock
from mqueue.testing.disk import SimDisk

SEGMENT_BYTES = 5_000


def small(segment_bytes: int = SEGMENT_BYTES, **settings: Any) -> Storage:
    """Sizes so small that a run of some dozen calls rolls segments, writes checkpoints and cleans up.

    Users cannot ask for segments that small; a short run would never see the second one.
    """
    sizes = {"cache_bytes": 1 << 20, "reserve_bytes": 2_048, "checkpoint_bytes": 3_000, "checkpoint_seconds": 20}
    storage = Storage(**sizes | {"scrub_hours": 0} | settings)
    force_setattr(storage, "segment_bytes", segment_bytes)
    return storage


STORAGE = small()


class World:
    """A disk, the broker on it, and the clock it goes by."""

    def __init__(
        self,
        disk: SimDisk,
        clock: ManualClock,
        entropy: Callable[[int], bytes],
        storage: Storage = STORAGE,
        **settings: Any,
    ) -> None:
        self.disk = disk
        self.clock = clock
        self.entropy = entropy
        self.storage = storage
        self.settings = settings
        self.engine: Engine = foundation.on_disk(
            disk, storage, clock, Quotas(None), parse(settings), Limits(), entropy=entropy
        )
        self.broker = _broker(self.engine)

    def again(self) -> World:
        """What the next process makes of the same disk."""
        return World(self.disk, self.clock, self.entropy, self.storage, **self.settings)

    @property
    def log(self) -> SegmentLog:
        log = self.engine.store.log
        assert isinstance(log, SegmentLog)
        return log

    @property
    def upkeep(self) -> Upkeep:
        assert isinstance(self.engine.upkeep, Upkeep)
        return self.engine.upkeep


def _broker(engine: Engine) -> Broker:
    """What `Broker(path)` makes, without a path and without its background thread."""
    broker = object.__new__(Broker)
    broker._engine = engine
    broker._namespace = "default"
    broker._name = "sim"
    broker._desks = {}
    broker._turn = 0
    broker._root = True
    return broker
