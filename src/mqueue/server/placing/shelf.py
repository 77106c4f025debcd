"""The documents of a server that is a node of a cluster: they lie in the first PostgreSQL server, for all nodes."""

from __future__ import annotations

from mqueue.log.postgres import documents
from mqueue.log.postgres.link import Link


class SharedShelf:
    """A `mqueue.server.shelf.Shelf`. One thread at a time uses it. Raises ShardDown while the server is away."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._versions: dict[str, int] = {}
        """Of each document, the version that was read or written here last."""

    def read(self, name: str) -> bytes | None:
        found = documents.read(self._link, name)
        self._versions[name] = 0 if found is None else found[0]
        return None if found is None else found[1]

    def write(self, name: str, data: bytes) -> bool:
        version = self._versions.get(name, 0)
        if not documents.write(self._link, name, version, data):
            return False
        self._versions[name] = version + 1
        return True

    def is_stale(self, name: str) -> bool:
        return documents.version(self._link, name) != self._versions.get(name, 0)
