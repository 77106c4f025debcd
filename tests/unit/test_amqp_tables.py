"""Tables and properties, there and back; what a stranger sends is refused in one way."""

from __future__ import annotations

import random
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, encode

from mqueue.server.amqp import properties
from mqueue.server.amqp.tables import DEPTH_MAX, Timestamp, read_table, write_table

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.integers(0, 1 << 40).map(Timestamp),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
TABLES = st.dictionaries(st.text(max_size=10), VALUES, max_size=5)
SEED = 20260101


@given(TABLES)
def test_tables_there_and_back(table: dict[str, Any]) -> None:
    data = write_table(table)
    assert read_table(data) == (table, len(data))
    assert read_table(b"abc" + data, 3) == (table, len(data) + 3)


def test_tables_as_others_write_them() -> None:
    table = {"s": "text", "i": 1, "big": 1 << 40, "t": True, "l": [1, "a"], "d": Decimal("1.25"), "n": {"v": None}}
    assert read_table(encode.field_table(table))[0] == table
    assert read_table(write_table({"d": Decimal("1.25"), "bad": b"\xff"}))[0] == {"d": Decimal("1.25"), "bad": b"\xff"}


def test_tables_in_tables_have_an_end() -> None:
    table: dict[str, Any] = {}
    for _ in range(DEPTH_MAX - 1):
        table = {"t": table}
    assert read_table(write_table(table))[0] == table
    with pytest.raises(ValueError, match="deep"):
        read_table(write_table({"t": table}))


@pytest.mark.parametrize("value", [object(), 1 << 63, Decimal("NaN"), Decimal(1 << 40)])
def test_what_has_no_form(value: object) -> None:
    with pytest.raises(ValueError, match="no form"):
        write_table({"v": value})


def test_damaged_tables_and_properties_are_refused() -> None:
    """Every byte changed at random: it is read as something else, or refused with a ValueError."""
    rng = random.Random(SEED)
    values = {"content_type": "a/b", "headers": {"a": [1, {"b": "c"}], "t": Timestamp(5)}, "timestamp": Timestamp(7)}
    good = properties.write(values)
    assert properties.read(good) == values
    for number in range(20_000):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        del data[rng.randrange(len(data)) if number % 3 == 0 else len(data) :]
        with suppress(ValueError):
            properties.read(bytes(data))
            properties.check(bytes(data))  # what can be read passes
        with suppress(ValueError, IndexError):
            properties.check(bytes(data))


def test_properties_as_others_write_them() -> None:
    sent = commands.Basic.Properties(
        content_type="a/b",
        headers={"a": 1},
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        message_type="t",
        app_id="a",
    )
    found = properties.read(sent.marshal())
    assert found == {
        "content_type": "a/b",
        "headers": {"a": 1},
        "delivery_mode": 2,
        "priority": 3,
        "correlation_id": "c",
        "type": "t",
        "app_id": "a",
    }
    assert properties.write(found) == properties.write(properties.read(properties.write(found)))
    assert properties.read(properties.PERSISTENT) == {"delivery_mode": 2}
    for good in (sent.marshal(), properties.PERSISTENT, properties.write(found)):
        properties.check(good)
        for bad in (good[:-1], good + b"x", b"", b"\xff\xff" + good[2:]):
            with pytest.raises((ValueError, IndexError)):
                properties.check(bad)
