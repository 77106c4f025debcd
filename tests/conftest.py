"""One PostgreSQL server for all tests that ask for one, started with the first; each test has a database of its own.

Random tests have no deadline: a busy machine is no failure.
"""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import settings

from mqueue.testing import PostgresServer
from tests.stuck import Watch

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

_NUMBERS = count(1)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Watch(config))


@pytest.fixture(scope="session")
def postgres(postgres_server: PostgresServer) -> PostgresServer:
    """Shared: whoever stops, kills or pauses a server makes one of his own, by `PostgresServer()`."""
    return postgres_server


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    """The URL of an empty database, which goes with the server: a node may outlive its test by a moment."""
    return postgres.create(f"test_{next(_NUMBERS)}")
