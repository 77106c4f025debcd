"""The walk of a delivery: lease → messages → settle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, TypeVar

from mqueue.broker.commits import WAITS, committed
from mqueue.broker.engine import Engine
from mqueue.broker.envelope import Envelope
from mqueue.heart.group import Lease
from mqueue.heart.heart import Outcome
from mqueue.heart.runs import Run, segments
from mqueue.heart.topic import Topic
from mqueue.model.errors import BadSetting, BadTime, Corrupt, LeaseLost, Refused, Unavailable
from mqueue.model.events import Span
from mqueue.model.limits import ERROR_TEXT_MAX, RECEIVE_LIMIT_MAX, TIME_MS_MAX, VISIBILITY_MS_MAX, WAIT_MS_MAX
from mqueue.model.times import Duration, duration_ms
from mqueue.store.aside import set_aside
from mqueue.store.order import due_of
from mqueue.wire.frame import Frame

M = TypeVar("M")

MODES = ("at_least_once", "at_most_once")


class TopicDesk:
    """Where the messages of one topic of an embedded broker are handed out and settled."""

    __slots__ = ("engine", "name", "namespace", "topic")

    def __init__(self, engine: Engine, topic: Topic) -> None:
        self.engine = engine
        self.topic = topic
        self.namespace = topic.namespace
        self.name = topic.name

    def messages(self, lease: Lease, kind: Callable[..., M]) -> list[M]:
        """The messages of a lease, in delivery order. What turns out to be damaged is not among them."""
        try:
            return self._messages(lease, kind)
        except Corrupt:
            return self._messages(lease, kind) if self.set_aside(lease) else []
        except Unavailable:
            if not self.set_aside(lease):
                raise
            return self._messages(lease, kind)

    def set_aside(self, lease: Lease) -> bool:
        """Take out of a lease what cannot be read; whether anything is left."""
        left = set_aside(self.engine.store, self.topic, lease, self.engine.clock.now())
        self.engine.wake(self.topic)  # somebody may have to look again
        return left

    def _messages(self, lease: Lease, kind: Callable[..., M]) -> list[M]:
        log = self.engine.store.log
        topic = self.topic.id
        runs = lease.runs
        run = runs[0]
        if run.mask == 1 and len(runs) == 1:
            frame = log.frame(topic, run.partition, run.start)
            if frame is None:
                raise _missing(run, run.start)
            row = run.start - frame.base
            return [kind(self, lease, run, frame, row, frame.rows.payload[row])]
        found: list[M] = []
        for run in runs:
            for frame, rows in self.pieces(run):
                payloads = frame.rows.payload[rows.start : rows.stop]
                found += map(kind, repeat(self), repeat(lease), repeat(run), repeat(frame), rows, payloads)
        assert len(found) == lease.count, "every leased message is handed out"
        return found

    def pieces(self, run: Run) -> Iterator[tuple[Frame, range]]:
        """The frames that a run lies in, with the rows of each, neighbours together."""
        log = self.engine.store.log
        for start, stop in segments(run.start, run.mask):
            while start < stop:
                frame = log.frame(self.topic.id, run.partition, start)
                if frame is None:
                    raise _missing(run, start)
                end = min(stop, frame.stop)
                yield frame, range(start - frame.base, end - frame.base)
                start = end

    def ack(self, message: Envelope) -> None:
        engine = self.engine
        store = engine.store
        with engine.lock:
            now = engine.tick()
            offset = message._frame.base + message._row
            lease = message._lease
            done = store.heart.ack_one(lease, message._run, offset, now)
            group = lease.group
            if engine.waiters and (
                group.in_flight == self.topic.settings.in_flight_max - 1
                or (group.turns is not None and group.turns.freed)
            ):
                engine.wake(self.topic)  # the group is no longer at its limit, or a key is free
            if store.heart.stirred:
                engine.wake_written()
            if len(store.heart.news) >= store.log.lag:
                store.flush()
        if done:
            message._settled = True
        else:
            self.settle("ack", message)

    def settle(self, verb: str, message: Envelope, *, wait: Duration | None = None, error: object = None) -> None:
        offset = message._frame.base + message._row
        span = (message._run.partition, offset, offset + 1, 1)
        outcome = self.settle_spans(message._lease, verb, (span,), wait, error)
        if outcome.lost:
            raise LeaseLost(lost_sentence(verb, [message.id]), lost=(message.id,))
        if verb != "extend":
            message._settled = True

    def settle_async(
        self, verb: str, message: Envelope, *, wait: Duration | None = None, error: object = None
    ) -> Awaitable[None]:
        try:
            if verb == "ack":
                self.ack(message)
            else:
                self.settle(verb, message, wait=wait, error=error)
        except BaseException:
            WAITS.open.clear()  # whoever is told of a failure waits for nothing
            raise
        return committed()

    def settle_spans(
        self, lease: Lease, verb: str, spans: Sequence[Span] | None, wait: Duration | None = None, error: object = None
    ) -> Outcome:
        """Settle some of a lease, or all of it."""
        engine = self.engine
        wait_ms = None if wait is None else duration_ms(wait, "delay")
        with engine.lock:
            now = engine.tick()
            return self.settle_now(lease.token, verb, spans, wait_ms, error_text(error), now)

    def settle_now(
        self, token: bytes, verb: str, spans: Sequence[Span] | None, wait_ms: int | None, error: str, now: int
    ) -> Outcome:
        """The same, with the lock held."""
        engine = self.engine
        store = engine.store
        check_delay(wait_ms, now)
        if verb == "extend":
            outcome = store.extend(token, spans, now + check_visibility(wait_ms or 0), now)
            engine.wake(self.topic)  # it may end sooner now
            return outcome
        lease = store.state.leases.get(token)
        capped = lease is not None and lease.group.in_flight >= self.topic.settings.in_flight_max
        outcome = store.settle(token, verb, spans, now, delay_ms=wait_ms, error=error)
        if outcome.repeated:
            engine.confirm()
        freed = lease is not None and lease.group.turns is not None and lease.group.turns.freed
        if verb != "ack" or capped or freed:
            engine.wake(self.topic)
        engine.wake_written()
        return outcome

    def due(self, frame: Frame, row: int) -> int:
        """When a message is or was due."""
        return due_of(self.topic, frame, row)


def let_go(answer: object) -> None:
    """Messages that were leased and cannot be handed out any more: they are given back with the next call."""
    found: list[Any] = answer if isinstance(answer, list) else [answer]
    for one in found:
        lease = getattr(one, "_lease", None)
        if isinstance(lease, Lease) and lease.open:
            one._desk.engine.abandoned.append(lease)


async def safely(found: M) -> M:
    """Wait until what was found may be handed out. Who is cancelled meanwhile gives it back."""
    try:
        await committed()
    except BaseException:
        let_go(found)
        raise
    return found


def leases_of(messages: Iterable[Any]) -> list[Lease]:
    """The leases that messages of an embedded broker came under."""
    return list({id(message._lease): message._lease for message in messages}.values())


def _missing(run: Run, offset: int) -> Corrupt:
    """Only after a part of the log was lost: what is leased is in the log."""
    return Corrupt(f"the message at {run.partition}/{offset} is not in the log")


def spans_of(chosen: Sequence[Envelope]) -> tuple[Span, ...]:
    """What some messages of one lease cover, run by run."""
    masks: dict[int, tuple[Run, int]] = {}
    for message in chosen:
        run = message._run
        bit = 1 << message._frame.base + message._row - run.start
        known = masks.get(id(run))
        masks[id(run)] = (run, bit if known is None else known[1] | bit)
    return tuple((run.partition, run.start, run.stop, mask) for run, mask in masks.values())


def lost_ids(outcome: Outcome, chosen: Sequence[Envelope]) -> tuple[int, ...]:
    lost = set(outcome.lost)
    return tuple(message.id for message in chosen if (message.partition, message.offset) in lost)


def error_text(error: object) -> str:
    """An error as it is kept: its kind and its words."""
    if error is None:
        return ""
    shown = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)
    return shown[:ERROR_TEXT_MAX].encode("utf-8", "replace").decode()  # names of files may hold what UTF-8 cannot


def check_visibility(lasting: int) -> int:
    if not 0 < lasting <= VISIBILITY_MS_MAX:
        raise BadTime(f"visibility of {lasting} ms; it takes more than 0 and at most {VISIBILITY_MS_MAX} ms")
    return lasting


def check_delay(wait_ms: int | None, now: int) -> None:
    if wait_ms is not None and now + wait_ms > TIME_MS_MAX:
        raise BadTime(f"a delay of {wait_ms} ms ends after the year 9999, the last there is")


def visibility_ms(visibility: Duration) -> int:
    return check_visibility(duration_ms(visibility, "visibility"))


def check_receive(limit: int, mode: str) -> None:
    if type(limit) is not int or not 1 <= limit <= RECEIVE_LIMIT_MAX:
        raise Refused(f"limit {limit!r:.80}; it takes 1 to {RECEIVE_LIMIT_MAX}", code="bad_limit")
    if mode not in MODES:
        raise BadSetting(f"mode {mode!r:.80}; it takes one of {', '.join(MODES)}")


def wait_ms(wait: Duration | None) -> int:
    lasting = 0 if wait is None else duration_ms(wait, "wait")
    if lasting > WAIT_MS_MAX:
        raise BadTime(f"wait {wait!r:.80}; at most {WAIT_MS_MAX // 1000}s are allowed")
    return lasting


def lost_sentence(verb: str, ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ids[:5])) + (" …" if len(ids) > 5 else "")
    return f"cannot {verb} {len(ids)} message(s) that this lease no longer holds: {shown}"
