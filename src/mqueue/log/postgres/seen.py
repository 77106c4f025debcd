"""What was seen of the servers that hold one shard: which system they are of, its timeline, how far it was written.

A promotion begins a new timeline, one higher. So of two servers that say they are the primary the one on the lower
timeline is out of date, whatever it believes: it is refused, and so is one of another system, and one whose log ends
before what was seen written on the same timeline. All links to a shard share one `Seen`; what it holds only rises.

Knows no SQL, and asks nobody.
"""

from __future__ import annotations

import threading
from datetime import datetime

from msgspec import Struct

from mqueue.log.postgres.problems import Outdated, Stranger

_SLACK_BYTES = 1 << 20
"""After a crash the log may end before what was flushed of it: a record that is not whole is cut off."""


class Sight(Struct, frozen=True):
    """Of a primary. `system`: given when its data directory was made, shared by all copies of it. `position`: up to
    where its log is on disk, in bytes."""

    system: int
    timeline: int
    position: int = 0


class Backend(Struct, frozen=True):
    """The other end of a connection: a process of a server, and the server. `begun`: when that process began, `started`
    when the server did. `place`: the number of the host in the DSN."""

    pid: int
    begun: datetime
    started: datetime
    sight: Sight
    place: int = 0

    def outlived_by(self, other: Backend) -> bool:
        """Whether this process is gone for certain, judged by one that was met later."""
        return self.started != other.started or self.sight.timeline < other.sight.timeline


class Seen:
    """For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.sight: Sight | None = None
        """The highest."""
        self.home: Backend | None = None
        """Whoever was taken for the primary last."""
        self.generation = 0
        """Rises when another server is the primary, or the same one has started again."""

    @property
    def timeline(self) -> int:
        return 0 if self.sight is None else self.sight.timeline

    def check(self, server: str, found: Sight) -> None:
        """Raise if this cannot be the primary of what was seen before."""
        known = self.sight
        if known is None:
            return
        if found.system != known.system:
            raise Stranger(
                f"PostgreSQL at {server} is system {found.system}, but the shard is system {known.system}: it is"
                " another server, or was made anew. If that is meant, stop all nodes and delete the rows of this shard"
                " from mqueue.sightings at the others"
            )
        if found.timeline < known.timeline:
            raise Outdated(
                f"PostgreSQL at {server} is on timeline {found.timeline}, but {known.timeline} was seen: another server"
                " was promoted, and this one must not be used any more"
            )
        if found.timeline == known.timeline and found.position + _SLACK_BYTES < known.position:
            raise Outdated(
                f"PostgreSQL at {server} ends at {found.position} bytes of timeline {found.timeline}, but"
                f" {known.position} were seen written: it was set back, to a backup for one",
                code="set_back",
            )

    def take(self, server: str, backend: Backend) -> None:
        """This is the primary, unless it is refused."""
        with self._lock:
            self.check(server, backend.sight)
            self._rise(backend.sight)
            home = self.home
            if home is None or (home.place, home.started) != (backend.place, backend.started):
                self.generation += 1
            self.home = backend

    def learn(self, told: Sight) -> None:
        """Somebody else has seen this. Whoever is connected to less lets go."""
        with self._lock:
            if self.sight is None or self.sight.system == told.system:
                self._rise(told)

    def _rise(self, found: Sight) -> None:
        known = self.sight
        if known is None or (found.timeline, found.position) > (known.timeline, known.position):
            self.sight = found
