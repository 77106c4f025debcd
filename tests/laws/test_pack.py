"""Bytes and back: frames, events and checkpoints come out as they went in, whatever stands in them."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, seed
from hypothesis import strategies as st
from msgspec import Struct

from mqueue.heart.checkpoint import TopicPoint
from mqueue.log.segments import points
from mqueue.model.events import Event
from mqueue.model.limits import Limits
from mqueue.wire import journal
from mqueue.wire.accept import accept
from mqueue.wire.frame import Frame
from mqueue.wire.pack import head_of, pack, restamp, unpack
from mqueue.wire.rows import Rows
from tests.laws.profile import SEED, profile
from tests.laws.test_frames import BATCHES, MESSAGES, NAMES, NOW, messages_of, plain, rows_of

law = profile(150, 3_000)
NUMBERS = ("priority", "deliver_at", "expires_at")


def same(one: Frame, other: Frame) -> None:
    """Two frames say the same, and the second is as lean as it can be."""
    assert messages_of(one) == messages_of(other)
    for name in ("topic", "partition", "base", "count", "stop", "size", "first_rows", "ids", "at"):
        assert getattr(one, name) == getattr(other, name), name
    assert not other.open
    for name in NAMES:
        column = getattr(other.rows, name)
        assert column is None or any(value is not None for value in column), f"{name} is there for nothing"
    for name in NUMBERS:
        column = getattr(other, name)
        assert isinstance(column, int) or len(set(column)) > 1, f"{name} could be one number"
    for stamp in range(len(one.at)):
        assert one.stretches(stamp) == other.stretches(stamp)


@seed(SEED)
@law
@given(BATCHES, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**62), st.integers(0, 99))
def test_a_frame_made_at_once_comes_back(
    messages: list[dict[str, Any]], topic: int, partition: int, base: int, before: int
) -> None:
    frame = Frame.of_rows(topic, partition, rows_of(messages))
    frame.stamp(base, 7_000, NOW)
    data = pack(frame)
    assert len(data) % 8 == 0
    for found in (unpack(data), unpack(memoryview(data)), unpack(bytes(before) + data + b"more", before)):
        same(frame, found)
        assert pack(found) == data
    head = head_of(data)
    assert (head.length, head.base, head.stop, head.count) == (len(data), base, base + len(messages), len(messages))
    assert (head.id, head.last_id, head.at, head.last_at) == (7_000, 7_000 + len(messages) - 1, NOW, NOW)
    assert messages_of(unpack(data)) == plain(messages)


@seed(SEED)
@law
@given(
    st.lists(st.tuples(MESSAGES, st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=25),
    st.integers(0, 24),
    st.integers(0, 24),
)
def test_a_frame_of_singles_comes_back_with_its_stamps(
    singles: list[tuple[dict[str, Any], int, int]], first: int, length: int
) -> None:
    frame = Frame.opened(1, 0, 40)
    id, now = 1_000, NOW
    for message, wait, gap in singles:
        id, now = id + gap + 1, now + wait
        frame.add(message["payload"], {k: v for k, v in message.items() if k != "payload"} or None, id, now)
    frame.seal()
    data = pack(frame)
    found = unpack(data)
    same(frame, found)
    assert found.column_ids().tolist() == frame.column_ids().tolist()
    assert found.column_at().tolist() == frame.column_at().tolist()
    head = head_of(data)
    assert (head.id, head.at) == (frame.id_of(0), frame.at_of(0))
    assert (head.last_id, head.last_at) == (id, now) == (frame.id_of(frame.count - 1), frame.at_of(frame.count - 1))
    first %= frame.count
    piece = found.slice(first, min(first + length + 1, frame.count))
    same(piece, unpack(pack(piece)))


@seed(SEED)
@law
@given(st.lists(st.binary(max_size=20), min_size=1, max_size=300))
def test_small_frames_are_written_as_arrow_writes_them(payloads: list[bytes]) -> None:
    by_hand, by_arrow = Frame.of_rows(1, 0, Rows(payloads)), Frame.of_rows(1, 0, Rows(payloads))
    by_arrow.chill()
    assert pack(by_hand) == pack(by_arrow)


@seed(SEED)
@law
@given(BATCHES, st.integers(0, 80), st.integers(0, 80))
def test_a_slice_of_a_batch_is_packed_alone(messages: list[dict[str, Any]], start: int, length: int) -> None:
    whole = Frame.of_rows(1, 0, rows_of(messages))
    start %= len(messages)
    batch = whole.batch.slice(start, length + 1)
    numbers = [getattr(whole, name)[start : start + length + 1] for name in NUMBERS]
    part = Frame.of_batch(1, 0, batch, *numbers)
    data = pack(part)
    assert messages_of(unpack(data)) == messages_of(part) == plain(messages)[start : start + length + 1]


@seed(SEED)
@law
@given(BATCHES, st.integers(0, 2**40))
def test_a_client_s_frame_gets_its_place_and_keeps_its_body(messages: list[dict[str, Any]], base: int) -> None:
    kept = [message for message in messages if fits(message)] or [{"payload": b""}]
    sent = pack(Frame.of_rows(0, 0, rows_of(kept)))
    frame = accept(sent, Limits())
    assert messages_of(frame) == plain(kept)
    frame.topic, frame.partition = 3, 1
    frame.stamp(base, 7_000, NOW)
    stored = restamp(sent, frame)
    same(frame, unpack(stored))
    body, place = head_of(sent).body_length, head_of(stored)
    assert stored[-body:] == sent[-body:]
    assert (place.topic, place.partition, place.base, place.size) == (3, 1, base, frame.size)
    if isinstance(frame.expires_at, int):  # as a default time to live does it
        frame.expires_at = [NOW + row for row in range(frame.count)]
        assert messages_of(unpack(restamp(sent, frame))) == messages_of(frame)


def fits(message: dict[str, Any]) -> bool:
    return not 0 < message.get("expires_at", 0) <= message.get("deliver_at", 0)


MASKS = st.one_of(
    st.integers(1, 4096).map(lambda length: (1 << length) - 1), st.integers(0, 2**80), st.integers(0, 2**4096 - 1)
)
OFFSETS = st.integers(0, 2**62)


@st.composite
def spans(draw: st.DrawFn, numbers: int) -> tuple[int, ...]:
    """As they are: in or beside their mask, which is full, has holes, or is empty."""
    start, mask = draw(OFFSETS), draw(MASKS)
    stop = start + draw(st.sampled_from([mask.bit_length(), mask.bit_length(), 0, 1, 4096, 5000]))
    return (draw(st.integers(0, 1023)), start, stop, mask, *(draw(OFFSETS) for _ in range(numbers - 4)))


def values(hint: Any, name: str = "", kind: Any = None) -> st.SearchStrategy[Any]:
    """Anything that fits an annotation, with masks where masks belong."""
    if name in ("void", "expired", "kept") and get_args(hint) == (tuple[int, int], ...):
        return st.lists(st.tuples(OFFSETS, MASKS), max_size=3).map(tuple)
    if name == "mask":
        return MASKS
    if name in ("spans", "gone", "kept"):
        return st.lists(spans(len(get_args(get_args(hint)[0]))), max_size=3).map(tuple)
    if get_origin(hint) is tuple:
        items = get_args(hint)
        many = items[1:] == (...,)
        return st.lists(values(items[0]), max_size=3).map(tuple) if many else st.tuples(*map(values, items))
    if isinstance(hint, UnionType):
        return st.one_of(*map(values, get_args(hint)))
    if issubclass(hint, Struct):
        hints = get_type_hints(hint)
        return st.builds(hint, **{field: values(hints[field], field) for field in hint.__struct_fields__})
    return PLAIN[hint]


PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**63), 2**63 - 1),
    str: st.text(max_size=5),
    bytes: st.binary(max_size=20),
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
    NoneType: st.none(),
}


@pytest.mark.parametrize("kind", Event.__subclasses__())
def test_every_event_comes_back(kind: type[Event]) -> None:
    @seed(SEED)
    @profile(40, 1_000)
    @given(st.lists(values(kind), max_size=3))
    def check(events: list[Event]) -> None:
        data = journal.encode(events)
        assert journal.decode(data) == journal.decode(memoryview(data)) == events

    check()


@seed(SEED)
@profile(60, 1_000)
@given(values(TopicPoint))
def test_every_checkpoint_comes_back(point: TopicPoint) -> None:
    data = points.encode(point)
    assert points.decode(data) == points.decode(memoryview(data)) == point
