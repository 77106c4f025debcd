"""Names: one pattern for all, and the way a topic names its dead letter queue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqueue.model.errors import BadName
from mqueue.model.names import check_name, dlq_name, is_dlq, origin

NAMES = st.from_regex(r"[A-Za-z0-9._-]{1,249}", fullmatch=True).filter(lambda name: name not in {".", ".."})


@given(NAMES)
def test_what_matches_is_a_name(name: str) -> None:
    assert check_name(name, "topic") == name


@pytest.mark.parametrize(
    "value", ["", ".", "..", "a b", "a/b", "a:b", "a\n", "\n", "é", "ａ", "٣", "a\0", "x" * 250, "x" * 1_000_000]
)
def test_what_does_not_match_is_refused_shortened(value: str) -> None:
    for _ in range(2):  # asked again, the cache must not say yes
        with pytest.raises(BadName) as caught:
            check_name(value, "group")
        assert caught.value.message.startswith(f"group name {value!r:.80}")
        assert "[A-Za-z0-9._-]{1,249}" in caught.value.message
        assert len(caught.value.message) < 200


@pytest.mark.parametrize("value", [None, 5, b"orders", ["orders"], {}])
def test_only_text_is_a_name(value: object) -> None:
    with pytest.raises(BadName, match=f"topic name .* is a {type(value).__name__}"):
        check_name(value, "topic")  # type: ignore[arg-type]


def test_three_dots_are_a_name() -> None:
    assert check_name("...", "topic") == "..."


@given(NAMES.filter(lambda name: len(name) <= 245))
def test_a_dead_letter_queue_knows_its_origin(topic: str) -> None:
    dlq = dlq_name(topic)
    assert check_name(dlq, "topic") == dlq == topic + ".dlq"
    assert is_dlq(dlq)
    assert origin(dlq) == topic


def test_only_one_suffix_is_stripped() -> None:
    assert origin("orders.dlq.dlq") == "orders.dlq"
    assert origin("orders") == "orders"
    assert origin("orders.dlq.old") == "orders.dlq.old"


def test_a_topic_that_is_only_the_suffix_is_no_dead_letter_queue() -> None:
    assert not is_dlq(".dlq")
    assert origin(".dlq") == ".dlq"
    assert origin(dlq_name(".dlq")) == ".dlq"


def test_a_topic_too_long_for_a_dead_letter_queue_is_refused() -> None:
    assert len(dlq_name("x" * 245)) == 249
    with pytest.raises(BadName, match=r"250 characters: at most 249 .* at most 245"):
        dlq_name("x" * 246)
