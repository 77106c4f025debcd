"""Who gets the next messages of a queue: consumers take turns, as far as each has room, by priority."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from mqueue.server.amqp.turns import Turns


class Shared:
    """What it asks of a channel."""

    def __init__(self, room: int | None) -> None:
        self.prefetch = room is not None
        self.shared_room = room


class Seat:
    """What turns ask of a consumer. `shared`: what is left of the prefetch of its channel, if it has one."""

    def __init__(self, name: int, room: int, channel: Shared, priority: int = 0) -> None:
        self.name = name
        self.own = room
        self.no_ack = False
        self.channel = channel
        self.priority = priority

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


def turns_of(seats: list[Seat]) -> Turns:
    turns = Turns()
    for seat in seats:
        turns.join(cast(Any, seat))
    return turns


def names(turns: Turns, count: int) -> list[int]:
    return [cast(Any, one).name for one in turns.take(count)]


SEATS = st.lists(st.tuples(st.integers(0, 8), st.none() | st.integers(0, 8)), max_size=5)


@given(SEATS, st.integers(0, 40), st.integers(0, 10))
def test_turns_are_those_of_one_message_after_the_other(given: Any, count: int, later: int) -> None:
    seats = [Seat(number, room, Shared(shared)) for number, (room, shared) in enumerate(given)]
    turns = turns_of(seats)
    first = names(turns, count)
    assert first == one_by_one(seats, count)
    order = list(range(len(seats)))
    if first:  # whoever had the last turn comes last
        order = order[first[-1] + 1 :] + order[: first[-1] + 1]
    assert names(turns, later) == one_by_one([seats[n] for n in order], later)


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(-2, 2)), max_size=6), st.integers(0, 40))
def test_a_lower_priority_gets_what_the_higher_ones_have_no_room_for(given: Any, count: int) -> None:
    seats = [Seat(number, room, Shared(None), priority) for number, (room, priority) in enumerate(given)]
    wanted: list[int] = []
    for priority in range(2, -3, -1):
        wanted += one_by_one([seat for seat in seats if seat.priority == priority], count - len(wanted))
    assert names(turns_of(seats), count) == wanted


def test_priorities_share_the_prefetch_of_their_channel() -> None:
    channel = Shared(3)
    seats = [Seat(0, 9, channel), Seat(1, 2, channel, priority=1), Seat(2, 9, Shared(None), priority=-1)]
    assert names(turns_of(seats), 6) == [1, 1, 0, 2, 2, 2]


def test_who_parts_has_no_more_turns() -> None:
    seats = [Seat(0, 9, Shared(None)), Seat(1, 9, Shared(None), priority=1)]
    turns = turns_of(seats)
    turns.part(cast(Any, seats[1]))
    assert names(turns, 2) == [0, 0]
    turns.part(cast(Any, seats[0]))
    assert names(turns, 2) == []
