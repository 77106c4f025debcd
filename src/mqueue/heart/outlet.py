"""When the scheduled messages of a topic become visible, if not all may that are due: see the setting `due_rate`.

At certain *moments* as many as the rate allows become visible, the earliest due first, and the partitions get even
portions. It follows from the due times, the rate and the moments alone, so nothing of it is written down as it happens:
whoever folds the log comes to the same moments. What a message that had to wait has in the order is the moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from mqueue.heart.partition import Partition, Piece
from mqueue.policy.trickle import Trickle, next_portion


class Outlet(Struct):
    """Of a topic that has such a rate, or had one."""

    trickle: Trickle
    moment: int = 0
    """When something became visible last. Nothing may be scheduled for a time before it any more."""
    gate: int = 0
    """Nothing becomes visible before this time."""
    turn: int = 0
    """Which partition has the first portion, should there be too few."""

    def change(self, rate: float | None, now: int) -> None:
        """Another rate; what waits has its turn by that."""
        self.trickle = Trickle(rate)
        self.gate = now + 1

    def let_out(self, partitions: Sequence[Partition], now: int) -> Iterator[tuple[Partition, list[tuple[int, int]]]]:
        """Let time pass: the stretches that became visible, of each partition."""
        while self.gate <= now:
            soonest = min(partition.due_at(now) for partition in partitions)
            at = max(soonest, self.gate)
            if at > now:
                break
            yield from self._at_once(partitions, at)
        for partition in partitions:
            partition.gate = self.gate

    def _at_once(self, partitions: Sequence[Partition], at: int) -> Iterator[tuple[Partition, list[tuple[int, int]]]]:
        """One moment."""
        room = self.trickle.room(at)
        turn = self.turn % len(partitions)
        waiting = [one for one in (*partitions[turn:], *partitions[:turn]) if one.due_at(at) <= at]
        self.turn = waiting[0].number + 1
        taken: dict[int, list[Piece]] = {partition.number: [] for partition in waiting}
        spent = 0
        while waiting and spent < room:
            share = max(1, (room - spent) // len(waiting))
            for partition in waiting:
                pieces = partition.take_due(at, min(share, room - spent))
                spent += sum(stop - start for start, stop, _, _ in pieces)
                taken[partition.number] += pieces
            waiting = [partition for partition in waiting if partition.due_at(at) <= at]
        self.trickle.spend(spent, at)
        self.moment = at
        self.gate = max(self.trickle.ready_at, next_portion(at) if waiting else at + 1)
        behind = {partition.number for partition in waiting}
        for partition in partitions:
            pieces = taken.get(partition.number, [])
            yield partition, partition.show(pieces, at, partition.number not in behind)


class OutletPoint(Struct, frozen=True):
    """What a checkpoint knows of it."""

    paid_ns: int
    moment: int
    gate: int
    turn: int


def outlet_point(outlet: Outlet) -> OutletPoint:
    return OutletPoint(outlet.trickle.paid_ns, outlet.moment, outlet.gate, outlet.turn)


def outlet_of(point: OutletPoint, rate: float | None) -> Outlet:
    return Outlet(Trickle(rate, point.paid_ns), point.moment, point.gate, point.turn)
