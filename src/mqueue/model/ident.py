"""Message ids: 63 bits that sort by time, unique without asking anybody.

      62                                    22 21         12 11          0
     +----------------------------------------+-------------+-------------+
     | milliseconds since 2024-01-01 (41 bits)| node (10)   | sequence(12)|
     +----------------------------------------+-------------+-------------+

The milliseconds are a *slot*, not the clock: under load the slot runs ahead of the clock, and when the clock steps back
the slot stays. Does not know the clock (`now` is handed in), nor who leases the node numbers.
"""

from __future__ import annotations

from mqueue.model.errors import Backpressure, BadSetting, Unavailable
from mqueue.model.limits import ID_AHEAD_MS_MAX, ID_NODE_BITS, ID_SEQUENCE_BITS

EPOCH_MS = 1_704_067_200_000
"""2024-01-01T00:00:00Z."""

SLOT_BITS = 41
SLOT_IDS = 1 << ID_SEQUENCE_BITS
NODES = 1 << ID_NODE_BITS

_SLOT_SHIFT = ID_NODE_BITS + ID_SEQUENCE_BITS

assert SLOT_BITS + ID_NODE_BITS + ID_SEQUENCE_BITS == 63, "an id must fit a signed 64-bit integer"


class IdSource:
    """Gives out the ids of one node. One owner calls it; there is no lock inside."""

    __slots__ = ("_next", "_now", "_stop", "node")

    def __init__(self, node: int = 0) -> None:
        if not 0 <= node < NODES:
            raise BadSetting(f"node {node} is out of range: a node number lies between 0 and {NODES - 1}")
        self.node = node
        self._next = node << ID_SEQUENCE_BITS
        self._stop = self._next + SLOT_IDS
        self._now = -1  # when the slot was last compared with the clock; -1: not yet

    def take(self, count: int, now: int) -> int:
        """The first of `count` contiguous ids, all of one slot. They are greater than any id given out before."""
        assert 0 < count <= SLOT_IDS, count
        first = self._next
        if now != self._now or first + count > self._stop:
            first = self._turn(count, now)
        self._next = first + count
        return first

    def check(self, count: int, now: int) -> None:
        """Refuse now what could be refused later: so many ids, each of them in a slot of its own at worst."""
        slot = max((self._stop - 1) >> _SLOT_SHIFT, now - EPOCH_MS)
        if slot - max(now - EPOCH_MS, 0) + count > ID_AHEAD_MS_MAX:
            _check_slot(slot + count, now)

    def resume(self, last_id: int) -> None:
        """Go on behind an id seen before, of whatever node, unless we are behind it already."""
        if last_id < self._next:
            return
        slot = last_id >> _SLOT_SHIFT
        if node_of(last_id) == self.node:
            self._open(slot, (last_id & (SLOT_IDS - 1)) + 1)
        else:
            self._open(slot + 1, 0)

    def _turn(self, count: int, now: int) -> int:
        """Choose the slot: the clock's, or the one we are in, or the one behind it. Changes nothing if it refuses."""
        here = (self._stop - 1) >> _SLOT_SHIFT
        slot = max(here, now - EPOCH_MS)
        if slot == here and self._next + count > self._stop:
            slot += 1
        _check_slot(slot, now)
        if slot != here:
            self._open(slot, 0)
        self._now = now
        return self._next

    def _open(self, slot: int, used: int) -> None:
        first = slot << _SLOT_SHIFT | self.node << ID_SEQUENCE_BITS
        self._next = first + used
        self._stop = first + SLOT_IDS
        self._now = -1


def instant_of(id: int) -> int:
    """Milliseconds since 1970 of the slot: near the time of the publish, not the time itself."""
    return (id >> _SLOT_SHIFT) + EPOCH_MS


def node_of(id: int) -> int:
    return id >> ID_SEQUENCE_BITS & (NODES - 1)


def _check_slot(slot: int, now: int) -> None:
    if slot >> SLOT_BITS:
        last = (1 << SLOT_BITS) - 1 + EPOCH_MS
        raise Unavailable(f"no ids after {last} ms since 1970, and it is {now}", code="id_clock_end", retryable=False)
    # A clock before 2024 (a dead battery, a test that starts at 0) counts as 2024: waiting for it would take years.
    ahead = slot - max(now - EPOCH_MS, 0)
    if ahead > ID_AHEAD_MS_MAX:
        raise Backpressure(
            f"the id clock is {ahead} ms ahead of the clock: at most {ID_AHEAD_MS_MAX} ms are allowed",
            code="id_clock_ahead",
            retry_after=(ahead - ID_AHEAD_MS_MAX) / 1000,
        )
