"""A database with the schema in it for each test: shard 0 of 1, copied from one that was migrated once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from uuid import UUID

import pytest

from mqueue.log.postgres.link import Link
from mqueue.log.postgres.migrate import assign, migrate
from mqueue.testing import PostgresServer
from tests.postgres.shards import new_topic

_NUMBERS = count(1)


@pytest.fixture(scope="session")
def template(postgres: PostgresServer) -> str:
    link = Link(postgres.create("migrated"), "template")
    migrate(link)
    assign(link, 0, 1, UUID(int=1))
    link.close()
    return "migrated"


@pytest.fixture
def shard(postgres: PostgresServer, template: str) -> Iterator[str]:
    """The URL of a database that is ready."""
    name = f"shard_{next(_NUMBERS)}"
    yield postgres.create(name, template)
    postgres.drop(name)


@pytest.fixture
def links(shard: str) -> Iterator[Callable[[], Link]]:
    """As many connections to the shard as a test asks for."""
    made: list[Link] = []

    def link() -> Link:
        made.append(Link(shard, f"test{len(made)}", 60_000))
        return made[-1]

    yield link
    for one in made:
        one.close()


@pytest.fixture
def link(links: Callable[[], Link]) -> Link:
    return links()


@pytest.fixture
def topic(link: Link) -> int:
    """A topic of virtual shard 4."""
    return new_topic(link, "orders", 4)
