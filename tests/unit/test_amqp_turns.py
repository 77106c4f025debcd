"""Who gets the next messages of a queue: consumers take turns, as far as each has room."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from mqueue.server.amqp.consuming import Consumer, Dispatcher


class Shared:
    """What it asks of a channel."""

    def __init__(self, room: int | None) -> None:
        self.prefetch = room is not None
        self.shared_room = room


class Seat:
    """What a dispatcher asks of a consumer. `shared`: what is left of the prefetch of its channel, if it has one."""

    def __init__(self, name: int, room: int, shared: int | None) -> None:
        self.name = name
        self.own = room
        self.no_ack = False
        self.channel = Shared(shared)

    @property
    def room(self) -> int:
        left = self.channel.shared_room
        return self.own if left is None else min(self.own, left)


def one_by_one(seats: list[Seat], count: int) -> list[int]:
    """The same, message by message."""
    rooms = {seat.name: seat.room for seat in seats}
    chosen: list[int] = []
    while len(chosen) < count and any(rooms.values()):
        for seat in seats:
            if rooms[seat.name] and len(chosen) < count:
                rooms[seat.name] -= 1
                chosen.append(seat.name)
    return chosen


SEATS = st.lists(st.tuples(st.integers(0, 8), st.none() | st.integers(0, 8)), max_size=5)


@given(SEATS, st.integers(0, 40), st.integers(0, 10))
def test_turns_are_those_of_one_message_after_the_other(given: Any, count: int, later: int) -> None:
    seats = [Seat(number, room, shared) for number, (room, shared) in enumerate(given)]
    dispatcher = Dispatcher(cast(Any, None), "q")
    dispatcher._turn.extend(cast(list[Consumer], seats))
    first = [cast(Any, one).name for one in dispatcher._turns(count)]
    assert first == one_by_one(seats, count)
    order = list(range(len(seats)))
    if first:  # whoever had the last turn comes last
        order = order[first[-1] + 1 :] + order[: first[-1] + 1]
    assert [cast(Any, one).name for one in dispatcher._turns(later)] == one_by_one([seats[n] for n in order], later)
