"""The number of a node, a part of every id that it gives out: lent by the first server for a day, renewed hourly.

Who could not renew it gives out no more ids before the server may lend it to somebody else: it goes by a clock that
cannot be set, counts while the machine sleeps, and began before the server's. So two nodes never use one number.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from uuid import uuid4

from mqueue.log.postgres import nodes
from mqueue.log.postgres.link import Link
from mqueue.model.errors import BadSetting, Error, ShardDown, Unavailable
from mqueue.model.ident import IdSource

LOGGER = logging.getLogger("mqueue.cluster")
HOURS = 24.0
RENEW_SECONDS = 3600.0
AGAIN_SECONDS = 60.0
"""After a failure it is tried again soon."""
_MARGIN = 0.01
"""So much of the time is not used: no two clocks run at the same speed."""


def _elapsed() -> float:
    """Seconds, also those in which the machine slept."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class NodeNumber:
    """`link` is used by one thread at a time: who starts and ends the node, and the duty in between."""

    def __init__(self, link: Link, hours: float = HOURS, elapsed: Callable[[], float] = _elapsed) -> None:
        self._link = link
        self._hours = hours
        self._elapsed = elapsed
        self._holder = uuid4()
        self._epoch = 0
        self._until = 0.0
        self.number = 0
        """0: there is none."""
        self.ids = SharedIds(self)
        self._over = threading.Event()
        self._duty = threading.Thread(target=self._walk, name="mqueue-number", daemon=True)

    def take(self) -> int:
        """Borrow one, and keep it for as long as the server can be reached."""
        self._take()
        self._duty.start()
        return self.number

    def run_once(self) -> bool:
        """Renew it, or take another if it is not ours any more; False: that has to be tried again soon."""
        begun = self._elapsed()
        try:
            if nodes.renew_node(self._link, self._holder, self.number, self._epoch, self._hours):
                self._until = self._end_of(begun)
                return True
            LOGGER.warning("the node number %d has ended: another one is taken", self.number)
            self._take()
        except Error as problem:
            LOGGER.warning("the node number %d could not be renewed: %s", self.number, problem)
            return False
        except Exception:  # the duty goes on: without it nothing could be published tomorrow
            LOGGER.exception("the node number %d could not be renewed", self.number)
            return False
        return True

    def check(self) -> None:
        """Raises if no ids may be given out."""
        if self._elapsed() >= self._until:
            raise Unavailable(
                f"this node may publish nothing: its number has ended, and {self._link.server}, which lends them, could"
                " not be asked",
                code="no_node_number",
                applied=False,
                retry_after=AGAIN_SECONDS,
            )

    def elapsed_ms(self) -> int:
        """On the clock that cannot be set."""
        return int(self._elapsed() * 1000)

    def drop(self) -> None:
        """Give it back."""
        self._over.set()
        if self._duty.is_alive():
            self._duty.join()
        if self.number:
            self._until = 0.0
            try:
                nodes.drop_node(self._link, self._holder, self.number, self._epoch)
            except (ShardDown, BadSetting) as problem:
                LOGGER.warning("the node number %d could not be given back: %s", self.number, problem)

    def _take(self) -> None:
        begun, holder = self._elapsed(), uuid4()
        number, epoch = nodes.take_node(self._link, holder, self._hours)
        self._holder, self._epoch = holder, epoch
        self.ids.become(number)
        self.number, self._until = number, self._end_of(begun)

    def _end_of(self, begun: float) -> float:
        """Counted from before the server was asked: so it ends here before it ends there."""
        return begun + self._hours * 3600 * (1 - _MARGIN)

    def _walk(self) -> None:
        pause = RENEW_SECONDS
        while not self._over.wait(pause):
            pause = RENEW_SECONDS if self.run_once() else AGAIN_SECONDS


class SharedIds(IdSource):
    """Ids for several estates: each is a thread of its own. There are none once the number has ended.

    The servers of the estates need not agree on the time. Ids go by the latest of their clocks, carried forward by one
    that cannot be set: so none is behind the clock of its shard, where what is new is looked for by id, and a server
    that is ahead does not keep others from being published to.
    """

    __slots__ = ("_ahead", "_guard", "_lent")

    def __init__(self, lent: NodeNumber) -> None:
        super().__init__()
        self._guard = threading.Lock()
        self._lent = lent
        self._ahead: int | None = None
        """Milliseconds from the clock that cannot be set to the latest of the others."""

    def take(self, count: int, now: int) -> int:
        self._lent.check()
        with self._guard:
            return super().take(count, self._latest(now))

    def check(self, count: int, now: int) -> None:
        self._lent.check()
        with self._guard:
            super().check(count, self._latest(now))

    def become(self, node: int) -> None:
        """Go on with another number, in a slot that none of them was given out of."""
        with self._guard:
            fresh = IdSource(node)
            fresh.resume(self._next)
            self.node, self._next, self._stop, self._now = node, fresh._next, fresh._stop, -1

    def _latest(self, now: int) -> int:
        elapsed = self._lent.elapsed_ms()
        if self._ahead is None or now > elapsed + self._ahead:
            self._ahead = now - elapsed
        return elapsed + self._ahead
