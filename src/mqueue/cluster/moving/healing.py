"""The duty of every node to finish what a dead mover has left: virtual shards that have left one server and are not
active at another, and what lies where nobody needs it any more.

A mover that lives is known by its lock, and not disturbed, unless it does nothing for long. What has not left is not
touched: it is served, and whoever began may want to undo it. Lives in a thread of its own, with connections that it has
only while it works.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from mqueue.cluster.atlas import Atlas
from mqueue.cluster.moving.heeding import Server
from mqueue.cluster.moving.mover import Mover
from mqueue.log.postgres import moving
from mqueue.log.postgres.link import Link, apart
from mqueue.log.postgres.seen import Seen
from mqueue.model.errors import Error

LOGGER = logging.getLogger("mqueue.cluster")
LOOK_SECONDS = 1.0
GRACE_SECONDS = 3.0
"""So long whoever moves something may be at it."""
LATE_SECONDS = 30.0
"""After that it is said if somebody is at it still."""
_CLEARED_AT_ONCE = 1_000


class Healer:
    """`urls`: of all servers, by place; `seen`: what is known of those that hold them."""

    def __init__(
        self,
        atlas: Atlas,
        urls: Sequence[str],
        seen: Sequence[Seen],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._atlas = atlas
        self._urls = urls
        self._seen_servers = seen
        self._monotonic = monotonic
        self._seen: dict[tuple[int, int], tuple[float, float]] = {}
        """Since when something is unfinished, and when that was looked after last, by source and target."""
        self._complained = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._walk, name="mqueue-healer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def run_once(self) -> int:
        """How many virtual shards were brought to where they belong."""
        now = self._monotonic()
        ways = self._atlas.unfinished()
        self._seen = {way: self._seen.get(way, (now, now)) for way in ways}
        healed = 0
        for way, (since, last) in self._seen.items():
            if now - last >= GRACE_SECONDS:
                healed += self._heal(*way, late=now - since >= LATE_SECONDS)
                self._seen[way] = since, now
        for place in self._atlas.littered():
            self._clear(place)
        return healed

    def _heal(self, source: int, target: int, *, late: bool) -> int:
        servers = [Server(place, self._link(place), tuple(apart(self._urls[place]))) for place in (source, target)]
        try:
            done = Mover(*servers).finish()
        except Error as problem:
            if late or problem.code != "mover_busy":
                self._complain(f"what left server {source} for server {target} could not be brought there: {problem}")
            return 0
        finally:
            for server in servers:
                server.link.close()
        vshards = [vshard for one in done for vshard in one.vshards]
        if vshards:
            LOGGER.warning("a mover died: virtual shards %s went on to server %d, finished here", vshards, target)
            self._atlas.stir()
        self._complained = ""
        return len(vshards)

    def _clear(self, place: int) -> None:
        """A little at a time: whoever moved things away from here may be at it as well."""
        link = self._link(place)
        try:
            if not moving.is_locked(link):
                for vshard in moving.leftovers(link)[:8]:
                    moving.clear(link, vshard, _CLEARED_AT_ONCE)
        except Error as problem:
            self._complain(f"what lies at server {place} and is not needed stays: {problem}")
        finally:
            link.close()

    def _link(self, place: int) -> Link:
        return Link(self._urls[place], f"shard{place}:heal", seen=self._seen_servers[place])

    def _complain(self, why: str) -> None:
        if why != self._complained:
            LOGGER.error(why)
        self._complained = why

    def _walk(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            try:
                self.run_once()
            except Exception:
                LOGGER.exception("a look at what movers have left failed")
