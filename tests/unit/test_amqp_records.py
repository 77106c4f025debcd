"""What records add up to: the same wherever they are read, with and without a snapshot."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mqueue.server.amqp.exchanges import Binding, Exchange
from mqueue.server.amqp.records import (
    Bound,
    Contents,
    ExchangeGone,
    ExchangeMade,
    Queue,
    QueueGone,
    QueueMade,
    Record,
    Unbound,
    Unused,
    Used,
    fold,
    read,
    write,
)

NAME = st.sampled_from(["a", "b", "c"])
BINDING = st.builds(Binding, NAME, st.sampled_from(["queue", "exchange"]), NAME, st.sampled_from(["k", "l"]))
RECORD: st.SearchStrategy[Record] = st.one_of(
    st.builds(QueueMade, st.builds(Queue, NAME, st.booleans(), st.booleans(), st.sampled_from(["", "me"]))),
    st.builds(QueueGone, NAME),
    st.builds(
        ExchangeMade, st.builds(Exchange, NAME, st.sampled_from(["direct", "fanout"]), auto_delete=st.booleans())
    ),
    st.builds(ExchangeGone, NAME),
    st.builds(Bound, BINDING),
    st.builds(Unbound, BINDING),
    st.builds(Used, NAME, st.sampled_from(["n1", "n2"])),
    st.builds(Unused, NAME, st.sampled_from(["n1", "n2"])),
)


def shown(contents: Contents) -> object:
    uses = {queue: nodes for queue, nodes in contents.uses.items() if nodes}
    return contents.exchanges, contents.queues, contents.made_at, contents.bindings, uses


def placed(records: list[Record], start: int = 0) -> list[tuple[int, int, Record]]:
    return [(start + number, 1000 + start + number, record) for number, record in enumerate(records)]


@given(st.lists(RECORD, max_size=40), st.integers(0, 40), st.integers(0, 5))
def test_a_snapshot_stands_for_what_was_before(records: list[Record], cut: int, late: int) -> None:
    """Others may write between what a snapshot knows and where it lies."""
    whole = placed(records)
    cut = min(cut, len(records))
    parts = fold(whole[:cut]).snapshot(cut)
    place = min(cut + late, len(records))
    listed = [*whole[cut:place], *((place, 0, part) for part in parts), *whole[place:]]
    assert shown(fold(listed)) == shown(fold(whole))
    assert shown(fold([*whole[: cut // 2], *listed])) == shown(fold(whole))  # some of what was before may be left


def test_a_snapshot_at_any_place() -> None:
    """Each of these records changes something."""
    bound = Binding("a", "queue", "b", "k")
    records: list[Record] = [
        ExchangeMade(Exchange("a", "direct")),
        QueueMade(Queue("b")),
        Bound(bound),
        Used("b", "n1"),
        QueueMade(Queue("c")),
        Unused("b", "n1"),
        Unbound(bound),
        QueueGone("c"),
        ExchangeGone("a"),
    ]
    whole = placed(records)
    for cut in range(len(records) + 1):
        parts = fold(whole[:cut]).snapshot(cut)
        assert shown(fold([*((cut, 0, part) for part in parts), *whole[cut:]])) == shown(fold(whole))


@given(RECORD)
def test_records_are_read_as_they_were_written(record: Record) -> None:
    assert read(write(record)) == record


def test_what_is_none_of_ours_is_passed_over() -> None:
    assert read(b"whatever") is None
    assert read(b"") is None


def test_the_first_one_wins_and_bindings_go_with_their_ends() -> None:
    contents = Contents()
    for record in (
        QueueMade(Queue("q", durable=True)),
        QueueMade(Queue("q", durable=False)),
        ExchangeMade(Exchange("x", "fanout", auto_delete=True)),
        Bound(Binding("x", "queue", "q", "")),
        Bound(Binding("x", "queue", "nowhere", "")),
    ):
        contents.apply(record, 1)
    assert contents.queues["q"].durable
    assert contents.router.route("x", "", {}) == ("q",)
    contents.apply(QueueGone("q"), 2)
    assert not contents.bindings
    assert "x" not in contents.exchanges  # it was to go with its last binding
    contents.apply(ExchangeGone("amq.topic"), 3)
    assert "amq.topic" in contents.exchanges


def test_a_large_snapshot_comes_in_parts() -> None:
    records: list[Record] = [QueueMade(Queue(f"q{number}")) for number in range(1_201)]
    contents = fold(placed(records))
    parts = contents.snapshot(len(records))
    assert len(parts) == 3
    assert shown(fold(placed(list(parts), len(records)))) == shown(contents)
    assert not fold(placed(list(parts[:2]), len(records))).queues  # one that is not whole is none
