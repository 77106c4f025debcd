"""Everything the heart remembers, and how each event changes it. State is what folding the journal gives.

Nothing is decided here: whoever raises an event has decided it. What only the passing of time does (a due message
becomes visible, a backoff is over) is no event; it follows from the times in the events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from mqueue.heart.crew import Crew
from mqueue.heart.follows import Follows
from mqueue.heart.group import Group, Lease
from mqueue.heart.partition import Partition, Stretch
from mqueue.heart.recent import Recent
from mqueue.heart.runs import Failure, Run
from mqueue.heart.staging import Ledger, Staging, veiled
from mqueue.heart.timers import Timers
from mqueue.heart.topic import Topic
from mqueue.model import events as ev
from mqueue.model.names import transaction_of


class Waiting(Struct, frozen=True):
    """A timer on a run that is to be ready again."""

    group: Group
    run: Run

    @property
    def open(self) -> bool:
        return self.run.until > 0 and self.group.readers[self.run.partition].is_parked(self.run)


class Wake(Struct, frozen=True):
    """A timer on a partition: something is due, or runs out."""

    topic: Topic
    partition: Partition

    @property
    def open(self) -> bool:
        return not self.topic.dropped


class Occurrence(Struct, frozen=True):
    """A timer on a schedule: its next time has come."""

    topic: Topic
    name: str
    due: int

    @property
    def open(self) -> bool:
        plan = self.topic.schedules.get(self.name)
        return plan is not None and plan.next_at == self.due and not self.topic.dropped


class Watch(Struct, frozen=True):
    """A timer on the members of a group: one may be dead, a move may take too long."""

    topic: Topic
    group: Group

    @property
    def open(self) -> bool:
        return not self.topic.dropped and self.topic.groups.get(self.group.name) is self.group


class Pause(Struct, frozen=True):
    """A timer on a group: a fairness key may go on."""

    group: Group
    at: int

    @property
    def open(self) -> bool:
        return self.group.turns is not None and self.group.turns.timer_at == self.at


class State:
    __slots__ = ("_appliers", "follows", "leases", "ledgers", "names", "recent", "spaces", "staged", "timers", "topics")

    def __init__(self) -> None:
        self.topics: dict[int, Topic] = {}
        self.names: dict[tuple[str, str], Topic] = {}
        self.spaces: dict[str, int] = {}
        """How many topics each namespace has."""
        self.ledgers: dict[str, Topic] = {}
        """Of each namespace, the topic that knows how its transactions ended."""
        self.staged: dict[str, dict[str, Topic]] = {}
        """Of each namespace, the transactions that are not over, and the topics that they are staged in."""
        self.leases: dict[bytes, Lease] = {}
        self.recent = Recent()
        self.follows = Follows()
        self.timers: Timers[Lease | Waiting | Wake | Occurrence | Watch | Pause] = Timers()
        self._appliers: dict[type, Callable[[Any], None]] = {
            ev.TopicMade: self._topic_made,
            ev.TopicSet: self._topic_set,
            ev.TopicDropped: self._topic_dropped,
            ev.GroupMade: self._group_made,
            ev.GroupDropped: self._group_dropped,
            ev.Sought: self._sought,
            ev.Leased: self._leased,
            ev.Settled: self.settled,
            ev.Extended: self._extended,
            ev.Voided: self._voided,
            ev.Purged: self._purged,
            ev.Rescheduled: self._rescheduled,
            ev.Redriven: self._redriven,
            ev.Duplicated: _nothing,
            ev.Trimmed: self._trimmed,
            ev.Heard: self._heard,
            ev.Followed: self.follows.add,
            ev.Pinned: self._pinned,
            ev.Unpinned: self._unpinned,
            ev.Staged: self._staged,
            ev.Moved: self._moved,
            ev.Concluded: self._concluded,
            ev.Chosen: self._chosen,
            ev.Forgotten: self._forgotten,
            ev.Planned: self._planned,
            ev.Fired: self._fired,
            ev.Unplanned: self._unplanned,
            ev.GroupAssigned: self._group_assigned,
            ev.MemberJoined: self._member_joined,
            ev.MemberLeft: self._member_left,
            ev.Rebalanced: self._rebalanced,
            ev.HandedOn: self._handed_on,
            ev.Diverted: self._diverted,
            ev.Rejoined: self._rejoined,
        }

    def apply(self, event: ev.Event) -> None:
        self._appliers[type(event)](event)

    def append(self, topic: Topic, number: int, stretches: list[Stretch], at: int) -> None:
        """A frame was appended. What was due before it has to lie before it in the lanes."""
        partition = topic.partitions[number]
        if at >= partition.schedule.next_at:
            topic.ripen(at)
        partition.append_stretches(stretches if topic.staging is None else veiled(stretches), at)
        self.arm(topic, partition)

    def arm(self, topic: Topic, partition: Partition) -> None:
        """See to it that a timer fires when the partition next changes by itself."""
        next_at = partition.next_at
        if next_at < partition.wake_at:
            partition.wake_at = next_at
            self.timers.set(next_at, Wake(topic, partition))

    def park(self, group: Group, run: Run) -> None:
        """Give a run back to its group, with a timer if it has to wait."""
        parked = group.give_back(run)
        if parked is not None and parked.until:
            self.timers.set(parked.until, Waiting(group, parked))

    def settled(self, event: ev.Settled) -> None:
        lease = self.leases[event.token]
        group = lease.group
        verb = event.verb
        for partition, start, _, mask in event.spans:
            for run, bits in lease.find(partition, start, mask):
                count = bits.bit_count()
                if verb == "ack":
                    group.acked += count
                elif verb == "dead":
                    group.dead += count
                else:
                    self.park(group, _returned(run, bits, event, lease.consumer))
                self.let_go(lease, run, bits, count)
        self.recent.add(event)

    def let_go(self, lease: Lease, run: Run, bits: int, count: int) -> None:
        """A lease holds some messages no more."""
        run.mask ^= bits
        group = lease.group
        group.in_flight -= count
        if group.crew is not None:
            group.crew.let_go(run.partition, count)
        if group.turns is not None:
            group.turns.landed(run, count)
        lease.open -= count
        if not lease.open:
            del self.leases[lease.token]
            group.tokens.discard(lease.token)
            self.timers.drop()

    def _leased(self, event: ev.Leased) -> None:
        group = self._group(event)
        runs = []
        for partition, start, stop, mask, attempt, priority, at in event.spans:
            reader = group.readers[partition]
            run = Run(partition, start, stop, mask, attempt, priority, at, event.deadline)
            parked = reader.take_out(start, mask, priority, at)
            if parked:
                run.failure = parked[0].failure
            runs.append(run)
            group.in_flight += run.count
            group.delivered += run.count
        group.heard_at = group.told_at = event.at
        count = sum(run.count for run in runs)
        lease = Lease(event.token, group, event.consumer, tuple(runs), event.deadline, event.deadline, count, count)
        self.leases[event.token] = lease
        group.tokens.add(event.token)
        self.timers.set(event.deadline, lease)

    def _extended(self, event: ev.Extended) -> None:
        lease = self.leases[event.token]
        for partition, start, _, mask in event.spans:
            for run, bits in lease.find(partition, start, mask):
                extended = run if bits == run.mask else lease.split(run, bits)
                extended.until = event.deadline
        lease.until = min(run.until for run in lease.runs if run.mask)
        if lease.until < lease.alarm:
            lease.alarm = lease.until
            self.timers.set(lease.alarm, lease)

    def _voided(self, event: ev.Voided) -> None:
        topic = self.topics[event.topic]
        for number, start, _, mask, priority, at in event.spans:
            for group in topic.groups.values():
                if at <= event.at:
                    group.end(number, start, mask, priority, at, event.cause)
                else:
                    group.miss(number, start, mask, event.cause)
            topic.partitions[number].end(start, mask, at, event.cause, event.at)

    def _purged(self, event: ev.Purged) -> None:
        topic = self.topics[event.topic]
        for partition, floor in zip(topic.partitions, event.floors, strict=True):
            for group in topic.groups.values():
                group.purge(partition.number, floor)
            partition.purge(floor)

    def _rescheduled(self, event: ev.Rescheduled) -> None:
        topic = self.topics[event.topic]
        partition = topic.partitions[event.partition]
        partition.reschedule(event.offset, event.priority, event.was, event.due)
        self.arm(topic, partition)

    def _redriven(self, event: ev.Redriven) -> None:
        group = self._group(event)
        for partition, start, stop, mask, priority, at in event.spans:
            below = max(0, group.readers[partition].start - start)
            counted = (mask >> below).bit_count()  # what is below the group's start was not counted any more
            dead = min(group.dead, counted)  # after a seek the counts may know it as acked
            group.dead -= dead
            group.acked -= counted - dead
            self.park(group, Run(partition, start, stop, mask, 0, priority, at, 0))

    def _diverted(self, event: ev.Diverted) -> None:
        group = self._group(event)
        for key in event.keys:
            group.diverted.add(key)
            if group.turns is not None:
                group.turns.divert(key)
        for partition, start, _, mask, priority, at in event.spans:
            group.readers[partition].take_out(start, mask, priority, at)
            group.dead += mask.bit_count()

    def _rejoined(self, event: ev.Rejoined) -> None:
        group = self._group(event)
        for key in event.keys:
            group.diverted.discard(key)
            if group.turns is not None:
                group.turns.rejoin(key)

    def _trimmed(self, event: ev.Trimmed) -> None:
        topic = self.topics[event.topic]
        topic.nobody = None
        for partition, floor in zip(topic.partitions, event.floors, strict=True):
            number, groups = partition.number, topic.groups.values()
            gaps = partition.keep(floor, _of(event.kept, number), _of(event.gone, number))
            if gaps:
                for group in groups:
                    group.trim(number, gaps)
                partition.drop(gaps)
                for group in groups:
                    group.readers[number].follow()

    def _heard(self, event: ev.Heard) -> None:
        group = self._group(event)
        group.heard_at = group.told_at = event.at

    def _pinned(self, event: ev.Pinned) -> None:
        self.topics[event.topic].pins[event.name] = event

    def _unpinned(self, event: ev.Unpinned) -> None:
        del self.topics[event.topic].pins[event.name]

    def _planned(self, event: ev.Planned) -> None:
        topic = self.topics[event.topic]
        topic.schedules[event.name] = event
        if event.next_at:
            self.timers.set(event.next_at, Occurrence(topic, event.name, event.next_at))

    def _fired(self, event: ev.Fired) -> None:
        plan = self.topics[event.topic].schedules[event.name]
        last = (event.last_at, event.last_id) if event.count else (plan.last_at, plan.last_id)
        count, (last_at, last_id) = plan.count + event.count, last
        self._planned(replace(plan, next_at=event.next_at, count=count, last_at=last_at, last_id=last_id))

    def _unplanned(self, event: ev.Unplanned) -> None:
        del self.topics[event.topic].schedules[event.name]

    def _staged(self, event: ev.Staged) -> None:
        self._staging(event).put(event)

    def _moved(self, event: ev.Moved) -> None:
        self._staging(event).moved = event.upto

    def _chosen(self, event: ev.Chosen) -> None:
        self._staging(event).choose(event.parts)

    def _concluded(self, event: ev.Concluded) -> None:
        self._ledger(event).add(event)

    def _forgotten(self, event: ev.Forgotten) -> None:
        self._ledger(event).lines.pop(event.transaction, None)

    def _topic_made(self, event: ev.TopicMade) -> None:
        self.enlist(Topic(event.topic, event.namespace, event.name, event.settings, event.at))

    def enlist(self, topic: Topic) -> None:
        """A topic can be found from now on; by its name only if users may name it."""
        self.topics[topic.id] = topic
        space = topic.namespace
        if topic.ledger is not None:
            self.ledgers[space] = topic
        elif topic.staging is not None:
            self.staged.setdefault(space, {})[transaction_of(topic.name)] = topic
        else:
            self.names[space, topic.name] = topic
            self.spaces[space] = self.spaces.get(space, 0) + 1

    def _topic_set(self, event: ev.TopicSet) -> None:
        topic = self.topics[event.topic]
        topic.configure(event.settings, event.at)
        for partition in topic.partitions:
            self.arm(topic, partition)

    def _topic_dropped(self, event: ev.TopicDropped) -> None:
        topic = self.topics.pop(event.topic)
        topic.dropped = True
        if topic.staging is not None:
            self._unstage(topic)
            return
        del self.names[topic.namespace, topic.name]
        self.spaces[topic.namespace] -= 1
        if not self.spaces[topic.namespace]:
            del self.spaces[topic.namespace]
        for group in topic.groups.values():
            self._forget(group)
        topic.groups.clear()
        self.follows.drop(topic.id)
        self.timers.sweep()

    def _unstage(self, topic: Topic) -> None:
        staged = self.staged[topic.namespace]
        del staged[transaction_of(topic.name)]
        if not staged:
            del self.staged[topic.namespace]

    def _group_made(self, event: ev.GroupMade) -> None:
        topic = self.topics[event.topic]
        group = topic.groups[event.group] = Group(event.topic, event.group, topic.partitions, event.starts, event.at)
        group.arrange(topic.settings)

    def _group_dropped(self, event: ev.GroupDropped) -> None:
        topic = self.topics[event.topic]
        group = topic.groups.pop(event.group)
        if group.crew is not None:
            topic.generation = max(topic.generation, group.crew.generation)
        self._forget(group)
        self.timers.sweep()

    def _sought(self, event: ev.Sought) -> None:
        group = self._group(event)
        self._forget_leases(group)
        group.place(self.topics[event.topic].partitions, event.starts)

    def _forget(self, group: Group) -> None:
        """A group is gone: nothing waits for it any more."""
        self._forget_leases(group)
        for reader in group.readers:
            reader.parked.clear()

    def _forget_leases(self, group: Group) -> None:
        for token in group.tokens:
            self.leases.pop(token).open = 0
            self.timers.drop()
        group.tokens.clear()
        if group.crew is not None:
            group.crew.freed()

    def watch(self, topic: Topic, group: Group) -> None:
        """See to it that a timer fires when the members of a group have to be looked after."""
        crew = group.crew
        if crew is not None and (next_at := crew.next_at) < crew.watch_at:
            crew.watch_at = next_at
            self.timers.set(next_at, Watch(topic, group))

    def held(self, group: Group) -> list[tuple[int, int]]:
        """What is leased of a group: (partition, count), piece by piece."""
        leases = [self.leases[token] for token in group.tokens]
        return [(run.partition, run.mask.bit_count()) for lease in leases for run in lease.runs if run.mask]

    def _group_assigned(self, event: ev.GroupAssigned) -> None:
        topic = self.topics[event.topic]
        self._group(event).crew = Crew(len(topic.partitions), topic.generation)

    def _member_joined(self, event: ev.MemberJoined) -> None:
        self._crew(event).joined(event)
        self.watch(self.topics[event.topic], self._group(event))

    def _member_left(self, event: ev.MemberLeft) -> None:
        self._crew(event).left(event)

    def _rebalanced(self, event: ev.Rebalanced) -> None:
        group, crew = self._group(event), self._crew(event)
        crew.plan(event)
        if crew.moving:
            crew.count(self.held(group))
            self.watch(self.topics[event.topic], group)

    def _handed_on(self, event: ev.HandedOn) -> None:
        self._crew(event).handed_on(event)

    def _crew(self, event: Any) -> Crew:
        crew = self._group(event).crew
        assert crew is not None, "only an assigned group has members"
        return crew

    def _ledger(self, event: ev.Event) -> Ledger:
        ledger = self.topics[event.topic].ledger
        assert ledger is not None, "only a ledger is told how transactions end"
        return ledger

    def _staging(self, event: ev.Event) -> Staging:
        staging = self.topics[event.topic].staging
        assert staging is not None, "only transactions stage"
        return staging

    def _group(self, event: Any) -> Group:
        group: Group = self.topics[event.topic].groups[event.group]
        return group


def _returned(run: Run, bits: int, event: ev.Settled, consumer: str) -> Run:
    """A piece of a lease as it comes back: what failed knows so, a released delivery was none."""
    piece = run.part(bits)
    piece.until = event.due
    if event.verb == "release":
        piece.attempt -= 1
    else:
        first_at = run.failure.first_at if run.failure else event.at
        piece.failure = Failure(first_at, event.at, event.error or event.reason, consumer)
    return piece


def _of(spans: tuple[ev.Span, ...], partition: int) -> list[tuple[int, int]]:
    """(start, mask) of the spans of one partition."""
    return [(start, mask) for number, start, _, mask in spans if number == partition]


def _nothing(event: ev.Event) -> None:
    """A duplicate changes nothing; the trace shows it."""
