"""What is ready, lined up: of each priority a ring of fairness keys, and of each key its runs in order.

Entries are never taken out when a run changes; whoever looks at them asks whether they still stand. It does not know
policies, chains or limits.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from mqueue.heart.runs import Run
from mqueue.model.limits import PRIORITIES_ALIVE_MAX
from mqueue.policy.shares import Shares

Entry = tuple[int, int, int, int, Run]
"""at, start, partition, something to tell equal ones apart, the run as it was lined up"""


class Queue:
    """The runs of one fairness key in one priority."""

    __slots__ = ("credit", "heap", "level", "listed", "share")

    def __init__(self, share: int, level: Level) -> None:
        self.share = share
        self.level = level
        self.heap: list[Entry] = []
        self.credit = 0
        """How many more messages it may give before the next key has its turn; 0: its turn has not begun."""
        self.listed = False

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

    __slots__ = ("dried", "lined", "priority", "queues", "ring")

    def __init__(self, priority: int, dried: list[tuple[int, int]]) -> None:
        self.priority = priority
        self.dried = dried
        """That of the lineup."""
        self.queues: dict[int, Queue] = {}
        self.ring: deque[Queue] = deque()
        """Those who take turns; who is over a limit is not in it."""
        self.lined: dict[int, int] = defaultdict(int)
        """By partition, how many runs are lined up, with those that may not stand any more."""

    def relist(self, share: int) -> None:
        """A key is below its limit again."""
        queue = self.queues.get(share)
        if queue is not None and not queue.listed:
            queue.listed = True
            self.ring.append(queue)

    def pass_on(self, queue: Queue) -> None:
        """The next key has its turn."""
        if self.ring[0] is queue:
            self.ring.rotate(-1)
        else:  # it was served for its age: it goes behind the others all the same
            self.ring.remove(queue)
            self.ring.append(queue)


class Lineup:
    """Of all partitions, or of those that one member has."""

    __slots__ = ("_serial", "_stands", "dried", "levels", "order", "shares")

    def __init__(self, stands: Callable[[Entry], bool], shares: Shares) -> None:
        self.shares = shares
        """Which lane has its turn, where lanes take turns."""
        self.levels: dict[int, Level] = {}
        self.order: list[int] = []
        """The priorities, most urgent first."""
        self.dried: list[tuple[int, int]] = []
        """Partition and priority of lanes of which the last that was lined up is so no more."""
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
            level = self.levels[priority] = Level(priority, self.dried)
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
                queue.listed = False
                queue.credit = 0
            else:
                return queue
        if not level.queues:
            del self.levels[level.priority]
            self.order.remove(level.priority)
        return None

    def oldest(self, level: Level, limited: Callable[[int], bool] | None) -> Queue | None:
        """The key with the message that has been ready longest. Looks at every key."""
        first = self.first(level, limited)
        if first is None or len(level.ring) == 1:
            return first
        able = [queue for queue in level.ring if not self._is_dry(queue) and not (limited and limited(queue.share))]
        return min(able, key=lambda queue: queue.heap[0][:3])

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
