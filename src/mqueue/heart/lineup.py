"""What is ready, lined up: of each priority a ring of fairness keys, and of each key its runs in order.

Entries are never taken out when a run changes; whoever looks at them asks whether they still stand. It does not know
policies, chains or limits.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from mqueue.heart.runs import Run
from mqueue.model.limits import PRIORITIES_ALIVE_MAX
from mqueue.policy.shares import Shares

Entry = tuple[int, int, int, int, Run]
"""at, start, partition, something to tell equal ones apart, the run as it was lined up"""
_SLACK = 64


class Queue:
    """The runs of one fairness key in one priority."""

    __slots__ = ("ahead", "credit", "eldest", "heap", "level", "listed", "share")

    def __init__(self, share: int, level: Level) -> None:
        self.share = share
        self.level = level
        self.heap: list[Entry] = []
        self.credit = 0
        """How many more messages it may give before the next key has its turn; 0: its turn has not begun."""
        self.listed = False
        self.ahead = False
        """It was served for its age: it lets the others go once when its turn comes."""
        self.eldest: Entry | None = None
        """What it stands for among the elders of its level; its first run is no older. None: it is not there."""

    def pop(self) -> Run:
        """The first run; it is lined up no more."""
        _, _, partition, _, run = heappop(self.heap)
        level = self.level
        level.lined[partition] -= 1
        if not level.lined[partition]:
            level.dried.append((partition, level.priority))
        return run


class Level:
    """One priority."""

    __slots__ = ("dried", "elders", "lined", "priority", "queues", "ring")

    def __init__(self, priority: int, dried: list[tuple[int, int]], aged: bool) -> None:
        self.priority = priority
        self.dried = dried
        """That of the lineup."""
        self.queues: dict[int, Queue] = {}
        self.ring: deque[Queue] = deque()
        """Those who take turns; who is over a limit is not in it."""
        self.lined: dict[int, int] = defaultdict(int)
        """By partition, how many runs are lined up, with those that may not stand any more."""
        self.elders: list[tuple[Entry, Queue]] | None = [] if aged else None
        """Where age counts among keys, a heap of these by their first runs, with what has changed since."""

    def relist(self, share: int) -> None:
        """A key is below its limit again."""
        queue = self.queues.get(share)
        if queue is None:
            return
        if not queue.listed:
            queue.listed = True
            self.ring.append(queue)
        if queue.heap:
            self.enter(queue)

    def enter(self, queue: Queue) -> None:
        """A key is seen for the age of its first run."""
        elders, first = self.elders, queue.heap[0]
        if elders is None or (queue.eldest is not None and queue.eldest <= first):
            return
        queue.eldest = first
        heappush(elders, (first, queue))
        if len(elders) > 2 * len(self.queues) + _SLACK:
            elders[:] = [
                (entry, one) for entry, one in elders if one.eldest is entry and self.queues.get(one.share) is one
            ]
            heapify(elders)

    def pass_on(self, queue: Queue) -> None:
        """The next key has its turn."""
        if self.ring[0] is queue:
            self.ring.rotate(-1)
        else:
            queue.ahead = True


class Lineup:
    """Of all partitions, or of those that one member has."""

    __slots__ = ("_aged", "_serial", "_stands", "dried", "levels", "order", "shares")

    def __init__(self, stands: Callable[[Entry], bool], shares: Shares, aged: bool) -> None:
        self.shares = shares
        """Which lane has its turn, where lanes take turns."""
        self.levels: dict[int, Level] = {}
        self.order: list[int] = []
        """The priorities, most urgent first."""
        self.dried: list[tuple[int, int]] = []
        """Partition and priority of lanes of which the last that was lined up is so no more."""
        self._aged = aged
        self._stands = stands
        self._serial = 0

    def add(self, run: Run, share: int) -> None:
        self._push(run.priority, share, run.partition, (run,))

    def add_all(self, runs: Sequence[Run]) -> None:
        """Runs of one partition and priority, where there are no fairness keys."""
        if runs:
            self._push(runs[0].priority, 0, runs[0].partition, runs)

    def _push(self, priority: int, share: int, partition: int, runs: Sequence[Run]) -> None:
        level = self.levels.get(priority)
        if level is None:
            if len(self.levels) >= PRIORITIES_ALIVE_MAX:
                self._sweep()
            level = self.levels[priority] = Level(priority, self.dried, self._aged)
            insort(self.order, priority)
        queue = level.queues.get(share)
        if queue is None:
            queue = level.queues[share] = Queue(share, level)
            queue.listed = True
            level.ring.append(queue)
        heap, serial = queue.heap, self._serial
        for run in runs:
            serial += 1
            heappush(heap, (run.at, run.start, partition, serial, run))
        self._serial = serial
        level.lined[partition] += len(runs)
        if self._aged:
            level.enter(queue)

    def front(self) -> Queue | None:
        """The most urgent that there is, where there are no fairness keys."""
        for priority in self.order:
            for queue in self.levels[priority].ring:
                heap = queue.heap
                while heap:
                    if self._stands(heap[0]):
                        return queue
                    queue.pop()
        return None

    def first(self, level: Level, limited: Callable[[int], bool] | None) -> Queue | None:
        """The key whose turn it is, with something to give; None if no key has that."""
        ring = level.ring
        while ring:
            queue = ring[0]
            if self._is_dry(queue):
                ring.popleft()
                del level.queues[queue.share]
            elif limited is not None and limited(queue.share):
                ring.popleft()
                queue.listed = queue.ahead = False
                queue.credit = 0
            elif queue.ahead:
                queue.ahead = False
                ring.rotate(-1)
            else:
                return queue
        if not level.queues:
            del self.levels[level.priority]
            self.order.remove(level.priority)
        return None

    def oldest(self, level: Level, limited: Callable[[int], bool] | None) -> Queue | None:
        """The key with the message that has been ready longest, of those that may give one."""
        elders = level.elders
        if elders is None:
            return self.first(level, limited)
        while elders:
            entry, queue = elders[0]
            if queue.eldest is not entry:  # it stands there once more
                heappop(elders)
            elif self._is_dry(queue) or not queue.listed or (limited is not None and limited(queue.share)):
                heappop(elders)
                queue.eldest = None
            elif queue.heap[0] is not entry:
                queue.eldest = queue.heap[0]
                heapreplace(elders, (queue.eldest, queue))
            else:
                return queue
        return None

    def _sweep(self) -> None:
        """Forget priorities that have nothing ready."""
        for level in list(self.levels.values()):
            for queue in [queue for queue in level.queues.values() if self._is_dry(queue)]:
                del level.queues[queue.share]
                if queue.listed:
                    level.ring.remove(queue)
            if not level.queues:
                del self.levels[level.priority]
                self.order.remove(level.priority)

    def _is_dry(self, queue: Queue) -> bool:
        heap = queue.heap
        while heap:
            if self._stands(heap[0]):
                return False
            queue.pop()
        return True
