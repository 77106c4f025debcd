"""Schedules, as users see them: messages that are published again and again, by a cron expression or every so often.

A schedule belongs to a topic and goes with it. Names are those of one topic; without one it is named after what it
says, so that the same said twice is one schedule. How occurrences are published is in `store/fire.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from mqueue.broker.engine import Engine
from mqueue.broker.intake import check_headers, one
from mqueue.heart.topic import Topic
from mqueue.model import events as ev
from mqueue.model.errors import BadSetting, BadTime, Conflict, NotFound, QueueFull, TooLarge
from mqueue.model.limits import SCHEDULE_BYTES_MAX
from mqueue.model.message import Draft, Receipt
from mqueue.model.names import check_name
from mqueue.model.priority import NORMAL
from mqueue.model.times import Duration, duration_ms, to_datetime
from mqueue.policy import calendar
from mqueue.store.fire import MISFIRES, calendar_of, check, headers_of, publish
from mqueue.store.place import check_priority
from mqueue.wire.arrow import text


class Schedule(Struct, frozen=True):
    """What is published to `topic`, and when: by `cron` in the time zone `tz`, or `every` so many seconds.

    `next_at` None: it is paused, or never comes again. `count`: how many occurrences were published; `last_at`,
    `last_id`: which was the last of them, and as which message. `ttl` is in seconds.
    """

    name: str
    topic: str
    cron: str | None
    every: float | None
    tz: str
    misfire: str
    paused: bool
    next_at: datetime | None
    last_at: datetime | None
    last_id: int | None
    count: int
    made_at: datetime
    payload: bytes
    key: bytes | None = None
    headers: Mapping[str, str | bytes] = {}
    priority: int = NORMAL
    ttl: float | None = None


class Schedules:
    """The schedules of a topic, or of all topics of a namespace: these can be listed."""

    def __init__(self, engine: Engine, namespace: str, topic: str | None) -> None:
        self._engine = engine
        self._namespace = namespace
        self._topic = topic if topic is None else check_name(topic, "topic")

    def add(
        self,
        payload: Any,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str = "UTC",
        name: str | None = None,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        priority: int | str | None = None,
        ttl: Duration | None = None,
        misfire: str = "once",
    ) -> Schedule:
        """Publish `payload` whenever `cron` says, or `every` so often. Conflict if another of that name is there.

        `misfire`: of what was missed the last one is published ("once"), none ("skip"), or each ("all", the last 100).
        """
        dates = dates_of(cron, every, tz)
        draft = Draft(payload, key=key, headers=headers, priority=priority)
        ttl_ms, misfire = ttl_of(ttl), misfire_of(misfire)
        with self._engine.lock:
            now = self._engine.tick()
            topic = self._engine.draft_topic(self._namespace, self._named, now)
            plan = self._plan(topic, dates, name, draft, ttl_ms, misfire, now)
            known = topic.schedules.get(plan.name)
            if known is not None:
                if _said(known) != _said(plan):
                    raise Conflict(
                        f"schedule {plan.name!r} of topic {topic.name!r} is there already, and says something else",
                        code="schedule_exists",
                    )
                return _shown(topic, known)
            self._check_count()
            topic = self._engine.topic(self._namespace, topic.name, now)
            self._engine.store.happen(replace(plan, topic=topic.id), now)
            self._engine.wake(topic)  # those who wait have to wake up earlier
            return _shown(topic, topic.schedules[plan.name])

    def all(self) -> list[Schedule]:
        """By topic, then by name."""
        with self._engine.lock:
            self._engine.tick()
            return self._look()

    def get(self, name: str) -> Schedule:
        with self._engine.lock:
            self._engine.tick()
            return _shown(*self._known(name))

    def pause(self, name: str) -> Schedule:
        """Publish nothing until `resume`. What would have come meanwhile does not count as missed."""
        return self.change(name, paused=True)

    def resume(self, name: str) -> Schedule:
        """Go on with the next occurrence."""
        return self.change(name, paused=False)

    def change(
        self,
        name: str,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str | None = None,
        misfire: str | None = None,
        paused: bool | None = None,
    ) -> Schedule:
        """Give a schedule other times, or another rule for what was missed, pause or resume it; the rest stays."""
        if misfire is not None:
            misfire_of(misfire)
        with self._engine.lock:
            now = self._engine.tick()
            topic, plan = self._known(name)
            changed = replace(
                _changed(plan, cron, every, tz, misfire), paused=plan.paused if paused is None else paused
            )
            if changed != plan:
                next_at = 0 if changed.paused else _next(changed, now)
                self._engine.store.happen(replace(changed, at=now, next_at=next_at), now)
                self._engine.wake(topic)
            return _shown(topic, topic.schedules[name])

    def delete(self, name: str) -> None:
        """What was published already stays."""
        with self._engine.lock:
            now = self._engine.tick()
            topic, plan = self._known(name)
            self._engine.store.happen(ev.Unplanned(now, topic.id, plan.name), now)

    def run(self, name: str) -> Receipt:
        """Publish an occurrence now, besides those that come by themselves."""
        with self._engine.lock:
            now = self._engine.tick()
            topic, plan = self._known(name)
            check(self._engine.store, topic, 1, now)
            self._engine.quotas.admit(self._namespace, 1, now)
            receipt = publish(self._engine.store, topic, plan, [now], now)[0]
            self._engine.store.happen(ev.Fired(now, topic.id, plan.name, 1, now, receipt.id, plan.next_at), now)
            self._engine.wake_written()
            return receipt

    # Inside

    def _look(self) -> list[Schedule]:
        """Call it with the lock held."""
        return [_shown(topic, plan) for topic in self._topics() for _, plan in sorted(topic.schedules.items())]

    @property
    def _named(self) -> str:
        if self._topic is None:
            raise BadSetting("no topic is named: schedules are added to a topic, and found by topic and name")
        return self._topic

    def _topics(self) -> list[Topic]:
        if self._topic is not None:
            return [self._engine.known_topic(self._namespace, self._topic)]
        names = self._engine.store.state.names
        return [names[place] for place in sorted(place for place in names if place[0] == self._namespace)]

    def _known(self, name: str) -> tuple[Topic, ev.Planned]:
        topic = self._engine.known_topic(self._namespace, self._named)
        plan = topic.schedules.get(check_name(name, "schedule"))
        if plan is None:
            there = ", ".join(sorted(topic.schedules)[:10]) or "none"
            raise NotFound(f"schedule {name!r} is not there on topic {topic.name!r}; there are: {there}")
        return topic, plan

    def _check_count(self) -> None:
        most = self._engine.store.limits.schedules_max
        topics = self._engine.store.state.topics.values()
        if sum(len(topic.schedules) for topic in topics if topic.namespace == self._namespace) >= most:
            raise QueueFull(
                f"namespace {self._namespace!r} has {most} schedules, as many as allowed", code="schedules_full"
            )

    def _plan(
        self,
        topic: Topic,
        dates: calendar.Calendar,
        name: str | None,
        draft: Draft,
        ttl_ms: int | None,
        misfire: str,
        now: int,
    ) -> ev.Planned:
        limits = self._engine.store.limits
        payload, extras = one(draft, topic.settings, limits, now)
        check_payload(payload)
        priority = extras.get("priority", NORMAL)
        check_priority(topic, priority)
        plan = ev.Planned(
            now,
            topic.id,
            "",
            dates.cron,
            dates.tz,
            dates.every_ms,
            misfire,
            payload,
            extras.get("key"),
            priority,
            _as_bytes(extras.get("headers") or {}),
            ttl_ms,
            now,
            0,
        )
        plan = replace(plan, name=_name_of(plan) if name is None else check_name(name, "schedule"))
        check_headers(headers_of(plan, now), limits)
        return replace(plan, next_at=_next(plan, now))


def dates_of(cron: Any, every: Duration | None, tz: str) -> calendar.Calendar:
    """What was typed, checked."""
    if (cron is None) == (every is None):
        raise BadTime("a schedule takes cron or every, one of them", code="bad_cron")
    dates = calendar.Calendar(every_ms=0 if every is None else duration_ms(every, "every"), tz=tz)
    if cron is not None:
        if not isinstance(cron, str) or not cron.strip():
            raise BadTime(f"cron {cron!r:.80}; it takes text such as '0 9 * * 1-5'", code="bad_cron")
        dates = replace(dates, cron=" ".join(cron.split()))
    calendar.zone(tz)
    calendar.check(dates)
    return dates


def misfire_of(misfire: str) -> str:
    if misfire not in MISFIRES:
        raise BadSetting(f"misfire is {misfire!r:.80}; it takes one of {', '.join(MISFIRES)}")
    return misfire


def check_payload(payload: bytes) -> None:
    if len(payload) > SCHEDULE_BYTES_MAX:
        raise TooLarge(
            f"payload of {len(payload)} bytes; {SCHEDULE_BYTES_MAX} are allowed for a schedule",
            code="payload_too_large",
        )


def ttl_of(ttl: Duration | None) -> int | None:
    if ttl is None:
        return None
    ttl_ms = duration_ms(ttl, "ttl")
    if not ttl_ms:
        raise BadTime(f"ttl {ttl!r:.80} would expire each message before it could be delivered; it takes more than 0")
    return ttl_ms


def _changed(
    plan: ev.Planned, cron: str | None, every: Duration | None, tz: str | None, misfire: str | None
) -> ev.Planned:
    if cron is not None or every is not None or tz is not None:
        same = cron is None and every is None
        kept = plan.cron or None if same else cron
        lasting = plan.every_ms / 1000 if same and not plan.cron else every
        dates = dates_of(kept, lasting, plan.tz if tz is None else tz)
        plan = replace(plan, cron=dates.cron, tz=dates.tz, every_ms=dates.every_ms)
    return plan if misfire is None else replace(plan, misfire=misfire)


def _next(plan: ev.Planned, now: int) -> int:
    following = calendar_of(plan).after(now)
    if following is None:
        raise BadTime(f"cron {plan.cron!r}: it does not come again before the year 9999 ends", code="bad_cron")
    return following


def _as_bytes(headers: Mapping[str, str | bytes]) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, value.encode() if isinstance(value, str) else value) for name, value in headers.items())


def _said(plan: ev.Planned) -> tuple[Any, ...]:
    """What makes a schedule the same as another."""
    times = plan.cron, plan.tz, plan.every_ms, plan.misfire
    return *times, plan.payload, plan.key, plan.priority, frozenset(plan.headers), plan.ttl_ms


def _name_of(plan: ev.Planned) -> str:
    said = repr((plan.cron, plan.tz, plan.every_ms, plan.payload, plan.key)).encode()
    return hashlib.blake2b(said, digest_size=6).hexdigest()


def _shown(topic: Topic, plan: ev.Planned) -> Schedule:
    return Schedule(
        plan.name,
        topic.name,
        plan.cron or None,
        plan.every_ms / 1000 if plan.every_ms else None,
        plan.tz,
        plan.misfire,
        plan.paused,
        to_datetime(plan.next_at) if plan.next_at else None,
        to_datetime(plan.last_at) if plan.count else None,
        plan.last_id if plan.count else None,
        plan.count,
        to_datetime(plan.made_at),
        plan.payload,
        plan.key,
        {name: text(value) for name, value in plan.headers},
        plan.priority,
        None if plan.ttl_ms is None else plan.ttl_ms / 1000,
    )
