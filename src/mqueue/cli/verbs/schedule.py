"""Schedules: messages that are published again and again, by the calendar."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from mqueue.cli import shapes
from mqueue.cli.drafts import headers_of
from mqueue.cli.session import Session
from mqueue.cli.verb import MANAGE, Topic, Yes, below, confirm, verb
from mqueue.cli.verbs.produce import RECEIPT_COLUMNS, priority_of

COLUMNS = ("topic", "name", "cron", "every", "tz", "next_at", "last_at", "count", "paused")

Name = Annotated[str, typer.Argument(help="The schedule.", show_default=False)]
Zone = Annotated[str, typer.Option("--tz", help="A time zone: UTC, Europe/Berlin.")]


def add(app: typer.Typer) -> None:
    inner = below(
        app, "schedule", MANAGE, "Messages that repeat by the calendar: list, add, change, pause, delete them."
    )
    verb(inner, "list")(list_schedules)
    verb(inner, "add")(add_schedule)
    verb(inner, "change")(change)
    verb(inner, "show")(show)
    verb(inner, "pause")(pause)
    verb(inner, "resume")(resume)
    verb(inner, "delete")(delete)
    verb(inner, "run-now")(run_now)


def list_schedules(
    session: Session,
    topic: Annotated[str | None, typer.Argument(help="The topic; none: all of them.", show_default=False)] = None,
) -> None:
    """List schedules, by topic and name."""
    session.printer.rows(COLUMNS, map(shapes.schedule, session.queue.schedules(topic).all()))


def add_schedule(
    session: Session,
    when: Annotated[
        str, typer.Argument(help="A cron expression, or how often: '0 9 * * 1-5', @daily, 15m.", show_default=False)
    ],
    topic: Topic,
    payload: Annotated[str, typer.Argument(help="What to publish.", show_default=False)],
    tz: Zone = "UTC",
    name: Annotated[str | None, typer.Option("--name", help="Its name; none: one is made from what it says.")] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key: decides the partition.")] = None,
    header: Annotated[list[str] | None, typer.Option("--header", "-H", help="name=value; may be repeated.")] = None,
    priority: Annotated[
        str | None, typer.Option("--priority", "-p", help="critical, high, normal, low, background, or a number.")
    ] = None,
    ttl: Annotated[str | None, typer.Option("--ttl", help="Each expires after so long.")] = None,
    misfire: Annotated[
        str, typer.Option("--misfire", help="What was missed: once (the last), skip, all (the last 100).")
    ] = "once",
) -> None:
    """Publish a message again and again. The same said twice is one schedule."""
    cron, every = _times(when)
    made = session.queue.schedules(topic).add(
        os.fsencode(payload),
        cron=cron,
        every=every,
        tz=tz,
        name=name,
        key=key,
        headers=headers_of(header or []),
        priority=priority_of(priority),
        ttl=ttl,
        misfire=misfire,
    )
    session.printer.one(shapes.schedule(made))


def change(
    session: Session,
    topic: Topic,
    name: Name,
    when: Annotated[str | None, typer.Option("--when", help="A cron expression, or how often.")] = None,
    tz: Annotated[str | None, typer.Option("--tz", help="A time zone: UTC, Europe/Berlin.")] = None,
    misfire: Annotated[
        str | None, typer.Option("--misfire", help="What was missed: once (the last), skip, all (the last 100).")
    ] = None,
) -> None:
    """Give a schedule other times, or another rule for what was missed. Its message and its count stay."""
    if when is None and tz is None and misfire is None:
        raise typer.BadParameter("give at least one of them", param_hint="--when, --tz, --misfire")
    cron, every = (None, None) if when is None else _times(when)
    changed = session.queue.schedules(topic).change(name, cron=cron, every=every, tz=tz, misfire=misfire)
    session.printer.one(shapes.schedule(changed))


def show(session: Session, topic: Topic, name: Name) -> None:
    """Show a schedule, with its message."""
    session.printer.one(shapes.schedule(session.queue.schedules(topic).get(name)))


def pause(session: Session, topic: Topic, name: Name) -> None:
    """Publish nothing until it is resumed."""
    session.printer.one(shapes.schedule(session.queue.schedules(topic).pause(name)))


def resume(session: Session, topic: Topic, name: Name) -> None:
    """Go on with the next occurrence."""
    session.printer.one(shapes.schedule(session.queue.schedules(topic).resume(name)))


def delete(session: Session, topic: Topic, name: Name, yes: Yes = False) -> None:
    """Delete a schedule. What was published already stays."""
    confirm(f"Delete schedule {name} of {topic}?", yes)
    session.queue.schedules(topic).delete(name)
    if session.printer.for_people:
        print(f"deleted schedule {name} of {topic}")


def run_now(session: Session, topic: Topic, name: Name) -> None:
    """Publish an occurrence now, besides those that come by themselves."""
    session.printer.rows(RECEIPT_COLUMNS, [shapes.receipt(session.queue.schedules(topic).run(name))])


def _times(when: str) -> tuple[str | None, str | None]:
    """A cron expression, or how often."""
    return (when, None) if when.startswith("@") or " " in when.strip() else (None, when)
