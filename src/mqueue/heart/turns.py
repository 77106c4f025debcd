"""Whose turn it is in one group, where that is not simply the order of priority and time.

For topics with a policy, fairness keys or ordering keys. What comes next is *drawn*: taken off the cursors and parked
as ready, at most LOOK_AHEAD_MAX messages and LOOK_AHEAD_RUNS_MAX runs of a partition. All picks are made from what is
parked, so that a lease of any of it folds like any other. Where keys matter each parked run is of one key (`Run.keys`);
whoever reads the log tells which: what is not told yet waits in `unknown`. In an assigned group each member has a
lineup of its own, made anew when it has other partitions; chains and limits are the group's. Nothing here is durable
but the keys that are diverted: turns begin anew after a restart.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from mqueue.heart.chains import Chains
from mqueue.heart.flows import MANY, Flows
from mqueue.heart.lineup import Entry, Lineup, Queue
from mqueue.heart.reader import Reader
from mqueue.heart.runs import Run
from mqueue.heart.schedule import NEVER
from mqueue.model.limits import FRAME_ROWS_MAX, LOOK_AHEAD_MAX, LOOK_AHEAD_RUNS_MAX
from mqueue.model.policies import Fairness
from mqueue.model.settings import Settings
from mqueue.policy.shares import LANES_COUNT, Shares, lane_of

_AT_ONCE = 512
"""When something has to be drawn, so many more than needed are."""


class Rules(Struct, frozen=True):
    """The settings of a topic that say whose turn it is."""

    policy: str
    weights: tuple[int, ...]
    age_limit_ms: int
    fairness: Fairness | None
    ordered: bool

    @classmethod
    def of(cls, settings: Settings) -> Rules | None:
        """None: the order of priority and time is all."""
        if settings.policy == "strict" and settings.fairness is None and not settings.ordered:
            return None
        return cls(settings.policy, settings.weights, settings.age_limit_ms, settings.fairness, settings.ordered)


class Turns:
    __slots__ = (
        "_drawn",
        "_homes",
        "_lineups",
        "_plain",
        "_readers",
        "chains",
        "diverted",
        "flows",
        "freed",
        "hidden",
        "keyed",
        "learned",
        "ordered",
        "rules",
        "strays",
        "timer_at",
        "unknown",
    )

    def __init__(self, readers: list[Reader], rules: Rules, diverted: set[int]) -> None:
        self.rules = rules
        self.ordered = rules.ordered
        self.keyed = rules.ordered or rules.fairness is not None
        self.learned = not self.keyed
        """Whether it is known which keys are in flight."""
        self.unknown: list[Run] = []
        """Parked runs whose keys have to be found out; some may have changed since."""
        self.chains = Chains(self._stands)
        self.flows = None if rules.fairness is None else Flows(rules.fairness)
        self.diverted = diverted
        self.strays: set[int] = set()
        """Keys that are diverted and have something ready."""
        self.freed = False
        """Something may be handed out that could not be before: those who wait should look."""
        self.hidden = False
        """Nothing was handed out, because more has to be drawn first."""
        self.timer_at = NEVER
        """When the timer fires that was set for a key that may not go faster."""
        self._plain = rules.fairness is None and rules.policy == "strict"
        self._lineups: dict[tuple[int, ...] | None, Lineup] = {None: self._new_lineup()}
        """By the partitions of whoever takes from it; None: all of them. No partition is in two."""
        self._homes: list[Lineup] = [self._lineups[None]] * len(readers)
        """Of each partition, where what is ready is lined up. Nobody may take from there while it moves."""
        self._drawn: dict[tuple[int, int], int] = {}
        """By partition and priority, how many messages are drawn and were never handed out, if any."""
        self._readers = readers
        for reader in readers:
            reader.turns = self
            for run in reader.parked.values():
                self.park(run)

    def add_reader(self, reader: Reader) -> None:
        """A partition more: all is lined up anew by whoever takes next."""
        reader.turns = self
        self._lineups.clear()
        self._homes.append(self._new_lineup())

    # What is parked

    def park(self, run: Run) -> None:
        if run.until:
            self.hold(run, run.mask.bit_count())
        else:
            self._count(run, run.mask.bit_count())
            self.offer(run)

    def hold(self, run: Run, count: int) -> None:
        """A run waits: its key does, too."""
        keys = run.keys
        if keys is None:
            if self.keyed:
                self.unknown.append(run)
        elif self.ordered and keys[0]:
            self.chains.hold(keys[0], count)

    def release(self, run: Run, count: int) -> None:
        """Messages of a run neither wait nor are in flight any more."""
        keys = run.keys
        if keys is not None and keys[0] and self.ordered:
            self._line_up_next(keys[0], count)

    def offer(self, run: Run) -> None:
        """A run is ready."""
        keys = run.keys
        if keys is None:
            if self.keyed:
                self.unknown.append(run)
            else:
                self._add(run)
        elif keys[0] and self.ordered:
            if self.chains.add(keys[0], run):
                self._add(run)
            if keys[0] in self.diverted:
                self.strays.add(keys[0])
        else:
            self._add(run)

    def told(self, runs: list[Run]) -> None:
        """The keys of ready runs of one lane were found out."""
        if not self._plain:
            for run in runs:
                self.offer(run)
            return
        add = self.chains.add
        keyed = [(run.keys[0], run) for run in runs if run.keys is not None]
        self._homes[runs[0].partition].add_all([run for key, run in keyed if not key or add(key, run)])
        if self.diverted:
            self.strays.update(key for key, _ in keyed if key in self.diverted)

    def lost(self, run: Run, count: int) -> None:
        """Messages of a ready run are not to be handed out any more."""
        self._count(run, -count)
        keys = run.keys
        if keys is not None and keys[0] and self.ordered:
            self._line_up_next(keys[0], 0)

    def landed(self, run: Run, count: int) -> None:
        """Messages are in flight no more."""
        keys = run.keys
        if keys is None or not self.learned:
            return
        if self.flows is not None and self.flows.landed(keys[1], count):
            self._relist(keys[1])
        if self.ordered and keys[0]:
            head = self.chains.release(keys[0], count)
            if head is not None:
                self._line_up(keys[0], head)

    def seat(self, run: Run, now: int) -> None:
        """A run was in flight before turns began."""
        keys = run.keys
        assert keys is not None, "its keys were found out"
        count = run.mask.bit_count()
        if self.flows is not None:
            self.flows.seat(keys[1], count, now)
        if self.ordered and keys[0]:
            self.chains.hold(keys[0], count)

    def divert(self, key: int) -> None:
        """The messages of a key follow one that died."""
        if self.chains.runs(key):
            self.strays.add(key)

    def rejoin(self, key: int) -> None:
        self.strays.discard(key)
        self._line_up_next(key, 0)

    def stray_runs(self) -> list[Run]:
        """What is ready of diverted keys, in order."""
        keys, self.strays = self.strays, set()
        found = [run for key in keys for run in self.chains.runs(key)]
        return sorted(found, key=lambda run: (run.priority, run.at, run.start))

    def _line_up_next(self, key: int, count: int) -> None:
        head = self.chains.release(key, count)
        if head is not None:
            self._line_up(key, head)

    def _line_up(self, key: int, head: Run) -> None:
        self._add(head)
        self.freed = True
        if key in self.diverted:
            self.strays.add(key)

    def _add(self, run: Run) -> None:
        share = run.keys[1] if self.flows is not None and run.keys is not None else 0
        self._homes[run.partition].add(run, share)

    def _count(self, run: Run, count: int) -> None:
        if not run.attempt:
            place = run.partition, run.priority
            drawn = self._drawn.get(place, 0) + count
            if drawn > 0:
                self._drawn[place] = drawn
            else:
                self._drawn.pop(place, None)

    def _relist(self, share: int) -> None:
        self.freed = True
        for lineup in self._lineups.values():
            for level in lineup.levels.values():
                level.relist(share)

    # Whose it is

    def _new_lineup(self) -> Lineup:
        aged = self.flows is not None and self.rules.policy == "ageing"
        return Lineup(self._is_next, Shares(self.rules.weights), aged)

    def _lineup_for(self, only: tuple[int, ...] | None) -> Lineup:
        """Where those shall take from who have these partitions. What was lined up for others is not any more."""
        own = range(len(self._readers)) if only is None else only
        taken = {id(self._homes[number]) for number in own}
        self._lineups = {key: lineup for key, lineup in self._lineups.items() if id(lineup) not in taken}
        made = self._lineups[only] = self._new_lineup()
        for number in own:
            self._homes[number] = made
        for number in own:
            for run in self._readers[number].parked.values():
                if not run.until and self._may_go(run):
                    self._add(run)
        return made

    def _may_go(self, run: Run) -> bool:
        """Whether a ready run is to be lined up: its keys are known, and it is the first of its chain."""
        keys = run.keys
        if keys is None:
            return not self.keyed
        return not (self.ordered and keys[0]) or self.chains.is_head(keys[0], run)

    # What comes next

    def draw(self, limit: int, only: tuple[int, ...] | None = None) -> bool:
        """Take off the cursors what a lease of `limit` could be made of; whether any was. To be called until none is.

        A lane of which something is drawn, and nothing may go, is looked into further: whoever is free there goes
        before those of other lanes. Keys can take turns only if they are seen: with fairness keys everything is drawn,
        as far as that may go.
        """
        drew = False
        for reader in self._readers if only is None else [self._readers[number] for number in only]:
            partition = reader.partition
            if partition.visible > reader.consumed:
                levels = self._homes[partition.number].levels
                for cursor in reader.follow():
                    place = number, priority = partition.number, cursor.lane.priority
                    drawn = self._drawn.get(place, 0)
                    level = levels.get(priority)
                    if drawn >= limit and self.flows is None and level is not None and level.lined[number]:
                        continue
                    room = self._room(reader)
                    want = limit + _AT_ONCE if drawn < limit else 0
                    if room > 0 and self.flows is not None:
                        want = drawn + room
                    elif room > 0 and drawn >= limit:
                        want = drawn + min(room, FRAME_ROWS_MAX)
                    while drawn < want:
                        run = reader.draw(cursor, want - drawn)
                        if run is None:
                            break
                        reader.park(run)
                        drawn = self._drawn.get(place, 0)
                        drew = True
        return drew

    def _room(self, reader: Reader) -> int:
        """How many messages more of a partition may be looked at now; each may be a run of its own.

        Without fairness keys it is only looked further where nothing may go: a long line of one key is few runs, and
        is no reason to stop in front of the others.
        """
        room = LOOK_AHEAD_RUNS_MAX - len(reader.parked)
        return room if self.flows is None else min(room, LOOK_AHEAD_MAX - reader.ready_back - reader.waiting)

    def take(self, limit: int, deadline: int, now: int, only: tuple[int, ...] | None = None) -> list[Run]:
        """Lease the runs whose turn it is, of all partitions or of these only, up to `limit` messages."""
        lineup = self._lineups.get(only) or self._lineup_for(only)
        if self.flows is not None:
            for share in self.flows.resumed(now):
                self._relist(share)
        self.freed = self.hidden = False
        lineup.dried.clear()
        if limit == 1 and self._plain and (first := self._take_first(lineup, deadline)) is not None:
            return [first]
        runs: list[Run] = []
        while limit > 0:
            queue, most = (lineup.front(), limit) if self._plain else self._pick(lineup, now)
            if queue is None:
                break
            if lineup.dried and self._hide_more(lineup):
                self.hidden = not runs
                break
            run = self._hand_out(lineup, queue, min(limit, most), deadline, now)
            limit -= run.mask.bit_count()
            runs.append(run)
        return runs

    def _hide_more(self, lineup: Lineup) -> bool:
        """Whether a lane goes on of which nothing is lined up any more: what is there may go before the rest."""
        for number, priority in lineup.dried if self.flows is None else ():
            level, reader = lineup.levels.get(priority), self._readers[number]
            if level is not None and level.lined[number]:
                continue
            ahead = any(cursor.lane.priority == priority and cursor.is_ahead for cursor in reader.cursors)
            if ahead and self._room(reader) > 0:
                return True
        return False

    def _take_first(self, lineup: Lineup, deadline: int) -> Run | None:
        """By far the most common where keys are in order: a message that is the first of its key. None: ask further."""
        for priority in lineup.order:
            queue = lineup.levels[priority].queues[0]
            if queue.heap:
                _, start, partition, _, run = queue.heap[0]
                keys, reader = run.keys, self._readers[partition]
                if run.mask != 1 or run.start != start or run.until or reader.parked.get(start) is not run:
                    return None
                if keys is None or keys[0] in self.diverted or not self.chains.take_head(keys[0], run):
                    return None
                queue.pop()
                self._count(run, -1)
                return reader.take_parked(run, 1, deadline)
        return None

    def _pick(self, lineup: Lineup, now: int) -> tuple[Queue | None, int]:
        """From where the next messages come, and how many at most."""
        if self.rules.policy == "weighted":
            return self._weighted(lineup, now)
        if self.rules.policy == "ageing" and (overdue := self._overdue(lineup, now)) is not None:
            return overdue, MANY
        for priority in tuple(lineup.order):
            queue = self._first(lineup, priority, now)
            if queue is not None:
                return queue, MANY
        return None, 0

    def _weighted(self, lineup: Lineup, now: int) -> tuple[Queue | None, int]:
        """Deficit round robin over the named lanes; inside a lane the more urgent priority goes first."""
        shares = lineup.shares
        for _ in range(LANES_COUNT + 1):
            for priority in tuple(lineup.order):
                if lane_of(priority) == shares.lane and (queue := self._first(lineup, priority, now)) is not None:
                    return queue, shares.credit
            shares.pass_on()
        return None, 0

    def _overdue(self, lineup: Lineup, now: int) -> Queue | None:
        """Where the message lies that has waited longest, if that is longer than the age limit."""
        best: Queue | None = None
        for priority in tuple(lineup.order):
            queue = lineup.oldest(lineup.levels[priority], self._limit(now))
            if queue is not None and (best is None or queue.heap[0][0] < best.heap[0][0]):
                best = queue
        return best if best is not None and now - best.heap[0][0] >= self.rules.age_limit_ms else None

    def _first(self, lineup: Lineup, priority: int, now: int) -> Queue | None:
        return lineup.first(lineup.levels[priority], self._limit(now))

    def _limit(self, now: int) -> Callable[[int], bool] | None:
        flows = self.flows
        return None if flows is None else (lambda share: flows.is_limited(share, now))

    def _hand_out(self, lineup: Lineup, queue: Queue, most: int, deadline: int, now: int) -> Run:
        """Lease the first run of a queue, or as much of it as may go."""
        run = queue.pop()
        keys = run.keys
        chained = self.ordered and keys is not None and keys[0] != 0
        if self.flows is not None:
            most = min(most, self._turn_of(queue), self.flows.room(queue.share, now))
        bits = run.mask & -run.mask if chained else run.first(most)
        if not chained and run.mask & run.mask + 1:
            bits = _before(bits, run, queue)
        count = bits.bit_count()
        if not run.attempt:
            self._count(run, -count)
        taken = self._readers[run.partition].take_parked(run, bits, deadline)
        if chained:
            assert keys is not None
            self.chains.take(keys[0], count)
        if taken is not run:
            self.offer(run)
        if not self._plain:
            self._spend(lineup, queue, run.priority, count, now)
        return taken

    def _turn_of(self, queue: Queue) -> int:
        """How many more messages a key may give in its turn."""
        assert self.flows is not None
        if queue.credit <= 0:
            queue.credit = self.flows.weight(queue.share)
        return queue.credit

    def _spend(self, lineup: Lineup, queue: Queue, priority: int, count: int, now: int) -> None:
        if self.rules.policy == "weighted":
            lineup.shares.spend(count)
        if self.flows is not None:
            self.flows.start(queue.share, count, now)
            queue.credit -= count
            if queue.credit <= 0:
                lineup.levels[priority].pass_on(queue)

    # Whether what was lined up still stands

    def _stands(self, run: Run, start: int) -> bool:
        return run.start == start and not run.until and self._readers[run.partition].parked.get(start) is run

    def _is_next(self, entry: Entry) -> bool:
        run = entry[4]
        if run.start != entry[1] or run.until or self._readers[run.partition].parked.get(entry[1]) is not run:
            return False
        keys = run.keys
        if keys is None or not keys[0] or not self.ordered:
            return True
        return self.chains.is_head(keys[0], run) and keys[0] not in self.diverted


def _before(bits: int, run: Run, queue: Queue) -> int:
    """What of a run with holes goes before the run that fills a hole, if one is next."""
    if queue.heap:
        at, start, partition, _, _ = queue.heap[0]
        if (at, partition) == (run.at, run.partition) and run.start < start < run.stop:
            return bits & (1 << start - run.start) - 1
    return bits
