"""What every conformance test is given: a queue on each backend in turn, its clock, and a way to open more of them.

A new log or a new face joins by one entry in BACKENDS. The tests use the public calls only and know no backend.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

import mqueue
from mqueue.config import Cluster, Config, Metrics, NamespaceQuotas, Secret
from mqueue.model.limits import Limits
from mqueue.model.settings import parse
from mqueue.testing import ManualClock, PostgresServer
from mqueue.testing.server import RunningServer
from tests.conformance.steps import TellingClock

_NUMBERS = count()


@cache
def postgres_server() -> PostgresServer:
    return PostgresServer()


class Backend(Struct, frozen=True):
    """`open(clock, folder, **settings)`: an empty queue that goes by that clock and may write below that folder."""

    open: Callable[..., Any]
    embedded: bool
    """Whether the broker itself lives in the process that calls it."""


def _memory(clock: ManualClock, folder: Path, **settings: Any) -> mqueue.Broker:
    return mqueue.Broker(clock=clock, **settings)


def _disk(clock: ManualClock, folder: Path, **settings: Any) -> mqueue.Broker:
    return mqueue.Broker(folder, clock=clock, storage=mqueue.Storage(reserve_bytes=0), **settings)


class Remote:
    """A client, and the server of its own that it talks to."""

    def __init__(
        self, clock: ManualClock, encoding: str, settings: dict[str, Any], cluster: Cluster | None = None
    ) -> None:
        name = settings.pop("name", "")
        config = Config(
            limits=settings.pop("limits", Limits()),
            quotas=NamespaceQuotas(namespaces=settings.pop("quotas", {})),
            topic=parse(settings),
            metrics=Metrics(enabled=False),
            cluster=cluster or Cluster(),
        )
        self._server = RunningServer(config, clock)
        self._client = mqueue.Client(self._server.url, name=name, encoding=encoding, retry=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *ending: object) -> None:
        self._client.close()

    def end(self) -> None:
        self._client.close()
        self._server.close()


def _json(clock: ManualClock, folder: Path, **settings: Any) -> Remote:
    return Remote(clock, "json", settings)


def _arrow(clock: ManualClock, folder: Path, **settings: Any) -> Remote:
    return Remote(clock, "arrow", settings)


def _postgres(clock: ManualClock, folder: Path, **settings: Any) -> Remote:
    server = postgres_server()
    name = f"conformance_{next(_NUMBERS)}"
    return Remote(clock, "json", settings, Cluster((Secret(server.create(name)),)))


BACKENDS = {
    "memory": Backend(_memory, embedded=True),
    "disk": Backend(_disk, embedded=True),
    "json": Backend(_json, embedded=False),
    "arrow": Backend(_arrow, embedded=False),
}
if "postgres" in os.environ.get("MQUEUE_BACKENDS", ""):
    BACKENDS["postgres"] = Backend(_postgres, embedded=False)


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
    return TellingClock()


@pytest.fixture
def make(backend, clock, tmp_path) -> Iterator[Callable[..., Any]]:
    """`make(**settings)`: a queue of its own, closed when the test is over."""
    opened: list[Any] = []

    def open(**settings: Any) -> Any:
        opened.append(backend.open(clock, tmp_path / str(len(opened)), **settings))
        return opened[-1]

    yield open
    for queue in opened:
        queue.end() if isinstance(queue, Remote) else queue.close()


@pytest.fixture
def q(make) -> Any:
    return make()
