"""The small structures of the heart against the plainest ones that do the same: sets, sorted lists, dicts."""

from __future__ import annotations

import itertools
from bisect import insort
from dataclasses import dataclass

import numpy as np
from hypothesis import given, seed
from hypothesis import strategies as st

from mqueue.heart.cursor import Cursor
from mqueue.heart.dedup import Claim, Dedup
from mqueue.heart.gaps import Gaps
from mqueue.heart.lanes import Lane
from mqueue.heart.marks import BLOCK, Marks
from mqueue.heart.recent import Recent
from mqueue.heart.runs import Run, each, full, segments, tight
from mqueue.heart.schedule import NEVER, Entry, Schedule
from mqueue.heart.timers import Timers
from mqueue.model.events import Settled
from mqueue.model.settings import Settings
from tests.laws.profile import SEED, profile

MASKS = st.one_of(st.integers(1, 2**12 - 1), st.integers(1, 2**80 - 1), st.integers(1, 2**4096 - 1))
STARTS = st.one_of(st.integers(0, 200), st.integers(BLOCK - 50, BLOCK + 50), st.integers(0, 10**12))
law = profile(150, 3_000)


def offsets(start: int, mask: int) -> list[int]:
    return [start + bit for bit in range(mask.bit_length()) if mask >> bit & 1]


# Runs


@seed(SEED)
@law
@given(STARTS, MASKS)
def test_a_span_can_be_taken_apart(start: int, mask: int) -> None:
    known = offsets(start, mask)
    assert list(each(start, mask)) == known
    pieces = list(segments(start, mask))
    assert [offset for first, stop in pieces for offset in range(first, stop)] == known
    assert all(one[1] < other[0] for one, other in itertools.pairwise(pieces)), "neighbours are one segment"
    first, stop, bits = tight(start, mask)
    assert (first, stop - 1) == (known[0], known[-1])
    assert offsets(first, bits) == known
    assert full(stop - first).bit_count() == stop - first


@seed(SEED)
@law
@given(STARTS, MASKS, st.integers(-100, 100), MASKS, st.integers(0, 5_000))
def test_a_run_knows_its_part_of_a_span(start: int, mask: int, shift: int, other: int, count: int) -> None:
    run = Run(0, start, start + mask.bit_length(), mask, 2, 50, 7, 9)
    known = offsets(start, mask)
    elsewhere = start + shift
    shared = sorted(set(known) & set(offsets(elsewhere, other)))
    bits = run.bits(elsewhere, other)
    assert offsets(start, bits) == shared
    assert offsets(start, run.first(count)) == known[:count]
    assert run.count == len(known)
    if bits:
        piece = run.part(bits)
        assert offsets(piece.start, piece.mask) == shared
        assert (piece.start, piece.stop - 1) == (shared[0], shared[-1])
        assert (piece.attempt, piece.priority, piece.at, piece.until) == (2, 50, 7, 9)


# Marks


@st.composite
def marking(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    near = st.integers(0, 3 * BLOCK)
    one = st.one_of(
        st.tuples(st.just("add"), near, MASKS),
        st.tuples(st.just("range"), near, near),
        st.tuples(st.just("all"), near, MASKS),
        st.tuples(st.just("remove"), near, MASKS),
        st.tuples(st.just("remove range"), near, near),
    )
    return draw(st.lists(one, max_size=12))


@seed(SEED)
@law
@given(marking(), st.integers(0, 3 * BLOCK), st.integers(1, 2 * BLOCK))
def test_marks_are_a_set(steps: list[tuple[str, int, int]], start: int, length: int) -> None:
    marks, known = Marks(), set[int]()
    for kind, first, other in steps:
        if kind == "add":
            marks.add(first, other)
            known.update(offsets(first, other))
        elif kind == "range":
            marks.add_range(first, max(first, other))
            known.update(range(first, max(first, other)))
        elif kind == "all":
            marks.add_all(offsets(first, other))
            known.update(offsets(first, other))
        elif kind == "remove":
            marks.remove(first, other)
            known.difference_update(offsets(first, other))
        else:
            marks.remove_range(first, max(first, other))
            known.difference_update(range(first, max(first, other)))
    assert offsets(start, marks.mask(start, start + length)) == sorted(o for o in known if start <= o < start + length)
    assert [offset for first, mask in marks.spans() for offset in offsets(first, mask)] == sorted(known)
    assert [offset for first, mask in marks.within(start, start + length) for offset in offsets(first, mask)] == sorted(
        o for o in known if start <= o < start + length
    )
    assert (bool(marks), marks.count, marks.lowest()) == (bool(known), len(known), min(known, default=None))
    assert (start in marks) == (start in known)


# Gaps and lanes

RANGES = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 9)), max_size=12)


def ranges(steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted ranges, made of distances and lengths."""
    found, offset = list[tuple[int, int]](), 0
    for distance, length in steps:
        start = offset + distance
        offset = start + length
        found.append((start, offset))
    return found


@seed(SEED)
@law
@given(RANGES, st.integers(0, 120), st.integers(0, 60))
def test_gaps_are_a_set(steps: list[tuple[int, int]], start: int, length: int) -> None:
    gaps = Gaps(ranges(steps))
    known = {offset for first, last in ranges(steps) for offset in range(first, last)}
    asked = range(start, start + length)
    assert [o for a, b in gaps.within(start, start + length) for o in range(a, b)] == [o for o in asked if o in known]
    assert [o for a, b in gaps.rest(start, start + length) for o in range(a, b)] == [o for o in asked if o not in known]
    assert offsets(start, gaps.mask(start, start + length)) == [o for o in asked if o in known]
    assert gaps.counts(np.array([start]), np.array([start + length])).tolist() == [len(known & set(asked))]
    assert (bool(gaps), gaps.count, start in gaps) == (bool(known), len(known), start in known)


@seed(SEED)
@law
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 5)), max_size=40),
    st.integers(0, 120),
    RANGES,
    st.data(),
)
def test_a_lane_is_a_sorted_list(
    steps: list[tuple[int, int, int]], below: int, dropped: list[tuple[int, int]], data: st.DataObject
) -> None:
    lane, known = Lane(50), list[tuple[int, int]]()
    at = offset = 0
    for later, gap, length in steps:
        at, offset = at + later, offset + gap
        lane.add(offset, offset + length, at)
        known += [(at, number) for number in range(offset, offset + length)]
        offset += length
    assert listed(lane) == known
    for at, number in known:
        run = lane.number_of(at, number)
        assert lane.starts[run] <= number < lane.stops[run]
        assert lane.at[run] == at
    assert {n for start, stop, _ in lane.runs(below=below) for n in range(start, stop) if n < below} == {
        n for _, n in known if n < below
    }
    gaps = Gaps(ranges(dropped))
    left = lane.without(gaps)
    assert listed(left) == [(at, number) for at, number in known if number not in gaps]
    assert [n for a, b in lane.dropped(gaps) for n in range(a, b)] == [n for _, n in known if n in gaps]
    assert lane.count(gaps) == sum(n in gaps for _, n in known)
    place = data.draw(st.integers(0, len(known)))  # how many messages a cursor has passed
    cursor = Cursor.at(lane, *known[place]) if place < len(known) else Cursor.at_end(lane)
    moved = cursor.follow(left)
    first = max(moved.offset, left.starts[moved.number]) if moved.number < len(left.at) else None
    ahead = [(left.at[moved.number], n) for n in range(first, left.stops[moved.number])] if first is not None else []
    ahead += [(at, n) for a, b, at in left.runs(moved.number + 1) for n in range(a, b)]
    assert ahead == [(at, n) for at, n in known[place:] if n not in gaps], "a cursor lost its place"


def listed(lane: Lane) -> list[tuple[int, int]]:
    return [(at, number) for start, stop, at in lane.runs() for number in range(start, stop)]


# Schedule and timers

YEAR_MS = 365 * 24 * 3_600_000
NOW = 1_767_225_600_000
WAITS = st.one_of(
    st.integers(0, 50), st.integers(0, 120_000), st.integers(0, 3 * 3_600_000), st.integers(0, 20 * YEAR_MS)
)


@seed(SEED)
@law
@given(st.lists(st.tuples(st.booleans(), WAITS), max_size=60))
def test_a_schedule_is_a_sorted_list(steps: list[tuple[bool, int]]) -> None:
    schedule, known, now = Schedule(), list[Entry](), NOW
    for number, (add, wait) in enumerate(steps):
        if add:
            entry = (now + wait, number, number + 1, 50, now)
            schedule.add(entry)
            insort(known, entry)
        else:
            now += wait
            due = [entry for entry in known if entry[0] <= now]
            assert schedule.take(now) == due
            known = known[len(due) :]
        assert list(schedule.entries()) == known
        assert schedule.next_at <= (known[0][0] if known else NEVER), "something would be late"
        assert sorted(schedule.below(number)) == [entry for entry in known if entry[1] < number]
    for entry in known:  # waking only when told to, as the heart does
        while schedule.next_at < entry[0]:
            assert schedule.take(schedule.next_at) == []
        while known and known[0][0] <= entry[0]:
            taken = schedule.take(entry[0])
            assert taken == known[: len(taken)]
            known = known[len(taken) :]


@dataclass
class Thing:
    when: int
    number: int
    open: bool = True


@seed(SEED)
@law
@given(st.lists(st.tuples(st.sampled_from(["set", "set", "drop", "go"]), st.integers(0, 30)), max_size=300))
def test_timers_ring_for_what_is_alive(steps: list[tuple[str, int]]) -> None:
    timers: Timers[Thing] = Timers()
    alive: list[Thing] = []
    now = 0
    for number, (step, value) in enumerate(steps):
        if step == "set":
            alive.append(Thing(now + value, number))
            timers.set(now + value, alive[-1])
        elif step == "drop" and alive:
            alive.pop(value % len(alive)).open = False
            timers.drop()
        elif step == "go":
            now += value
            rung = []
            while (thing := timers.take(now)) is not None:
                rung.append(thing)
            due = sorted((t for t in alive if t.when <= now), key=lambda t: (t.when, t.number))
            assert [(t.when, t.number) for t in rung] == [(t.when, t.number) for t in due]
            alive = [thing for thing in alive if thing.when > now]
        assert timers.next_at <= min((thing.when for thing in alive), default=NEVER)
        assert len(timers.heap) <= 2 * len(alive) + 66, "what is gone is swept out"


# Idempotency keys and settled calls


@seed(SEED)
@law
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4_000)), max_size=60), st.sampled_from(["window", "forever"])
)
def test_claims_are_a_dict_with_times(steps: list[tuple[int, int]], mode: str) -> None:
    settings = Settings(dedup=mode, dedup_window_ms=10_000)
    dedup, known, now = Dedup(), dict[bytes, Claim](), NOW
    for number, (name, wait) in enumerate(steps):
        now += wait
        key = b"%d" % name
        alive = {k: c for k, c in known.items() if mode == "forever" or c.made_at > now - 10_000}
        for other in range(6):
            assert dedup.find(b"%d" % other, settings, now) == alive.get(b"%d" % other)
        if key not in alive:
            dedup.make_room(1, settings, now, lambda claim: False)
            known[key] = Claim(now, number, 0, number, 50, now, b"digest")
            dedup.add(key, known[key], settings)
            alive[key] = known[key]
        assert len(alive) <= dedup.count <= len(steps)


@seed(SEED)
@law
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.sampled_from(["ack", "nack", "release"]), st.integers(0, 40), st.integers(1, 255),
            st.integers(0, 400_000),
        ),
        max_size=30,
    ),
    st.integers(0, 3), st.sampled_from(["ack", "nack", "release"]), st.integers(0, 40), st.integers(1, 2**20),
)  # fmt: skip
def test_a_repeated_settle_is_recognised(
    calls: list[tuple[int, str, int, int, int]], token: int, verb: str, start: int, mask: int
) -> None:
    recent, now = Recent(), NOW
    known: list[tuple[int, str, int, set[int]]] = []
    for who, how, first, bits, wait in calls:
        now += wait
        recent.add(Settled(now, 1, "g", who, how, ((0, first, first + bits.bit_length(), bits),)))
        known.append((who, how, now, set(offsets(first, bits))))
    asked = set(offsets(start, mask))
    told = {o for who, how, at, held in known if (who, how) == (token, verb) and at + 600_000 >= now for o in held}
    assert set(offsets(start, recent.settled(token, verb, 0, start, mask, now))) == asked & told
    assert recent.settled(token, verb, 1, start, mask, now) == 0
