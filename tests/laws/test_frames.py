"""Rows and frames: however messages come in and however they are kept, the same messages come out."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given, seed
from hypothesis import strategies as st

from mqueue.wire.frame import Frame
from mqueue.wire.rows import Rows, stretches
from tests.laws.profile import SEED, profile

law = profile(150, 3_000)
NOW = 1_767_225_600_000
NAMES = ("key", "headers", "idempotency_key", "fairness_key")
NUMBERS = {"priority": 50, "deliver_at": 0, "expires_at": 0}
# Bytes that are text come back as text, so the bytes here are none.
HEADERS = st.dictionaries(
    st.text(max_size=4), st.one_of(st.text(max_size=4), st.just(b"\xff\xfe")), min_size=1, max_size=3
)
MESSAGES = st.fixed_dictionaries(
    {"payload": st.binary(max_size=8)},
    optional={
        "key": st.binary(max_size=4),
        "headers": HEADERS,
        "idempotency_key": st.text(min_size=1, max_size=4),
        "fairness_key": st.text("ab", min_size=1, max_size=4),
        "priority": st.sampled_from([-7, 0, 50, 2**31 - 1]),
        "deliver_at": st.sampled_from([0, NOW + 5, NOW + 10**9]),
        "expires_at": st.sampled_from([0, NOW + 50, NOW + 10**10]),
    },
)
BATCHES = st.lists(MESSAGES, min_size=1, max_size=20)


def rows_of(messages: list[dict[str, Any]]) -> Rows:
    columns: dict[str, Any] = {"payload": [message["payload"] for message in messages]}
    for name in NAMES:
        if any(name in message for message in messages):
            columns[name] = [message.get(name) for message in messages]
    for name, default in NUMBERS.items():
        columns[name] = [message.get(name, default) for message in messages]
    return Rows(**columns)


def message_of(frame: Frame, row: int) -> dict[str, Any]:
    message: dict[str, Any] = {"payload": frame.rows.payload[row]}
    for name in NAMES:
        column = getattr(frame.rows, name)
        if column is not None and column[row] is not None:
            message[name] = column[row]
    for name, default in NUMBERS.items():
        if frame.number(name, row) != default:
            message[name] = frame.number(name, row)
    return message


def messages_of(frame: Frame) -> list[dict[str, Any]]:
    return [message_of(frame, row) for row in range(frame.count)]


def plain(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what says the same as leaving it out."""
    return [{k: v for k, v in m.items() if NUMBERS.get(k, ...) != v} for m in messages]


@seed(SEED)
@law
@given(BATCHES)
def test_a_frame_made_at_once_keeps_its_messages(messages: list[dict[str, Any]]) -> None:
    frame = Frame.of_rows(1, 0, rows_of(messages))
    frame.stamp(100, 7_000, NOW)
    assert messages_of(frame) == plain(messages)
    frame.chill()
    assert messages_of(frame) == plain(messages)
    frame.chill()
    assert messages_of(frame) == plain(messages)
    copy = Frame.of_batch(1, 0, frame.batch, frame.priority, frame.deliver_at, frame.expires_at)
    assert messages_of(copy) == plain(messages)
    assert frame.column_ids().tolist() == [frame.id_of(row) for row in range(frame.count)]
    assert frame.column_at().tolist() == [NOW] * frame.count


@seed(SEED)
@law
@given(st.lists(st.tuples(MESSAGES, st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=25), st.integers(0, 25))
def test_an_open_frame_is_the_same_open_sealed_and_chilled(
    singles: list[tuple[dict[str, Any], int, int]], peeked_at: int
) -> None:
    frame = Frame.opened(1, 0, 40)
    messages = [message for message, _, _ in singles]
    ids, times = list[int](), list[int]()
    id, now = 1_000, NOW
    for number, (message, wait, gap) in enumerate(singles):
        id, now = id + gap + 1, now + wait
        extras = {name: value for name, value in message.items() if name != "payload"}
        frame.add(message["payload"], extras or None, id, now)
        ids.append(id)
        times.append(now)
        if number == peeked_at:  # looking at an open frame must not freeze it
            assert messages_of(frame) == plain(messages[: number + 1])

    def check() -> None:
        assert (frame.base, frame.stop, frame.count) == (40, 40 + len(singles), len(singles))
        assert messages_of(frame) == plain(messages)
        assert [frame.id_of(row) for row in range(frame.count)] == frame.column_ids().tolist() == ids
        assert [frame.at_of(row) for row in range(frame.count)] == frame.column_at().tolist() == times
        assert [frame.row_of(id) for id in ids] == list(range(frame.count))
        assert all(frame.row_of(id) is None for id in range(999, ids[-1] + 3) if id not in ids)
        for at in range(NOW - 1, now + 2):
            assert frame.row_at(at) == sum(time < at for time in times)
        covered = [stretch for stamp in range(len(frame.at)) for stretch in frame.stretches(stamp)]
        assert per_row(covered) == expected(messages, 40)

    check()
    frame.seal()
    check()
    frame.chill()
    check()


def per_row(found: list[tuple[int, int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    return [(offset, p, due, expires) for start, stop, p, due, expires in found for offset in range(start, stop)]


def expected(messages: list[dict[str, Any]], base: int) -> list[tuple[int, int, int, int]]:
    return [
        (base + row, *(message.get(name, default) for name, default in NUMBERS.items()))
        for row, message in enumerate(messages)
    ]


@seed(SEED)
@law
@given(BATCHES, st.integers(0, 1_000))
def test_stretches_cover_all_rows_and_no_two_neighbours_agree(messages: list[dict[str, Any]], base: int) -> None:
    rows = rows_of(messages)
    found = stretches(base, len(rows), rows.priority, rows.deliver_at, rows.expires_at)
    assert per_row(found) == expected(messages, base)
    assert all(one[2:] != other[2:] for one, other in itertools.pairwise(found))


@seed(SEED)
@law
@given(BATCHES, st.data())
def test_rows_can_be_picked_and_sorted(messages: list[dict[str, Any]], data: st.DataObject) -> None:
    rows = rows_of(messages)
    numbers = data.draw(st.lists(st.integers(0, len(messages) - 1), min_size=1, max_size=20))
    assert messages_of(Frame.of_rows(1, 0, rows.take(numbers))) == plain([messages[number] for number in numbers])
    wanted = sorted(
        range(len(messages)),
        key=lambda row: (messages[row].get("priority", 50), max(NOW, messages[row].get("deliver_at", 0))),
    )
    order = rows.order(NOW)
    assert (list(range(len(messages))) if order is None else order.tolist()) == wanted
    for row, message in enumerate(plain(messages)):
        assert rows.extras(row) == {name: value for name, value in message.items() if name != "payload"}


@seed(SEED)
@law
@given(
    st.lists(st.tuples(MESSAGES, st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=25),
    st.booleans(),
    st.data(),
)
def test_a_slice_has_the_same_messages_in_the_same_places(
    singles: list[tuple[dict[str, Any], int, int]], cold: bool, data: st.DataObject
) -> None:
    frame = Frame.opened(1, 0, 40)
    id, now = 1_000, NOW
    for message, wait, gap in singles:
        id, now = id + gap + 1, now + wait
        frame.add(message["payload"], {k: v for k, v in message.items() if k != "payload"} or None, id, now)
    frame.close()
    if cold:
        frame.chill()
    assert frame.keys() == [message.get("key") for message, _, _ in singles]
    first = data.draw(st.integers(0, frame.count - 1))
    last = data.draw(st.integers(first + 1, frame.count))
    piece = frame.slice(first, last)
    rows = range(first, last)
    assert (piece.topic, piece.partition, piece.base, piece.stop) == (1, 0, 40 + first, 40 + last)
    assert messages_of(piece) == [message_of(frame, row) for row in rows]
    assert piece.column_ids().tolist() == [frame.id_of(row) for row in rows]
    assert piece.column_at().tolist() == [frame.at_of(row) for row in rows]
    assert [piece.row_of(frame.id_of(row)) for row in rows] == list(range(piece.count))
    covered = [stretch for stamp in range(len(piece.at)) for stretch in piece.stretches(stamp)]
    assert per_row(covered) == expected([message_of(frame, row) for row in rows], piece.base)
    assert piece.keys() == frame.keys()[first:last]


def test_a_slice_holds_on_to_nothing_else() -> None:
    frame = Frame.of_rows(1, 0, Rows([b"x" * 1_000] * 1_000))
    frame.stamp(0, 1, NOW)
    piece = frame.slice(500, 502)
    assert piece.batch.get_total_buffer_size() < 4_000
    assert 2_000 < piece.size < 4_000
