"""Payloads: bytes stay bytes, text is UTF-8, the rest is JSON that comes back as it went in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqueue.model.errors import Refused
from mqueue.wire.payload import decode, encode

JSON = "application/json"


@dataclass
class Line:
    sku: str
    count: int


class Opaque:
    pass


class Order(msgspec.Struct):
    id: UUID
    total: Decimal
    at: datetime
    lines: list[Line]


ORDER = Order(UUID(int=5), Decimal("1.10"), datetime(2026, 1, 14, 15, tzinfo=UTC), [Line("a", 2)])
ORDER_JSON = (
    b'{"id":"00000000-0000-0000-0000-000000000005","total":"1.10","at":"2026-01-14T15:00:00Z",'
    b'"lines":[{"sku":"a","count":2}]}'
)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b"\xff\x00", (b"\xff\x00", None)),
        (b"", (b"", None)),
        (bytearray(b"abc"), (b"abc", None)),
        (memoryview(b"abcdef")[::2], (b"ace", None)),
        ("Zürich", ("Zürich".encode(), None)),
        ({"n": 1}, (b'{"n":1}', JSON)),
        ([1, "a", None, True], (b'[1,"a",null,true]', JSON)),
        (7, (b"7", JSON)),
        (None, (b"null", JSON)),
        (date(2026, 1, 14), (b'"2026-01-14"', JSON)),
        (Line("a", 2), (b'{"sku":"a","count":2}', JSON)),
        (ORDER, (ORDER_JSON, JSON)),
        (math.nan, (b"null", JSON)),
    ],
)
def test_payloads_become_bytes(payload: object, expected: tuple[bytes, str | None]) -> None:
    encoded, content_type = encode(payload)
    assert (encoded, content_type) == expected
    assert type(encoded) is bytes


def test_bytes_are_not_copied() -> None:
    payload = b"x" * 1000
    assert encode(payload)[0] is payload


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("payload", "type_name", "reason"),
    [
        (object(), "object", "object has no form in JSON"),
        ({"when": [object()]}, "dict", "object has no form in JSON"),
        (print, "builtin_function_or_method", "has no form in JSON"),
        ("\ud800", "str", "surrogates not allowed"),
        ({"x": "\ud800"}, "dict", "surrogates not allowed"),
        (CIRCLE, "list", "recursion"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_its_type(payload: object, type_name: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason) as caught:
        encode(payload)
    assert caught.value.code == "bad_payload"
    assert caught.value.message.startswith(f"payload of type {type_name} cannot be sent: ")


def test_payloads_are_read_back() -> None:
    assert decode(b'{"n":[1,2.5,null]}') == {"n": [1, 2.5, None]}
    assert decode(ORDER_JSON, Order) == ORDER
    assert decode(b'{"sku":"a","count":2}', Line) == Line("a", 2)
    assert decode(b'[{"sku":"a","count":2}]', list[Line]) == [Line("a", 2)]
    assert decode(b"7", int) == 7


@pytest.mark.parametrize(
    ("payload", "wanted", "reason"),
    [
        (b"", None, "0 bytes is no JSON: .*truncated"),
        (b"{", None, "1 bytes is no JSON: .*truncated"),
        (b'"\xff"', None, "no JSON"),
        (b"[" * 100_000, None, "recursion"),
        (b'{"sku":"a"}', Line, "no Line: .*`count`"),
        (b'{"sku":"a","count":"x"}', Line, r"no Line: Expected `int`, got `str` - at `\$.count`"),
        (b'"x"', int, "no int: Expected `int`, got `str`"),
        (b"{}", Opaque, "Opaque cannot be read from JSON"),
    ],
)
def test_what_is_not_what_was_asked_for_is_refused(payload: bytes, wanted: type[Any] | None, reason: str) -> None:
    with pytest.raises(Refused, match=reason) as caught:
        decode(payload, wanted)  # type: ignore[arg-type]
    assert caught.value.code == "bad_payload"


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(PLAIN.filter(lambda value: not isinstance(value, str)))
def test_plain_values_survive(value: object) -> None:
    encoded, content_type = encode(value)
    assert content_type == JSON
    assert decode(encoded) == value


@given(st.text())
def test_text_survives(text: str) -> None:
    assert encode(text)[0].decode() == text


def test_pydantic_models_go_both_ways_at_any_depth() -> None:
    pydantic = pytest.importorskip("pydantic")
    model: Any = pydantic.create_model("Parcel", weight=(int, pydantic.Field(gt=0)), at=(datetime, ...))
    parcel = model(weight=3, at=datetime(2026, 1, 14, tzinfo=UTC))
    encoded, content_type = encode(parcel)
    assert (encoded, content_type) == (b'{"weight":3,"at":"2026-01-14T00:00:00Z"}', JSON)
    assert encode({"parcels": [parcel]})[0] == b'{"parcels":[' + encoded + b"]}"
    assert decode(encoded, model) == parcel
    assert decode(b"[" + encoded + b"]", list[model]) == [parcel]
    for payload, wanted in ((b'{"weight":0}', model), (b'[{"weight":0}]', list[model]), (b"{", model)):
        with pytest.raises(Refused, match=r"no (Parcel|list)") as caught:
            decode(payload, wanted)
        assert caught.value.code == "bad_payload"
