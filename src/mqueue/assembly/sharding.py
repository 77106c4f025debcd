"""The servers of a cluster as it is configured, for who moves virtual shards between them. No node is started."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mqueue.cluster.moving import growing
from mqueue.cluster.moving.fleet import Fleet
from mqueue.config import Config
from mqueue.log.postgres.link import Link, apart
from mqueue.model.errors import BadSetting

_TIMEOUT_MS = 60_000
"""Nobody waits for the mover: what is large may take a while."""


@contextmanager
def fleet(config: Config) -> Iterator[Fleet]:
    urls = _urls(config)
    found = Fleet([Link(url, "move", _TIMEOUT_MS) for url in urls], [apart(url) for url in urls])
    try:
        yield found
    finally:
        found.close()


def add(config: Config, url: str) -> tuple[int, str]:
    """Let a server join: its place and its name. It may be named already among those that are configured."""
    known = [Link(one, "add", _TIMEOUT_MS) for one in _urls(config) if one != url]
    new = Link(url, "add", _TIMEOUT_MS)
    try:
        if not known or new.server in {link.server for link in known}:
            raise BadSetting(f"{new.server} is one of the servers of this cluster already", code="same_server")
        return growing.add(known, new), new.server
    finally:
        for link in (*known, new):
            link.close()


def _urls(config: Config) -> list[str]:
    if not config.cluster.databases:
        raise BadSetting("no cluster is configured: give its servers by cluster.databaseUrls (DATABASE_URLS)")
    return [url.reveal() for url in config.cluster.databases]
