"""Whose turn it is: consumers of a queue get its messages one after the other, each as far as it has room.

Those of a higher priority come first: who has a lower one gets what they have no room for. Knows neither messages nor
how they are sent.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mqueue.server.amqp.channel import Channel
    from mqueue.server.amqp.consuming import Consumer


class Turns:
    def __init__(self) -> None:
        self._levels: dict[int, deque[Consumer]] = {}
        """By priority, the highest first: whose turn comes next."""

    def join(self, consumer: Consumer) -> None:
        self._levels.setdefault(consumer.priority, deque()).append(consumer)
        self._levels = {priority: self._levels[priority] for priority in sorted(self._levels, reverse=True)}

    def part(self, consumer: Consumer) -> None:
        level = self._levels[consumer.priority]
        level.remove(consumer)
        if not level:
            del self._levels[consumer.priority]

    def take(self, count: int) -> list[Consumer]:
        """Whose turn it is, so many times, or as long as somebody has room."""
        levels = self._levels.values()
        shared = {c.channel: c.channel.shared_room for level in levels for c in level if c.channel.prefetch}
        chosen: list[Consumer] = []
        for level in levels:
            if len(chosen) < count:
                chosen += _take(level, count - len(chosen), shared)
        return chosen


def _take(level: deque[Consumer], count: int, shared: dict[Channel, int]) -> list[Consumer]:
    """The same of those of one priority. `shared`: what is left of the prefetch of channels; what is taken goes off."""
    rooms = {consumer: consumer.room for consumer in level}
    waiting = deque(consumer for consumer, room in rooms.items() if room)
    chosen: list[Consumer] = []
    while waiting and len(chosen) < count:
        if not shared:  # whole rounds, as long as all of them have room
            rounds = min(*(rooms[one] for one in waiting), -(-(count - len(chosen)) // len(waiting)))
            chosen += list(waiting) * rounds
            rooms = {one: rooms[one] - rounds for one in waiting}
            waiting = deque(one for one in waiting if rooms[one])
            continue
        consumer = waiting.popleft()
        if consumer.channel in shared and not consumer.no_ack:
            if shared[consumer.channel] <= 0:
                continue
            shared[consumer.channel] -= 1
        chosen.append(consumer)
        rooms[consumer] -= 1
        if rooms[consumer]:
            waiting.append(consumer)
    del chosen[count:]
    if chosen:
        level.rotate(-1 - level.index(chosen[-1]))
    return chosen
