"""Priorities: five names, an int32, and nothing that merely looks like one."""

from __future__ import annotations

from enum import IntEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqueue.model.errors import BadPriority
from mqueue.model.priority import LANES, NORMAL, PRIORITY_MAX, PRIORITY_MIN, name, priority


def test_the_lanes_have_names_and_levels() -> None:
    assert dict(LANES) == {"critical": 0, "high": 25, "normal": 50, "low": 75, "background": 100}
    assert NORMAL == 50


@pytest.mark.parametrize("lane", LANES)
def test_a_name_and_its_level_are_the_same(lane: str) -> None:
    assert priority(lane) == LANES[lane]
    assert name(priority(lane)) == lane


@given(st.integers(PRIORITY_MIN, PRIORITY_MAX))
def test_every_int32_is_a_priority(level: int) -> None:
    assert priority(level) == level
    assert name(level) in {None, *LANES}


def test_an_int_enum_comes_out_plain() -> None:
    class Lane(IntEnum):
        MINE = 7

    assert type(priority(Lane.MINE)) is int


@pytest.mark.parametrize(
    "value", [True, False, None, 1.0, "5", "", "HIGH", "urgent", b"high", [], 1 << 31, -(1 << 31) - 1]
)
def test_what_is_no_priority_is_refused_with_what_is_allowed(value: object) -> None:
    with pytest.raises(BadPriority) as caught:
        priority(value)  # type: ignore[arg-type]
    message = caught.value.message
    assert f"priority {value!r} is not allowed" in message
    assert "critical, high, normal, low, background" in message
    assert "-2147483648 to 2147483647" in message
