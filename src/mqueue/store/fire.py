"""Publishing what a schedule says: its messages, and when it is due next, in one commit. So each occurrence happens
once, whatever crashes.

What keeps an occurrence from being published (nobody was there, the disk or the topic is full) makes it late. What is
late by more than a minute, or overtaken by the next, was missed; the schedule says what becomes of those. Of several
that are published as many are as the topic has room for; the others stay late.
"""

from __future__ import annotations

from mqueue.heart.topic import Topic
from mqueue.model import events as ev
from mqueue.model.errors import Error, QueueFull
from mqueue.model.limits import (
    SCHEDULE_AGAIN_MS,
    SCHEDULE_AT_ONCE_MAX,
    SCHEDULE_GRACE_MS,
    SCHEDULE_MISSED_MAX,
    TIME_MS_MAX,
)
from mqueue.model.message import Receipt
from mqueue.model.times import rfc3339
from mqueue.policy.calendar import Calendar
from mqueue.store.store import Store
from mqueue.wire.arrow import text
from mqueue.wire.rows import Headers, Rows

MISFIRES = ("skip", "once", "all")
SCHEDULE_HEADER = "mqueue-schedule"
OCCURRENCE_HEADER = "mqueue-occurrence"


def calendar_of(plan: ev.Planned) -> Calendar:
    return Calendar(plan.cron, plan.tz, plan.every_ms, plan.made_at)


def fire(store: Store, now: int) -> None:
    """Publish the occurrences whose time has come; what is more than a step has to wait for the next call."""
    due, store.heart.due = store.heart.due, []
    published = 0
    for one in due:
        if not one.open:
            continue
        if published >= SCHEDULE_AT_ONCE_MAX:
            store.state.timers.set(now, one)
            continue
        try:
            published += _fire(store, one.topic, one.topic.schedules[one.name], now)
        except Error:  # it cannot be taken now; nothing has changed
            store.state.timers.set(now + SCHEDULE_AGAIN_MS, one)
    store.flush()


def _fire(store: Store, topic: Topic, plan: ev.Planned, now: int) -> int:
    """Publish what one schedule says; how many messages these are."""
    late, promised = occurrences(plan, now), store.promised(topic)
    if len(late) > 1 and promised and topic.settings.max_depth is not None:
        # What is on its way cannot be dropped: it might be leased before the next ones are there, and they would go.
        raise QueueFull(f"{promised} messages are on their way to topic {topic.name!r}", retryable=True)
    times = late[: max(1, topic.room(promised))]
    receipts = publish(store, topic, plan, times, now) if times else []
    last = (times[-1], receipts[-1].id) if times else (0, 0)
    left = late[len(times) :]
    following = left[0] if left else calendar_of(plan).after(max(now, plan.next_at))
    store.heart.happen(ev.Fired(now, topic.id, plan.name, len(times), *last, following or 0))
    return len(times)


def occurrences(plan: ev.Planned, now: int) -> list[int]:
    """Which occurrences are published, now that the next one of a schedule has come."""
    dates = calendar_of(plan)
    if plan.misfire == "all":
        return dates.times(plan.next_at, now, SCHEDULE_MISSED_MAX)
    last = dates.last(plan.next_at, now)
    if plan.misfire == "skip" and now - last > SCHEDULE_GRACE_MS:
        return []
    return [last]


def publish(store: Store, topic: Topic, plan: ev.Planned, times: list[int], now: int) -> list[Receipt]:
    """The messages of some occurrences, if the topic takes them now."""
    check(store, topic, len(times), now)
    store.shed(topic, len(times), now)
    receipts = [store.append_rows(topic, rows_of(topic, plan, at, now), now)[0] for at in times]
    store.written.append(topic)
    return receipts


def check(store: Store, topic: Topic, count: int, now: int) -> None:
    """Raise if a topic does not take so many messages now."""
    store.check_disk()
    store.ids.check(count, now)
    store.check_room(topic, count)


def rows_of(topic: Topic, plan: ev.Planned, at: int, now: int) -> Rows:
    ttl_ms = topic.settings.default_ttl_ms if plan.ttl_ms is None else plan.ttl_ms
    return Rows(
        [plan.payload],
        key=None if plan.key is None else [plan.key],
        headers=[headers_of(plan, at)],
        priority=plan.priority,
        expires_at=0 if ttl_ms is None else min(now + ttl_ms, TIME_MS_MAX),
    )


def headers_of(plan: ev.Planned, at: int) -> Headers:
    """Name and time of an occurrence: together they are given to no other message."""
    return {
        **{header: text(value) for header, value in plan.headers},
        SCHEDULE_HEADER: plan.name,
        OCCURRENCE_HEADER: rfc3339(at),
    }
