"""Managing groups, what is scheduled, and the cursors that hold back retention."""

from __future__ import annotations

from typing import Annotated

import typer

from mqueue.cli import shapes
from mqueue.cli.session import Session
from mqueue.cli.verb import MANAGE, Id, Topic, Yes, below, confirm, verb
from mqueue.cli.verbs.look import GROUP_COLUMNS, Limit

Name = Annotated[str, typer.Argument(help="The group.", show_default=False, metavar="GROUP")]
Start = Annotated[str, typer.Option("--start", help="earliest, latest, an offset, or a time.")]

MEMBER_COLUMNS = ("member", "partitions", "revoked", "lag", "generation", "consumer", "joined_at", "heard_at")
LAG_COLUMNS = ("partition", "member", "moving_to", "lag", "ready", "waiting", "leased", "end")
HISTORY_COLUMNS = ("number", "at", "reason", "members", "moved", "seconds", "paused_seconds")
SCHEDULED_COLUMNS = ("id", "deliver_at", "priority", "key", "payload")


def add(app: typer.Typer) -> None:
    inner = below(app, "groups", MANAGE, "List the groups of a topic with their numbers; look at, make and move them.")
    verb(inner, "list")(list_groups)
    verb(inner, "describe")(describe)
    verb(inner, "members")(members)
    verb(inner, "offsets")(offsets)
    verb(inner, "create")(create)
    verb(inner, "reset")(reset)
    verb(inner, "delete")(delete)
    verb(app, "seek", MANAGE)(seek)
    inner = below(app, "scheduled", MANAGE, "List what is scheduled, soonest first; cancel and move it.")
    verb(inner, "list")(scheduled)
    verb(inner, "cancel")(cancel)
    verb(inner, "move")(move)


def list_groups(session: Session, topic: Topic) -> None:
    """List the groups of a topic with their numbers."""
    found = shapes.stats(session.queue.stats(topic))["groups"].values()
    session.printer.rows(GROUP_COLUMNS, found)


def describe(session: Session, topic: Topic, group: Name) -> None:
    """Show a group: its numbers, its members, what is to be done in each partition, the last rebalances."""
    view = shapes.members(session.queue.members(topic, group=group))
    record = shapes.group(group, session.queue.stats(topic).groups[group])
    if not session.printer.for_people:
        session.printer.one({**record, **view})
        return
    session.printer.one(record)
    for title, columns in (("members", MEMBER_COLUMNS), ("partitions", LAG_COLUMNS), ("history", HISTORY_COLUMNS)):
        if view[title]:
            print(f"\n{title}")
            session.printer.rows(columns, view[title])


def members(session: Session, topic: Topic, group: Name) -> None:
    """List the members of an assigned group, and which partitions each of them has."""
    session.printer.rows(MEMBER_COLUMNS, shapes.members(session.queue.members(topic, group=group))["members"])


def offsets(session: Session, topic: Topic, group: Name) -> None:
    """List the partitions of a topic: who has each, and what a group has still to do there."""
    session.printer.rows(LAG_COLUMNS, shapes.members(session.queue.members(topic, group=group))["partitions"])


def reset(
    session: Session,
    topic: Topic,
    group: Name,
    to: Annotated[str, typer.Option("--to", help="earliest, latest, an offset, or a time.")],
    yes: Yes = False,
) -> None:
    """Move a group to another place of the log, as `seek` does. What it holds is lost to it."""
    confirm(f"Move group {group} of {topic} to {to}?", yes)
    session.queue.seek(topic, group=group, to=position(to))
    _say(session, f"group {group} of {topic} goes on from {to}")


def create(
    session: Session,
    topic: Topic,
    group: Name,
    start: Start = "earliest",
    assigned: Annotated[bool, typer.Option("--assigned", help="Each partition is for one member.")] = False,
) -> None:
    """Make a group. One that is not made so begins, on first use, at the earliest message."""
    session.queue.create_group(topic, group, start=position(start), assigned=assigned)
    _say(session, f"created group {group} of {topic}")


def delete(session: Session, topic: Topic, group: Name, yes: Yes = False) -> None:
    """Delete a group, and with it what it knows of its messages."""
    confirm(f"Delete group {group} of {topic}?", yes)
    session.queue.delete_group(topic, group)
    _say(session, f"deleted group {group} of {topic}")


def seek(
    session: Session,
    topic: Topic,
    to: Annotated[str, typer.Argument(help="earliest, latest, an offset, or a time.", show_default=False)],
    group: Annotated[str, typer.Option("--group", "-g", help="The group.")] = "default",
) -> None:
    """Move a group to another place of the log. What it holds is lost to it."""
    session.queue.seek(topic, group=group, to=position(to))
    _say(session, f"group {group} of {topic} goes on from {to}")


def scheduled(session: Session, topic: Topic, limit: Limit = 100) -> None:
    """List what is scheduled, soonest first."""
    session.printer.rows(SCHEDULED_COLUMNS, [shapes.message(m) for m in session.queue.scheduled(topic, limit)])


def cancel(session: Session, id: Id) -> None:
    """End a scheduled message before its time comes."""
    session.queue.cancel(id)
    _say(session, f"cancelled {id}")


def move(
    session: Session,
    id: Id,
    deliver_at: Annotated[str | None, typer.Option("--deliver-at", help="A time (RFC 3339, UTC).")] = None,
    delay: Annotated[str | None, typer.Option("--delay", help="So long from now.")] = None,
) -> None:
    """Give a scheduled message another time."""
    session.queue.reschedule(id, deliver_at=deliver_at, delay=delay)
    _say(session, f"moved {id}")


def position(text: str) -> int | str:
    """Digits are an offset, everything else a time or a word for one."""
    return int(text) if text.isascii() and text.isdigit() else text


def _say(session: Session, sentence: str) -> None:
    if session.printer.for_people:
        print(sentence)
