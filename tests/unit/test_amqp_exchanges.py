"""Routing, held against rules that are easy to read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqueue.server.amqp.exchanges import DELAYED, Binding, Exchange, Router

WORDS = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), min_size=1, max_size=5)
KEYS = st.lists(st.sampled_from(["a", "b", "c", ""]), min_size=1, max_size=6)


def router(*bindings: Binding, exchanges: tuple[Exchange, ...] = (), queues: tuple[str, ...] = ("q", "r")) -> Router:
    known = {exchange.name: exchange for exchange in exchanges}
    return Router(known, bindings, queues)


def matches(pattern: list[str], key: list[str]) -> bool:
    """As the protocol says it, one word at a time."""
    if not pattern:
        return not key
    if pattern[0] == "#":
        return any(matches(pattern[1:], key[skip:]) for skip in range(len(key) + 1))
    return bool(key) and pattern[0] in ("*", key[0]) and matches(pattern[1:], key[1:])


@given(st.lists(WORDS, min_size=1, max_size=4), KEYS)
def test_topics(patterns: list[list[str]], key: list[str]) -> None:
    bindings = [Binding("x", "queue", f"q{n}", ".".join(pattern)) for n, pattern in enumerate(patterns)]
    found = router(*bindings, exchanges=(Exchange("x", "topic"),)).route("x", ".".join(key), {})
    assert set(found) == {f"q{n}" for n, pattern in enumerate(patterns) if matches(pattern, key)}
    assert len(found) == len(set(found))


def test_many_patterns_with_many_signs_do_not_take_for_ever() -> None:
    bindings = [Binding("x", "queue", "q", ".".join(["#", "a"] * 20))]
    assert router(*bindings, exchanges=(Exchange("x", "topic"),)).route("x", ".".join(["a"] * 60), {}) == ("q",)


@pytest.mark.parametrize(
    ("arguments", "headers", "found"),
    [
        ({"a": 1, "b": "x"}, {"a": 1, "b": "x", "c": 2}, True),
        ({"a": 1, "b": "x"}, {"a": 1}, False),
        ({"x-match": "any", "a": 1, "b": "x"}, {"a": 1}, True),
        ({"x-match": "any", "a": 1}, {"a": 2}, False),
        ({"x-match": "any"}, {"a": 2}, False),
        ({}, {"a": 2}, True),
        ({"a": None}, {"a": 2}, True),
        ({"x-a": 1}, {}, True),
        ({"x-match": "all-with-x", "x-a": 1}, {}, False),
        ({"x-match": "any-with-x", "x-a": 1}, {"x-a": 1}, True),
    ],
)
def test_headers(arguments: dict[str, Any], headers: dict[str, Any], found: bool) -> None:
    made = router(Binding("x", "queue", "q", "", arguments), exchanges=(Exchange("x", "headers"),))
    assert made.route("x", "", headers) == (("q",) if found else ())


def test_direct_fanout_and_the_default() -> None:
    exchanges = (Exchange("", "direct"), Exchange("d", "direct"), Exchange("f", "fanout"))
    made = router(
        Binding("d", "queue", "q", "k"),
        Binding("d", "queue", "r", "k"),
        Binding("d", "queue", "r", "other"),
        Binding("f", "queue", "q", "1"),
        Binding("f", "queue", "q", "2"),
        exchanges=exchanges,
    )
    assert made.route("d", "k", {}) == ("q", "r")
    assert made.route("d", "none", {}) == ()
    assert made.route("f", "whatever", {}) == ("q",)
    assert made.route("", "q", {}) == ("q",)
    assert made.route("", "s", {}) == ()


def test_circles_of_exchanges_and_alternates() -> None:
    exchanges = (
        Exchange("a", "fanout"),
        Exchange("b", "direct", arguments={"alternate-exchange": "c"}),
        Exchange("c", "fanout"),
        Exchange("later", DELAYED, arguments={"x-delayed-type": "topic"}),
    )
    made = router(
        Binding("a", "exchange", "b", ""),
        Binding("b", "exchange", "a", "k"),
        Binding("b", "queue", "q", "k"),
        Binding("c", "queue", "r", ""),
        Binding("later", "queue", "q", "*.x"),
        exchanges=exchanges,
    )
    assert made.route("a", "k", {}) == ("q",)
    assert made.route("a", "other", {}) == ("r",)
    assert made.route("later", "a.x", {}) == ("q",)
