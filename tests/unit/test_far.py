"""Frames that are loaded late: what a partition knows of them, and what comes of loading them."""

from __future__ import annotations

import numpy as np
import pytest

from mqueue.heart.bulk import fill
from mqueue.heart.far import FAR, Far
from mqueue.heart.partition import Partition, Stretch
from mqueue.heart.schedule import HOUR_MS, NEVER

DAY = 24 * HOUR_MS
ROWS: list[Stretch] = [(10, 11, 50, DAY, 0), (11, 12, 50, 2 * DAY, 9 * DAY), (12, 14, 50, 3 * DAY, 0)]


def eager() -> Partition:
    partition = Partition(0)
    partition.append(0, 10, 50, 1)
    partition.append_stretches(ROWS, 2)
    return partition


def lazy() -> Partition:
    partition = Partition(0)
    partition.append(0, 10, 50, 1)
    partition.append_stretches([(10, 14, 50, DAY, FAR)], 2)
    return partition


def both() -> tuple[Partition, Partition]:
    return eager(), lazy()


def facts(partition: Partition) -> tuple[object, ...]:
    lanes = {priority: list(lane.runs()) for priority, lane in partition.lanes.items()}
    return partition.next, partition.at, partition.scheduled, partition.open, partition.visible, lanes


def to_come(partition: Partition) -> list[tuple[int, int]]:
    pieces = [(entry[0], piece) for entry in partition.schedule.entries() for piece in partition.still_due(entry)]
    return sorted((when, offset) for when, piece in pieces for offset in range(*piece))


def test_it_counts_at_once() -> None:
    one, other = both()
    assert facts(one) == facts(other)
    assert not other.schedule
    assert not other.expiry
    assert other.next_at == DAY
    assert [other.scheduled_in(*stretch) for stretch in ((0, 14), (11, 13), (0, 10))] == [4, 2, 0]


def test_loaded_it_is_as_if_it_had_been_from_the_beginning() -> None:
    one, other = both()
    other.load(10, ROWS)
    assert not other.far
    assert list(one.schedule.entries()) == list(other.schedule.entries())
    assert list(one.expiry.entries()) == list(other.expiry.entries())
    assert one.ripen(2 * DAY) == other.ripen(2 * DAY) == [(10, 11), (11, 12)]
    assert facts(one) == facts(other)


def test_time_does_not_pass_it_by() -> None:
    partition = lazy()
    partition.append_stretches([(14, 15, 50, DAY - 1, 0)], 2)
    with pytest.raises(AssertionError, match="loaded before its time"):
        partition.ripen(DAY)


@pytest.mark.parametrize("moves", [(5,), (5 * DAY,), (5 * DAY, 2 * DAY), (5 * DAY, 6 * DAY), (2 * DAY,), (5, 2 * DAY)])
@pytest.mark.parametrize("load_at", [0, 1, 2])
def test_what_was_moved_has_one_time(moves: tuple[int, ...], load_at: int) -> None:
    one, other = both()
    was = 2 * DAY
    for number, due in enumerate(moves):
        if number == load_at:
            other.load(10, ROWS)
        for partition in (one, other):
            partition.reschedule(11, 50, was, due)
        was = due
        assert one.scheduled_in(0, 14) == other.scheduled_in(0, 14) == 4
    if other.far:
        other.load(10, ROWS)
    assert to_come(one) == to_come(other)
    assert one.ripen(9 * DAY) == other.ripen(9 * DAY)
    assert facts(one) == facts(other)
    assert one.lapse(9 * DAY) == other.lapse(9 * DAY) == [(11, 1, 50, was)]


def test_what_came_early_does_not_come_again() -> None:
    one, other = both()
    for partition in (one, other):
        partition.reschedule(12, 50, 3 * DAY, 7)
        assert partition.ripen(7) == [(12, 13)]
    other.load(10, ROWS)
    assert one.ripen(9 * DAY) == other.ripen(9 * DAY) == [(10, 11), (11, 12), (13, 14)]


def test_what_ended_does_not_come() -> None:
    one, other = both()
    for partition in (one, other):
        partition.end(13, 1, 3 * DAY, "cancelled", 3)
        assert partition.scheduled == partition.scheduled_in(0, 14) == 3
        partition.purge(12)
        assert (partition.scheduled, partition.cancelled) == (1, 13)
    other.load(10, ROWS)
    assert one.ripen(9 * DAY) == other.ripen(9 * DAY) == [(12, 13)]


def test_many_at_once() -> None:
    partition = Partition(0)
    rows = [(0, 10, 50, 0, 0, 1), (10, 14, 75, DAY, FAR, 2), (14, 15, 50, DAY, 0, 3)]
    fill(partition, np.array(rows, np.int64), 0, 15, 4)
    assert (partition.scheduled, partition.open, partition.order) == (5, 10, [50, 75])
    assert partition.far.near(NEVER) == [(DAY, 10, 14, 75)]
    assert [entry[1] for entry in partition.schedule.entries()] == [14]


def test_the_earliest_come_first() -> None:
    far = Far()
    for start, due in ((0, 30), (4, 10), (8, 20), (12, 10)):
        far.add(start, start + 4, 50, due)
    assert far.near(9) == []
    assert [start for _, start, _, _ in far.near(20)] == [4, 12, 8]
    assert [start for _, start, _, _ in far.near(NEVER, 2)] == [4, 12]
    assert list(far.within(3, 9)) == [(3, 4), (4, 8), (8, 9)]
    for start, left in ((4, 10), (12, 20), (0, 20), (8, NEVER)):
        assert start in far
        far.remove(start)
        assert start not in far
        assert far.next_at == left
