"""The switchboard: bugs to plant in the real code, one at a time, so that we know what our checkers are worth.

Each is patched in by a test and taken out again; nothing of this is in the shipped code. A bug names where to look for
it and which checker has to find it there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest

from mqueue.heart import heart as heart_module
from mqueue.heart import state as state_module
from mqueue.heart.dedup import Dedup
from mqueue.heart.group import Group
from mqueue.heart.heart import Heart, Outcome
from mqueue.heart.marks import Marks
from mqueue.heart.partition import Partition
from mqueue.heart.reader import Reader
from mqueue.heart.recent import Recent
from mqueue.heart.runs import each
from mqueue.heart.state import State
from mqueue.log import told
from mqueue.log.memory import MemoryLog
from mqueue.model import events as ev
from mqueue.model.errors import Conflict
from mqueue.model.ident import EPOCH_MS, IdSource
from mqueue.model.settings import Settings
from mqueue.policy.quota import Quotas
from mqueue.policy.retry import tick_up
from mqueue.store import bury, place, recover, retain
from mqueue.store import store as store_module
from mqueue.store.store import Store
from mqueue.store.tokens import Tokens
from mqueue.wire.rows import Rows

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


@dataclass(frozen=True)
class Bug:
    name: str
    plant: Plant
    where: str
    """A scene of the workloads, `model` (the state machine), `walks` (the same, where retention is busy) or `ids`."""
    caught_by: str


BUGS: list[Bug] = []


def bug(where: str, caught_by: str) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        BUGS.append(Bug(plant.__name__, plant, where, caught_by))
        return plant

    return add


def around(patch: Patch, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Put `wrapper(real, *args)` in place of a function or method."""
    real = getattr(owner, name)
    patch.setattr(owner, name, lambda *args, **kw: wrapper(real, *args, **kw))


# Leases and tokens


@bug("work", "I5 fence")
def token_not_compared(patch: Patch) -> None:
    def settle(real: Any, self: Heart, token: bytes, verb: str, spans: Any, now: int, **kw: Any) -> Outcome:
        spans = None if spans is None else list(spans)
        for lease in self.state.leases.values() if token not in self.state.leases else ():
            if any(lease.find(number, start, mask) for number, start, _, mask in spans or ()):
                token = lease.token
                break
        outcome: Outcome = real(self, token, verb, spans, now, **kw)
        return outcome

    around(patch, Heart, "settle", settle)


@bug("work", "I4 lease")
def lease_half_as_long(patch: Patch) -> None:
    def lease(
        real: Any, self: Heart, group: Any, limit: int, deadline: int, who: str, token: bytes, now: int, *rest: Any
    ) -> Any:
        return real(self, group, limit, now + (deadline - now) // 2, who, token, now, *rest)

    around(patch, Heart, "lease", lease)


@bug("work", "I5 fence")
def tokens_do_not_rise(patch: Patch) -> None:
    numbers = count(2**100, -1)
    patch.setattr(Tokens, "take", lambda self: next(numbers).to_bytes(16, "big"))


@bug("work", "I1 lost")
def lease_never_runs_out(patch: Patch) -> None:
    patch.setattr(Heart, "_run_out", lambda self, lease, now: None)


@bug("work", "I4 lease")
def extend_is_answered_and_forgotten(patch: Patch) -> None:
    patch.setattr(State, "_extended", lambda self, event: None)


@bug("partitions", "I4 lease")
def extend_forgets_all_but_the_first_run(patch: Patch) -> None:
    def extended(real: Any, self: State, event: ev.Extended) -> None:
        real(self, ev.Extended(event.at, event.topic, event.group, event.token, event.deadline, event.spans[:1]))

    around(patch, State, "_extended", extended)


@bug("admin", "I13 stale")
def seek_keeps_old_tokens(patch: Patch) -> None:
    def sought(self: State, event: ev.Sought) -> None:
        topic = self.topics[event.topic]
        topic.groups[event.group].place(topic.partitions, event.starts)

    patch.setattr(State, "_sought", sought)


# Settling


@bug("work", "I3 ack")
def ack_forgotten_once_in_ten(patch: Patch) -> None:
    numbers = count(1)

    def ack_one(real: Any, self: Heart, *args: Any) -> bool:
        return next(numbers) % 10 == 0 or real(self, *args)

    around(patch, Heart, "ack_one", ack_one)


@bug("work", "I3 ack")
def ack_gives_back(patch: Patch) -> None:
    numbers = count(1)

    def settle(real: Any, self: Heart, token: bytes, verb: str, *args: Any, **kw: Any) -> Outcome:
        verb = "release" if verb == "ack" and next(numbers) % 10 == 0 else verb
        outcome: Outcome = real(self, token, verb, *args, **kw)
        return outcome

    around(patch, Heart, "settle", settle)


@bug("work", "I17 conservation")
def ack_counted_twice(patch: Patch) -> None:
    def ack_one(real: Any, self: Heart, lease: Any, *args: Any) -> bool:
        lease.group.acked += 1
        return bool(real(self, lease, *args))

    around(patch, Heart, "ack_one", ack_one)


@bug("work", "I9 attempts")
def release_counts_the_attempt(patch: Patch) -> None:
    def returned(real: Any, run: Any, bits: int, event: ev.Settled, consumer: str) -> Any:
        piece = real(run, bits, event, consumer)
        piece.attempt = run.attempt
        return piece

    around(patch, state_module, "_returned", returned)


@bug("work", "I9 attempts")
def backoff_missing(patch: Patch) -> None:
    patch.setattr(heart_module, "backoff_due", lambda attempt, now, *rest: tick_up(now))


@bug("work", "I9 attempts")
def nack_ignores_the_delay_given(patch: Patch) -> None:
    def due(real: Any, topic: Any, attempt: int, now: int, delay_ms: int | None, jitter: float) -> int:
        return int(real(topic, attempt, now, None if delay_ms is None else delay_ms // 2, jitter))

    around(patch, heart_module, "_due", due)


@bug("work", "I9 attempts")
def dead_one_attempt_late(patch: Patch) -> None:
    late = property(lambda self: None if self.max_retries is None else self.max_retries + 2)
    patch.setattr(Settings, "attempts_max", late)


@bug("work", "I10 dead")
def dead_one_attempt_early(patch: Patch) -> None:
    early = property(lambda self: None if self.max_retries is None else self.max_retries)
    patch.setattr(Settings, "attempts_max", early)


@bug("work", "I1 lost")
def waiting_never_wakes(patch: Patch) -> None:
    patch.setattr(Reader, "wake", lambda self, run: None)


@bug("model", "model")
def repeated_settle_not_remembered(patch: Patch) -> None:
    patch.setattr(Recent, "settled", lambda *args: 0)


# Order


@bug("work", "I6 priority")
def fifo_instead_of_priority(patch: Patch) -> None:
    def append_stretches(real: Any, self: Partition, stretches: Any, at: int) -> None:
        real(self, [(start, stop, 50, due, expires) for start, stop, _, due, expires in stretches], at)

    around(patch, Partition, "append_stretches", append_stretches)


@bug("model", "model")
def cursor_steps_past_a_run_that_grows(patch: Patch) -> None:
    def advance(real: Any, self: Reader, cursor: Any) -> int:
        index = int(real(self, cursor))
        if index < 0 and cursor.lane.stops:
            cursor.number, cursor.offset = len(cursor.lane.stops), 0
        return index

    around(patch, Reader, "_advance", advance)


@bug("model", "model")
def given_back_loses_its_place(patch: Patch) -> None:
    def park(real: Any, self: Reader, run: Any) -> None:
        run.at += 1_000_000
        real(self, run)

    around(patch, Reader, "park", park)


@bug("partitions", "I7 order")
def keys_go_astray(patch: Patch) -> None:
    numbers = count()
    patch.setattr(store_module, "partition_of", lambda key, partitions: next(numbers) % partitions)


@bug("work", "I20 bytes")
def sorting_a_batch_mixes_up_payloads(patch: Patch) -> None:
    def take(real: Any, self: Rows, order: Any) -> Rows:
        rows: Rows = real(self, order)
        rows.payload.reverse()
        return rows

    around(patch, Rows, "take", take)


# Time


@bug("work", "I8 early")
def delay_halved(patch: Patch) -> None:
    def append_stretches(real: Any, self: Partition, stretches: Any, at: int) -> None:
        halved = [(a, b, p, at + (due - at) // 2 if due > at else due, x) for a, b, p, due, x in stretches]
        real(self, halved, at)

    around(patch, Partition, "append_stretches", append_stretches)


@bug("admin", "I8 early")
def reschedule_is_answered_and_forgotten(patch: Patch) -> None:
    patch.setattr(State, "_rescheduled", lambda self, event: None)


@bug("ttl", "I8 early")
def nothing_expires(patch: Patch) -> None:
    def lapse(self: Partition, now: int) -> list[Any]:
        self.expiry.take(now)
        return []

    patch.setattr(Partition, "lapse", lapse)


@bug("model", "model")
def expiry_forgotten_for_a_later_group(patch: Patch) -> None:
    def voided(real: Any, self: State, event: ev.Voided) -> None:
        if self.topics[event.topic].groups or event.cause != "expired":
            real(self, event)

    around(patch, State, "_voided", voided)


@bug("model", "model")
def purge_forgets_what_is_scheduled(patch: Patch) -> None:
    def purge(real: Any, self: Partition, floor: int) -> None:
        kept = [o for entry in self.schedule.entries() for a, b in self.still_due(entry) for o in range(a, b)]
        real(self, floor)
        void = {offset for start, mask in self.void.spans() for offset in each(start, mask)}
        self.void = Marks()
        for offset in void - set(kept):
            self.void.add(offset, 1)
        self.scheduled += len(kept)

    around(patch, Partition, "purge", purge)


# Idempotency, quota, depth, ids


@bug("work", "I11 idempotent")
def dedup_off(patch: Patch) -> None:
    patch.setattr(Dedup, "find", lambda self, *args: None)


@bug("work", "I11 idempotent")
def dedup_window_too_short(patch: Patch) -> None:
    def find(real: Any, self: Dedup, key: bytes, settings: Settings, now: int) -> Any:
        return real(self, key, settings, now + settings.dedup_window_ms // 2)

    around(patch, Dedup, "find", find)


@bug("work", "I11 idempotent")
def conflict_ignored(patch: Patch) -> None:
    def recognise(real: Any, rows: Rows, find: Any) -> Any:
        try:
            return real(rows, find)
        except Conflict:
            return place.Known({}, {}, list(range(len(rows))))

    around(patch, store_module, "recognise", recognise)


@bug("quota", "I12 quota")
def quota_admits_two_percent_more(patch: Patch) -> None:
    def refilled(real: Any, self: Quotas, namespace: str, limit: int, now: int) -> tuple[int, int]:
        left, at = real(self, namespace, limit, now)
        return left + left // 50, at

    around(patch, Quotas, "_refilled", refilled)


@bug("quota", "I12 quota")
def quota_counts_refused_calls(patch: Patch) -> None:
    def admit(real: Any, self: Quotas, namespace: str, number: int, now: int) -> None:
        before = self._refilled(namespace, self._limits[namespace], now)
        try:
            real(self, namespace, number, now)
        except Exception:
            self._buckets[namespace] = (0, before[1])
            raise

    around(patch, Quotas, "admit", admit)


@bug("refuse", "depth")
def depth_not_checked(patch: Patch) -> None:
    patch.setattr(Store, "make_room", lambda self, topic, number, now: None)


@bug("model", "model")
def drop_oldest_drops_the_newest(patch: Patch) -> None:
    def oldest(self: Group, number: int) -> Any:
        ahead = [(at, r.partition.number, b - 1, p) for r in self.readers for a, b, p, at in r.ahead()]
        free = [one for one in ahead if one[2] not in self.readers[one[1]].partition.void]
        if not free:
            return None
        at, partition, offset, priority = max(free)
        return partition, offset, offset + 1, 1, priority, at

    patch.setattr(Group, "oldest", oldest)


@bug("ids", "I19 ids")
def id_repeats_when_the_clock_steps_back(patch: Patch) -> None:
    def turn(real: Any, self: IdSource, number: int, now: int) -> int:
        self._open(now - EPOCH_MS, 0)
        return int(real(self, number, now))

    around(patch, IdSource, "_turn", turn)


@bug("ids", "I19 ids")
def ids_of_a_frame_cross_a_millisecond(patch: Patch) -> None:
    def take(self: IdSource, number: int, now: int) -> int:
        first = self._next if now == self._now else self._turn(1, now)
        self._next = first + number
        return first

    patch.setattr(IdSource, "take", take)


@bug("crowd", "I19 ids")
def ids_run_into_the_next_node(patch: Patch) -> None:
    ids_of_a_frame_cross_a_millisecond(patch)


# Dead letters


@bug("work", "I10 dead")
def dead_letter_loses_its_headers(patch: Patch) -> None:
    def copy(real: Any, rows: Rows, *args: Any) -> None:
        real(rows, *args)
        assert rows.headers is not None
        rows.headers[-1] = {name: value for name, value in (rows.headers[-1] or {}).items() if name.startswith("x-")}

    around(patch, bury, "_copy", copy)


@bug("work", "I10 dead")
def dead_letter_is_lost_sometimes(patch: Patch) -> None:
    numbers = count(1)

    def bury_(real: Any, self: Store, now: int) -> None:
        if next(numbers) % 3 == 0:
            self.heart.fallen = []
        real(self, now)

    around(patch, Store, "_bury", bury_)


@bug("admin", "I3 ack")
def redrive_goes_to_every_group(patch: Patch) -> None:
    def redriven(real: Any, self: State, event: ev.Redriven) -> None:
        for name in self.topics[event.topic].groups:
            real(self, ev.Redriven(event.at, event.topic, name, event.spans))

    around(patch, State, "_redriven", redriven)


# Log and fold


@bug("work", "fold")
def fold_forgets_releases(patch: Patch) -> None:
    def fold(real: Any, state: State, entries: Any) -> State:
        kept = (e for e in entries if not (isinstance(e, ev.Settled) and e.verb == "release"))
        folded: State = real(state, kept)
        return folded

    around(patch, recover, "fold", fold)


@bug("work", "fold")
def fold_forgets_claims(patch: Patch) -> None:
    patch.setattr(told, "claims_of", lambda frame, rows: ())


@bug("work", "I15 trace")
def journal_loses_an_event_now_and_then(patch: Patch) -> None:
    numbers = count(1)

    def record(real: Any, self: MemoryLog, events: list[ev.Event]) -> None:
        real(self, [e for e in events if not isinstance(e, ev.Leased) or next(numbers) % 20])

    around(patch, MemoryLog, "record", record)


@bug("model", "model")
def checkpoint_forgets_the_cursors(patch: Patch) -> None:
    patch.setattr(Reader, "places", lambda self: [])


@bug("model", "model")
def retention_ignores_what_is_unread(patch: Patch) -> None:
    patch.setattr(retain, "unread", lambda partition, groups: partition.next)


@bug("work", "I14 replay")
def replay_skips_the_end_of_a_frame(patch: Patch) -> None:
    numbers = count(1)

    def frames(real: Any, self: MemoryLog, *args: Any) -> Any:
        for frame in real(self, *args):
            if next(numbers) % 5:
                yield frame

    around(patch, MemoryLog, "frames", frames)
