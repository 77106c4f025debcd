"""What the broker's bookkeeping weighs, frames left out.

Weighed by walking: everything that can be reached from the broker's store is added up (`sys.getsizeof`, each object
once), and the walk stops at frames, which hold the payloads, ids and columns of the messages themselves. What remains
is what mqueue needs beside the messages: lanes, cursors, leases, schedules, the lists of the log, and the journal.
The journal (one event per call that leased or settled something) belongs to the log, like the frames, and goes with
them when retention drops them; so it is told apart. A walk is exact and repeatable, unlike the memory of a process.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from random import Random
from time import time
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import pyarrow as pa
from msgspec import Struct

from benchmarks.harness import Profile, Result
from benchmarks.memory_broker import BATCH, DRAFTS, PAYLOADS, TABLES, TOPIC, deep_broker
from mqueue import Broker
from mqueue.model.events import Event
from mqueue.wire.frame import Frame

_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, Random)
_YEAR_MS = 365 * 24 * 3600 * 1000
MB = 1_000_000


class Weight:
    """Bytes reachable from a broker: bookkeeping, journal; and how many frames were left out."""

    def __init__(self, broker: Broker) -> None:
        self.bookkeeping = 0
        self.journal = 0
        self.frames = 0
        seen: set[int] = set()
        self._walk(broker._engine.store, seen)

    def _walk(self, root: object, seen: set[int]) -> None:
        todo: deque[tuple[object, bool]] = deque([(root, False)])
        while todo:
            thing, journal = todo.pop()
            if id(thing) in seen or thing is None or isinstance(thing, _SHARED):
                continue
            seen.add(id(thing))
            if isinstance(thing, Frame):
                self.frames += 1
                continue
            journal = journal or isinstance(thing, Event)
            size = sys.getsizeof(thing)
            if journal:
                self.journal += size
            else:
                self.bookkeeping += size
            todo.extend((part, journal) for part in _parts(thing))


def _parts(thing: Any) -> Iterator[object]:
    if isinstance(thing, str | bytes | int | float):
        return
    if isinstance(thing, Mapping):
        yield from thing.keys()
        yield from thing.values()
    elif isinstance(thing, list | tuple | set | frozenset | deque):
        yield from thing
    elif isinstance(thing, Struct):
        yield from (getattr(thing, name) for name in thing.__struct_fields__)
    else:
        yield from getattr(thing, "__dict__", {}).values()
        for kind in type(thing).__mro__:
            slots: Iterable[str] = getattr(kind, "__slots__", ())
            yield from (getattr(thing, name, None) for name in slots if name != "__weakref__")


def queued(profile: Profile) -> Iterator[Result]:
    """Bytes per message that lies in the queue, and what the journal keeps of each when all have been settled."""
    for label, batch, most in (("uniform", PAYLOADS, 2), ("10 priorities", DRAFTS, 4)):
        broker = deep_broker(0, False)
        for _ in range(profile.bulk // BATCH):
            broker.publish_many(TOPIC, list(batch))
        yield from _per_message(broker, profile.bulk, f"publish_many, {label}", most)
    for label, mixed, most in (("uniform", False, 2), ("10 priorities", True, 4)):
        broker = deep_broker(profile.bulk, mixed)
        yield from _per_message(broker, profile.bulk, f"publish_arrow, {label}", most)
        while lease := broker.receive_arrow(TOPIC, BATCH):
            lease.ack()
        yield Result(f"journal, {label}, settled", Weight(broker).journal / profile.bulk, "B/msg")


def _per_message(broker: Broker, count: int, label: str, most: float) -> Iterator[Result]:
    broker.receive(TOPIC)[0].ack()
    gc.collect()
    weight = Weight(broker)
    bound = "<" if most == 2 else "<="
    yield Result(label, weight.bookkeeping / count, "B/msg", bound, most, note=f"{weight.frames} frames left out")


def scheduled(profile: Profile) -> Iterator[Result]:
    """Messages scheduled at distinct random times over a year."""
    broker = Broker()
    count = profile.bulk
    now = int(time() * 1000)
    times = Random(7).sample(range(now + 60_000, now + _YEAR_MS), count)
    payload = TABLES[False][0].column("payload")
    for start in range(0, count, BATCH):
        due = pa.array(times[start : start + BATCH], pa.int64())
        broker.publish_arrow(TOPIC, pa.RecordBatch.from_arrays([payload, due], ["payload", "deliver_at"]))
    assert broker.stats(TOPIC).scheduled == count // BATCH * BATCH
    weight = Weight(broker)
    note = f"{weight.bookkeeping / count:.0f} B/msg, {count:,} messages"
    # Few messages in the same 8760 hours weigh more each, so the target stands for the full number only.
    bound, target = ("<", 150.0) if count >= 1_000_000 else ("", None)
    yield Result("scheduled over a year", weight.bookkeeping / MB, "MB", bound, target, note=note)
