"""The async classes are made from the sync ones: same names, same signatures, and a stub that says so."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from examples import async_orders
from tools import async_stub

import mqueue
from mqueue.broker.twin import Twin, awaited, twin_signature

PAIRS = [
    (mqueue.Broker, mqueue.AsyncBroker),
    (mqueue.Dlq, mqueue.AsyncDlq),
    (mqueue.ArrowLease, mqueue.AsyncArrowLease),
    (mqueue.Message, mqueue.AsyncMessage),
    (mqueue.DeadMessage, mqueue.AsyncDeadMessage),
    (mqueue.Subscription, mqueue.AsyncSubscription),
]
PAIR_NAMES = [sync.__name__ for sync, _ in PAIRS]
MADE_INSIDE = {"of", "first_of", "empty"}  # of ArrowLease: users are given one
AT_ONCE = {"namespace", "dlq", "consume", "subscribe", "supply", "scan", "scan_arrow", "scan_frames"}
AT_ONCE |= {"events", "schedules"}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")} - MADE_INSIDE


def shape(call: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(call).parameters.values()]


@pytest.mark.parametrize(("sync", "twin"), PAIRS, ids=PAIR_NAMES)
def test_both_have_the_same_names(sync: type, twin: type) -> None:
    assert public(sync) == public(twin)


@pytest.mark.parametrize(("sync", "twin"), PAIRS, ids=PAIR_NAMES)
def test_both_have_the_same_signatures(sync: type, twin: type) -> None:
    for name in public(sync):
        call, other = getattr(sync, name), getattr(twin, name)
        if inspect.isfunction(call):
            assert shape(call) == shape(other), name
            assert other.__name__ == name


def test_both_are_made_with_the_same_settings() -> None:
    assert shape(mqueue.Broker.__init__) == shape(mqueue.AsyncBroker.__init__)


def test_all_calls_are_awaited_but_those_that_hand_out_something() -> None:
    calls = {name: getattr(mqueue.AsyncBroker, name) for name in public(mqueue.AsyncBroker)}
    assert {name for name, call in calls.items() if not inspect.iscoroutinefunction(call)} == AT_ONCE


def test_a_call_keeps_its_name_and_its_words_and_names_the_async_types() -> None:
    call = mqueue.AsyncBroker.receive
    assert (call.__qualname__, call.__module__) == ("AsyncBroker.receive", "mqueue.broker.aio")
    assert call.__doc__ == mqueue.Broker.receive.__doc__
    assert inspect.signature(call).return_annotation == "list[AsyncMessage]"
    lease = inspect.signature(mqueue.AsyncBroker.receive_arrow).return_annotation
    assert lease == "AsyncArrowLease"


def test_a_new_call_is_there_at_once() -> None:
    class Sync:
        def add(self, n: int, *, to: int = 1) -> int:
            """Add."""
            return n + to

        def each(self) -> Iterator[int]:
            return iter(range(600))

        def _inside(self) -> None: ...

    @awaited(Sync)
    class Made(Twin):
        pass

    async def main() -> None:
        made = Made._of(Sync())
        assert await made.add(1, to=2) == 3
        assert [n async for n in made.each()] == list(range(600))
        with pytest.raises(TypeError):
            await made.add()

    asyncio.run(main())
    assert public(Made) == {"add", "each"}
    assert twin_signature(Sync.each).return_annotation == "AsyncIterator[int]"


def test_the_stub_is_current() -> None:
    assert async_stub.STUB.path.read_text(encoding="utf-8") == async_stub.STUB.text(), "run: python -m tools.async_stub"


def test_the_typed_example_runs(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    done = asyncio.run(asyncio.wait_for(async_orders.main(), 120))
    assert done == ["Oslo", "Bonn"]
    assert 'gave up on {"to":"nowhere"} after 2 attempts: ValueError: no such place' in capsys.readouterr().out
