"""The filter language of redrives: what it picks, and how it says where it did not understand."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from mqueue.model.errors import Refused
from mqueue.policy.filter import FILTER_LENGTH_MAX, compile_filter


class Dead(Struct, frozen=True):
    id: int = 9_007_199_254_740_993
    reason: str = "max_retries"
    error: str | None = "ConnectionError: timed out after 30s"
    group: str = "billing"
    attempts: int = 4
    consumer: str | None = None
    key: bytes | None = b"o-1"
    priority: int = 50
    topic: str = "orders"
    payload: bytes = '{"city": "Zürich", "n": 1}'.encode()
    headers: Mapping[str, str | bytes] = MappingProxyType({"region": "eu", "x-raw": b"\xff\x00raw"})


DEAD = Dead()


@pytest.mark.parametrize(
    ("text", "picked"),
    [
        ("", True),
        ("  \n", True),
        ("reason = max_retries and error ~ timed and attempts >= 3 and headers.region = eu and key != x", True),
        ("reason = max_retries and error ~ timed and attempts >= 5 and headers.region = eu and key != x", False),
        ("reason=max_retries", True),
        ("reason = expired", False),
        ('error ~ "timed out"', True),
        ("error ~ 'timed out' AND group = billing", True),
        ("error ~ Timed", False),
        ("attempts<5", True),
        ("attempts>=4", True),
        ("attempts > 4", False),
        ("attempts <= 3", False),
        ("attempts != 4", False),
        ('attempts = "4"', True),
        ("attempts > -1", True),
        ("priority = normal", True),
        ("priority <= low and priority > high", True),
        ("priority = 50", True),
        ("key = o-1", True),
        ("key ~ o-", True),
        ("consumer = w1", False),
        ("consumer != w1", True),
        ("consumer ~ w", False),
        ('consumer ~ ""', False),
        ('reason ~ ""', True),
        ("topic = orders", True),
        ("payload ~ Zürich", True),
        ('payload ~ "\\"city\\": \\"Z"', True),
        ("payload ~ 'Z\\\\'", False),
        ("headers.region != eu", False),
        ("headers.zone = eu", False),
        ("headers.zone != eu", True),
        ("headers.x-raw ~ raw", True),
        ("headers.region ~ e and headers.region ~ u", True),
        ("id = 9007199254740993", True),
        ("id in 17,9007199254740993", True),
        ("id IN '17, 9007199254740993' and attempts in 4", True),
        ("id in 17,9007199254740992", False),
        ("priority in low,normal", True),
    ],
)
def test_what_is_picked(text: str, picked: bool) -> None:
    assert compile_filter(text)(DEAD) is picked


def test_a_message_without_key_equals_no_key() -> None:
    keyless = Dead(key=None)
    assert not compile_filter('key = ""')(keyless)
    assert compile_filter('key != ""')(keyless)
    assert not compile_filter('key ~ ""')(keyless)


@pytest.mark.parametrize(
    ("text", "position", "said"),
    [
        ("colour = red", 1, "'colour'; fields are reason, error"),
        ("reason = a and  colour = red", 17, "'colour'"),
        ("headers. = x", 1, "'headers.'"),
        ("'reason' = x", 1, "a field is expected"),
        ("= x", 1, "a field is expected"),
        ("reason", 7, "takes one of = != ~, not 'the end'"),
        ("reason max_retries", 8, "takes one of = != ~, not 'max_retries'"),
        ("reason > a", 8, "takes one of = != ~, not '>'"),
        ("attempts ~ 3", 10, "takes one of = != < <= > >= in, not '~'"),
        ("attempts in", 12, "a value is expected, not 'the end'"),
        ("attempts in 3,x", 15, "a whole number, not 'x'"),
        ("reason in a,b", 8, "takes one of = != ~, not 'in'"),
        ("reason =", 9, "a value is expected, not 'the end'"),
        ("reason = = a", 10, "a value is expected, not '='"),
        ("key = and reason = x", 7, "a value is expected, not 'and'"),
        ("error ~ timed out", 15, "'and' is expected, not 'out'; a value with spaces must be quoted"),
        ("reason = a or reason = b", 12, "'and' is expected, not 'or'"),
        ("reason = a and", 15, "a condition is expected after 'and'"),
        ("reason = a and and", 16, "a field is expected, not 'and'"),
        ('reason = "open', 10, "closed quote"),
        ("reason ! a", 8, "'! a' begins no operator"),
        ("attempts = three", 12, "a whole number, not 'three'"),
        ("attempts = 1.5", 12, "a whole number, not '1.5'"),
        ("attempts = ٣", 12, "a whole number"),
        ("priority = urgent", 12, "critical, high, normal, low, background"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(text: str, position: int, said: str) -> None:
    with pytest.raises(Refused) as caught:
        compile_filter(text)
    assert caught.value.code == "bad_filter"
    assert caught.value.message.startswith(f"bad filter at character {position}: ")
    assert said in caught.value.message


def test_a_filter_has_a_length() -> None:
    with pytest.raises(Refused, match=f"at most {FILTER_LENGTH_MAX}"):
        compile_filter("x" * (FILTER_LENGTH_MAX + 1))


@given(st.text(max_size=30))
def test_any_text_can_be_quoted(text: str) -> None:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    assert compile_filter(f'error = "{quoted}"')(Dead(error=text))
    assert compile_filter(f'payload ~ "{quoted}"')(Dead(payload=b"<" + text.encode() + b">"))


@given(st.one_of(st.text(max_size=40), st.text("reason=!~<>'\"\\ andkey 12", max_size=40)))
def test_any_text_is_understood_or_refused(text: str) -> None:
    with suppress(Refused):
        assert compile_filter(text)(DEAD) in (True, False)
