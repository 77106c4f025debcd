"""What a node has at Redis: the line, what it sends there, what it hears. An annex for each of its estates."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from mqueue.cluster.redis.annex import Annex
from mqueue.cluster.redis.line import Access, Line
from mqueue.cluster.redis.outbox import Outbox
from mqueue.cluster.redis.wake import Ear, Wake

NOWHERE = Access(())
COPY_MS = 60_000
_NO_CLUSTER = UUID(int=0)


class Outpost:
    """`heard` is called, by a thread that may not wait, when another node has published something. `ttl_ms`: how long
    copies are kept of what PostgreSQL has."""

    def __init__(
        self,
        access: Access = NOWHERE,
        cluster: UUID = _NO_CLUSTER,
        ttl_ms: int = COPY_MS,
        heard: Callable[[Wake], None] = lambda wake: None,
    ) -> None:
        self.line = Line.of(access, cluster)
        self.outbox = Outbox(self.line)
        self.ear = Ear(self.line, heard)
        self._ttl_ms = ttl_ms

    def annex(self, server: str) -> Annex:
        return Annex(self.line, self.outbox, server, self._ttl_ms)

    def start(self) -> None:
        """Begin to listen: whoever hears is there by now."""
        self.ear.start()

    def close(self) -> None:
        self.outbox.close()
        self.ear.close()
        self.line.close()


NOTHING = Outpost()
"""No Redis."""
