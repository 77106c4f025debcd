"""What every conformance test is given: a queue on each backend in turn, its clock, and a way to open more of them.

A new log or a new face joins by one entry in BACKENDS. The tests use the public calls only and know no backend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

import mqueue
from mqueue.testing import ManualClock


class Backend(Struct, frozen=True):
    """`open(clock, folder, **settings)`: an empty queue that goes by that clock and may write below that folder."""

    open: Callable[..., Any]
    embedded: bool
    """Whether the broker itself lives in the process that calls it."""


def _memory(clock: ManualClock, folder: Path, **settings: Any) -> mqueue.Broker:
    return mqueue.Broker(clock=clock, **settings)


def _disk(clock: ManualClock, folder: Path, **settings: Any) -> mqueue.Broker:
    return mqueue.Broker(folder, clock=clock, storage=mqueue.Storage(reserve_bytes=0), **settings)


BACKENDS = {"memory": Backend(_memory, embedded=True), "disk": Backend(_disk, embedded=True)}


@pytest.fixture(params=BACKENDS)
def backend(request) -> Backend:
    return BACKENDS[request.param]


@pytest.fixture
def embedded(backend) -> None:
    """For what only a broker in this very process can do."""
    if not backend.embedded:
        pytest.skip("the broker lives in another process")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make(backend, clock, tmp_path) -> Iterator[Callable[..., Any]]:
    """`make(**settings)`: a queue of its own, closed when the test is over."""
    opened: list[Any] = []

    def open(**settings: Any) -> Any:
        opened.append(backend.open(clock, tmp_path / str(len(opened)), **settings))
        return opened[-1]

    yield open
    for queue in opened:
        queue.close()


@pytest.fixture
def q(make) -> Any:
    return make()
