"""How fast this machine is right now, so that rates of different days can be compared.

A fixed loop of the work that a broker in pure Python does: look up and store in dicts, push and pop a heap, pack and
unpack numbers, set and clear bits of a long integer, make small objects. It touches no code of mqueue, so a change of
mqueue cannot move it.
"""

from __future__ import annotations

from heapq import heappop, heappush
from struct import Struct
from time import perf_counter

STEPS = 3_000
REFERENCE_SECONDS = 0.0040
"""What the loop takes on the machine of docs/benchmarks.md while nothing else disturbs it."""

_HEAD = Struct("<qqii")


class Thing:
    __slots__ = ("number", "until")

    def __init__(self, number: int, until: int) -> None:
        self.number = number
        self.until = until


def speed() -> float:
    """1.0: as fast as the reference; 0.5: half as fast."""
    started = perf_counter()
    work(STEPS)
    return REFERENCE_SECONDS / (perf_counter() - started)


def work(steps: int) -> int:
    things: dict[int, Thing] = {}
    heap: list[tuple[int, int]] = []
    mask = (1 << 1000) - 1
    total = 0
    for step in range(steps):
        until = step * 7919 % 10_007
        things[step] = Thing(step, until)
        heappush(heap, (until, step))
        head = _HEAD.pack(step, until, 1, 2)
        mask ^= 1 << step % 1000
        if len(heap) > 64:
            _, number = heappop(heap)
            thing = things.pop(number)
            total += thing.until + _HEAD.unpack(head)[1] + mask.bit_count()
    return total
