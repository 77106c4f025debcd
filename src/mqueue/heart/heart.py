"""The heart: decides every delivery. No I/O, no clock, no chance: time, tokens and jitter are arguments.

Whoever calls first lets time pass (`advance`). A verb decides and leaves what happened in `news`, for the log, what
died in `fallen`, for the dead-letter queue, and schedules whose time has come in `due`. All of them but `lease` change
the state only through the events they leave; a lease takes its runs while it finds them, and the laws prove that
folding its event gives the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from mqueue.heart.dedup import Claim
from mqueue.heart.group import Group, Lease
from mqueue.heart.members import hand_on, look_after
from mqueue.heart.runs import Failure, Run, each
from mqueue.heart.schedule import NEVER
from mqueue.heart.state import Occurrence, Pause, State, Waiting, Wake, Watch
from mqueue.heart.topic import Topic
from mqueue.heart.turns import Turns
from mqueue.model import events as ev
from mqueue.model.limits import DIVERTED_KEYS_MAX
from mqueue.model.settings import Settings
from mqueue.policy.retry import backoff_due, tick_up


class Fallen(Struct, frozen=True):
    """Messages that died. No group: they ended for everybody."""

    topic: Topic
    group: str
    partition: int
    start: int
    mask: int
    attempts: int
    reason: str
    failure: Failure


class Outcome(Struct, frozen=True):
    """What a settle call did: how many it settled, and (partition, offset) of what its token did not hold.

    `repeated`: so many of them were settled by the same call before.
    """

    settled: int
    lost: tuple[tuple[int, int], ...] = ()
    repeated: int = 0


class Heart:
    __slots__ = ("due", "fallen", "news", "state", "stirred")

    def __init__(self, state: State | None = None) -> None:
        self.state = state or State()
        self.news: list[ev.Event] = []
        self.fallen: list[Fallen] = []
        self.due: list[Occurrence] = []
        """Schedules whose time has come: for whoever publishes."""
        self.stirred: list[Topic] = []
        """Topics of which partitions have moved, or are to: whoever waits for them has to be told."""

    def happen(self, event: ev.Event) -> None:
        """It was decided: it changes the state, and it is news."""
        self.state.apply(event)
        self.news.append(event)

    @property
    def next_at(self) -> int:
        """Nothing happens by itself before this time."""
        return self.state.timers.next_at

    def advance(self, now: int) -> None:
        """Let time pass: leases run out, backoffs end, messages become due or expire."""
        timers = self.state.timers
        while (thing := timers.take(now)) is not None:
            if isinstance(thing, Lease):
                self._run_out(thing, now)
            elif isinstance(thing, Waiting):
                thing.group.readers[thing.run.partition].wake(thing.run)
            elif isinstance(thing, Occurrence):
                self.due.append(thing)
            elif isinstance(thing, Watch):
                look_after(self, thing.topic, thing.group, now)
            elif isinstance(thing, Pause):
                assert thing.group.turns is not None, "else it is not open"
                thing.group.turns.timer_at = NEVER
            else:
                self._wake(thing, now)

    def lease(
        self,
        group: Group,
        limit: int,
        deadline: int,
        consumer: str,
        token: bytes,
        now: int,
        only: tuple[int, ...] | None = None,
    ) -> Lease | None:
        """Hand out the next messages in order, of all partitions or of these only; None if there are none."""
        spans: tuple[ev.LeasedSpan, ...]
        turns = group.turns
        if (
            limit == 1 and turns is None and only is None and len(group.readers) == 1
        ):  # by far the most common: no loops
            run = group.readers[0].next(1, deadline)
            if run is None:
                return None
            runs: tuple[Run, ...] = (run,)
            count = 1
            spans = ((run.partition, run.start, run.stop, run.mask, run.attempt, run.priority, run.at),)
        else:
            found = (
                group.take(limit, deadline, only)
                if turns is None
                else self._in_turn(group, turns, limit, deadline, now, only)
            )
            if not found:
                return None
            runs = tuple(found)
            if limit == 1:
                run = found[0]
                count = 1
                spans = ((run.partition, run.start, run.stop, run.mask, run.attempt, run.priority, run.at),)
            else:
                count = sum([run.mask.bit_count() for run in runs])
                spans = tuple([(r.partition, r.start, r.stop, r.mask, r.attempt, r.priority, r.at) for r in runs])
        group.in_flight += count
        group.delivered += count
        group.heard_at = group.told_at = now
        lease = Lease(token, group, consumer, runs, deadline, deadline, count, count)
        state = self.state
        state.leases[token] = lease
        group.tokens.add(token)
        state.timers.set(deadline, lease)
        self.news.append(ev.Leased(now, group.topic, group.name, token, deadline, consumer, spans))
        return lease

    def _in_turn(
        self, group: Group, turns: Turns, limit: int, deadline: int, now: int, only: tuple[int, ...] | None
    ) -> list[Run]:
        """The runs whose turn it is. What has to follow a dead message of its key does so first."""
        if turns.strays:
            self._follow(group, turns.stray_runs(), now)
        runs = turns.take(limit, deadline, now, only)
        if turns.flows is not None and turns.flows.next_at < turns.timer_at:
            turns.timer_at = turns.flows.next_at
            self.state.timers.set(turns.timer_at, Pause(group, turns.timer_at))
        return runs

    def _follow(self, group: Group, runs: list[Run], now: int) -> None:
        """Ready messages of diverted keys die, in order."""
        if not runs:
            return
        topic = self.state.topics[group.topic]
        failure = Failure(now, now, "an earlier message of its key is dead", "")
        for run in runs:
            fallen = Fallen(topic, group.name, run.partition, run.start, run.mask, run.attempt, "diverted", failure)
            self.fallen.append(fallen)
        spans = tuple((run.partition, run.start, run.stop, run.mask, run.priority, run.at) for run in runs)
        self.happen(ev.Diverted(now, topic.id, group.name, (), spans))

    def ack_one(self, lease: Lease, run: Run, offset: int, now: int) -> bool:
        """Ack a message in the run it was handed out in; False if it is not there, and the long way has to tell why."""
        bit = 1 << offset - run.start
        if not run.mask & bit or not lease.open:
            return False
        group = lease.group
        group.acked += 1
        state = self.state
        state.let_go(lease, run, bit, 1)
        span = (run.partition, offset, offset + 1, 1)
        event = ev.Settled(now, group.topic, group.name, lease.token, "ack", (span,))
        state.recent.add(event)
        self.news.append(event)
        if group.crew is not None:
            hand_on(self, state.topics[group.topic], group, now)
        return True

    def settle(
        self,
        token: bytes,
        verb: str,
        spans: Iterable[ev.Span] | None,
        now: int,
        *,
        delay_ms: int | None = None,
        jitter: float = 0.0,
        error: str = "",
    ) -> Outcome:
        """ack, nack, reject or release what a lease holds: the spans given, or all of it."""
        lease = self.state.leases.get(token)
        held, repeated, lost = self._held(lease, token, verb, spans, now)
        settled = repeated
        if lease is not None and held:
            settled += sum(bits.bit_count() for _, bits in held)
            if verb in ("ack", "release"):
                given = tuple([(run.partition, run.start, run.stop, bits) for run, bits in held])
                self.happen(ev.Settled(now, lease.group.topic, lease.group.name, token, verb, given))
            else:
                self.fail(lease, verb, held, now, delay_ms, jitter, error)
            if lease.group.crew is not None:
                hand_on(self, self.state.topics[lease.group.topic], lease.group, now)
        return Outcome(settled, lost, repeated)

    def extend(self, token: bytes, spans: Iterable[ev.Span] | None, deadline: int, now: int) -> Outcome:
        """Move the deadline of what a lease holds: the spans given, or all of it."""
        lease = self.state.leases.get(token)
        held, _, lost = self._held(lease, token, "extend", spans, now)
        if lease is not None and held:
            given = tuple((run.partition, run.start, run.stop, bits) for run, bits in held)
            self.happen(ev.Extended(now, lease.group.topic, lease.group.name, token, deadline, given))
        return Outcome(sum(bits.bit_count() for _, bits in held), lost)

    def lease_again(self, over: bytes, partition: int, offset: int, deadline: int, token: bytes, now: int) -> bool:
        """Lease a message anew to who had it last, though that lease (`over`) has run out, or has given it up; False if
        the message is not ready any more, or somebody else has had it since."""
        lost = [event for event in self.state.recent.of(over) if _lets_go(event, partition, offset)]
        group = self.state.topics[lost[-1].topic].groups.get(lost[-1].group) if lost else None
        if group is None or group.crew is not None:
            return False
        run = group.readers[partition].holds(offset)
        if run is None or run.until or run.failure is None or run.failure.last_at != lost[-1].at:
            return False
        span = (partition, offset, offset + 1, 1, run.attempt + 1, run.priority, run.at)
        self.happen(ev.Leased(now, group.topic, group.name, token, deadline, run.failure.consumer, (span,)))
        return True

    def not_held(self, token: bytes, verb: str, spans: Iterable[ev.Span], now: int) -> set[tuple[int, int]]:
        """(partition, offset) of what a settle call would find lost."""
        return set(self._held(self.state.leases.get(token), token, verb, spans, now)[2])

    def find_claim(self, topic: Topic, key: bytes, now: int) -> Claim | None:
        """The message that an idempotency key stands for, if it still does."""
        claim = topic.dedup.find(key, topic.settings, now)
        if claim is not None and topic.settings.dedup == "until_acked" and self.done(topic, claim, now):
            return None
        return claim

    def done(self, topic: Topic, claim: Claim, now: int) -> bool:
        """Whether every group has settled a message."""
        leased = any(self.lease_of(group, claim.partition, claim.offset) for group in topic.groups.values())
        return topic.settled_by_all(claim, leased, now)

    def lease_of(self, group: Group, partition: int, offset: int) -> tuple[Lease, Run] | None:
        """Who holds a message. Walks the group's leases: for the rare call that names a message, not for a hot path."""
        for token in group.tokens:
            lease = self.state.leases[token]
            for run, _ in lease.find(partition, offset, 1):
                return lease, run
        return None

    def cancel(self, topic: Topic, partition: int, offset: int, priority: int, due: int, now: int) -> None:
        """End a scheduled message for everybody."""
        span = (partition, offset, offset + 1, 1, priority, due)
        self.happen(ev.Voided(now, topic.id, "cancelled", (span,)))

    def purge_ready(self, topic: Topic, group: Group, now: int) -> int:
        """End for everybody what a group has before it, ready or waiting; how many messages that were."""
        spans = tuple(group.unleased())
        if spans:
            self.happen(ev.Voided(now, topic.id, "cancelled", spans))
        return sum(span[3].bit_count() for span in spans)

    def redrive(self, topic: Topic, group: Group, spans: Iterable[ev.KeyedSpan], now: int) -> int:
        """Make dead messages ready again for one group; how many were. Only what the group has settled can be."""
        ready = tuple(span for span in spans if self._settled(topic, group, span, now))
        if ready:
            self.happen(ev.Redriven(now, topic.id, group.name, ready))
        return len(ready)

    def drop_oldest(self, topic: Topic, depth: int, now: int) -> None:
        """Cancel what has been visible longest and is not leased, until a topic is no fuller than `depth`. If the topic
        says so, that goes to the dead-letter queue."""
        while topic.filled > depth:
            group = self._slowest(topic, now)
            oldest = group.oldest(topic.filled - depth)
            if oldest is None:
                break
            if topic.settings.dlq_dropped:
                self._fall_for_all(topic, oldest[0], oldest[1], oldest[3], "dropped", now)
            self.happen(ev.Voided(now, topic.id, "cancelled", (oldest,)))

    def _slowest(self, topic: Topic, now: int) -> Group:
        """The group that has most before it; without groups, one that has everything before it."""
        if not topic.groups:
            if topic.nobody is None:
                topic.nobody = Group(topic.id, "", topic.partitions, topic.firsts, now)
            return topic.nobody
        if topic.settings.overflow == "drop_ready":
            return max(topic.groups.values(), key=lambda group: group.unheld)
        return max(topic.groups.values(), key=lambda group: (group.owed, group.unheld))

    def _held(
        self, lease: Lease | None, token: bytes, verb: str, spans: Iterable[ev.Span] | None, now: int
    ) -> tuple[list[tuple[Run, int]], int, tuple[tuple[int, int], ...]]:
        """What a lease holds of the spans; how many the same call settled before; (partition, offset) of the rest."""
        if spans is None:
            return ([(run, run.mask) for run in lease.runs if run.mask] if lease else []), 0, ()
        held: list[tuple[Run, int]] = []
        repeated = 0
        lost: list[tuple[int, int]] = []
        for partition, start, _, mask in spans:
            for run, bits in lease.find(partition, start, mask) if lease else ():
                held.append((run, bits))
                mask &= ~(bits << run.start - start if run.start >= start else bits >> start - run.start)
            if mask:
                before = self.state.recent.settled(token, verb, partition, start, mask, now)
                repeated += before.bit_count()
                lost += [(partition, offset) for offset in each(start, mask & ~before)]
        return held, repeated, tuple(lost)

    def _run_out(self, lease: Lease, now: int) -> None:
        """A lease's earliest deadline has come, unless it was extended meanwhile."""
        if lease.alarm > now:
            return  # an older timer; the one that counts is still to come
        if lease.keep_ms:
            group = lease.group
            self.happen(ev.Extended(now, group.topic, group.name, lease.token, now + lease.keep_ms, lease.spans()))
        over = [(run, run.mask) for run in lease.runs if run.mask and run.until <= now]
        if over:
            self.fail(lease, "expire", over, now, None, 0.0, "")
            if lease.group.crew is not None:
                hand_on(self, self.state.topics[lease.group.topic], lease.group, now)
        if lease.open:
            lease.until = lease.alarm = min(run.until for run in lease.runs if run.mask)
            self.state.timers.set(lease.alarm, lease)

    def fail(
        self,
        lease: Lease,
        verb: str,
        held: list[tuple[Run, int]],
        now: int,
        delay_ms: int | None,
        jitter: float,
        error: str,
    ) -> None:
        """Deliveries failed: back to the group, at once or later, or dead."""
        group = lease.group
        topic = self.state.topics[group.topic]
        reason = _REASONS[verb]
        verdicts: dict[tuple[str, int], list[ev.Span]] = {}
        for run, bits in held:
            dead = self._dying(topic, group, run, bits, verb)
            if dead:
                self._divert(topic, group, run, now)
                verdicts.setdefault(("dead", 0), []).append((run.partition, run.start, run.stop, dead))
                first_at = run.failure.first_at if run.failure else now
                failure = Failure(first_at, now, error or reason, lease.consumer)
                self.fallen.append(
                    Fallen(topic, group.name, run.partition, run.start, dead, run.attempt, reason, failure)
                )
            if bits != dead:
                due = 0 if verb != "nack" else _due(topic, run.attempt, now, delay_ms, jitter)
                verdicts.setdefault((verb, due), []).append((run.partition, run.start, run.stop, bits ^ dead))
        for (kind, due), spans in verdicts.items():
            cause = reason if kind != "nack" else ""
            event = ev.Settled(now, group.topic, group.name, lease.token, kind, tuple(spans), due, cause, error)
            self.happen(event)

    def _dying(self, topic: Topic, group: Group, run: Run, bits: int, verb: str) -> int:
        """Which of these deliveries were the last. What has ended for everybody does not die as well."""
        settings = topic.settings
        attempts_max = settings.attempts_max
        if verb != "reject":
            if attempts_max is None or run.attempt < attempts_max:
                return 0
            if settings.ordered and settings.on_failure != "skip" and self._goes_on(settings, group, run):
                return 0
        return bits & ~topic.partitions[run.partition].void.mask(run.start, run.stop)

    def _goes_on(self, settings: Settings, group: Group, run: Run) -> bool:
        """Whether a message of an ordered topic is tried again though it has failed too often.

        One whose key is not known yet is: the next time it will be.
        """
        if run.keys is None:
            return True
        key = run.keys[0]
        if settings.on_failure == "block":
            return key != 0
        return key != 0 and key not in group.diverted and len(group.diverted) >= DIVERTED_KEYS_MAX

    def _divert(self, topic: Topic, group: Group, run: Run, now: int) -> None:
        """A message died: if the topic says so, the later ones of its key follow."""
        if topic.settings.ordered and topic.settings.on_failure == "divert" and run.keys is not None:
            key = run.keys[0]
            if key and key not in group.diverted and len(group.diverted) < DIVERTED_KEYS_MAX:
                self.happen(ev.Diverted(now, topic.id, group.name, (key,)))

    def _wake(self, wake: Wake, now: int) -> None:
        topic, partition = wake.topic, wake.partition
        partition.wake_at = NEVER
        topic.ripen(now)
        lapsed = partition.lapse(now)
        if lapsed:
            if topic.settings.dlq_expired:
                self._fall_expired(topic, partition.number, lapsed, now)
            spans = tuple(
                (partition.number, start, start + mask.bit_length(), mask, p, at) for start, mask, p, at in lapsed
            )
            self.happen(ev.Voided(now, topic.id, "expired", spans))
        self.state.arm(topic, partition)

    def _fall_expired(self, topic: Topic, partition: int, lapsed: list[tuple[int, int, int, int]], now: int) -> None:
        """Expired messages that some group still had before it go to the dead-letter queue, once."""
        for start, mask, priority, at in lapsed:
            owed = 0 if topic.groups and at <= now else mask
            for group in topic.groups.values():
                owed |= group.owed_of(partition, start, mask, priority, at)
            if owed:
                self._fall_for_all(topic, partition, start, owed, "expired", now)

    def _fall_for_all(self, topic: Topic, partition: int, start: int, mask: int, reason: str, now: int) -> None:
        """Messages that end for everybody go to the dead-letter queue."""
        self.fallen.append(Fallen(topic, "", partition, start, mask, 0, reason, Failure(now, now, reason, "")))

    def _settled(self, topic: Topic, group: Group, span: ev.KeyedSpan, now: int) -> bool:
        """Whether a single message is there, visible, and neither owed to the group nor held by it."""
        number, offset, stop, _, priority, at = span
        partition = topic.partitions[number]
        reader = group.readers[number]
        return (
            partition.is_alive(offset)
            and offset not in partition.void
            and at <= now
            and reader.passed(priority, at, offset, stop) == stop
            and not reader.holds(offset)
            and not self.lease_of(group, number, offset)
        )


def _lets_go(event: ev.Settled, partition: int, offset: int) -> bool:
    """Whether a message came back to its group by this."""
    return event.verb in ("expire", "nack") and any(
        number == partition and start <= offset < stop and mask >> offset - start & 1
        for number, start, stop, mask in event.spans
    )


_REASONS = {"nack": "max_retries", "reject": "rejected", "expire": "visibility_timeout"}


def _due(topic: Topic, attempt: int, now: int, delay_ms: int | None, jitter: float) -> int:
    """When a failed message comes back; 0: at once, which is asked for by a delay of nothing."""
    if delay_ms is not None:
        return tick_up(now + delay_ms) if delay_ms else 0
    settings = topic.settings
    return backoff_due(attempt, now, settings.backoff_ms, settings.backoff_max_ms, jitter)
