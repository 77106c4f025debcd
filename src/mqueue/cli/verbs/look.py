"""Looking without touching: what comes next, what became of a message, how many there are."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from mqueue.cli import exits, shapes, timeline
from mqueue.cli.session import Session
from mqueue.cli.verb import USE, Group, Id, Topic, verb

Limit = Annotated[int, typer.Option("--limit", "-l", min=1, max=10_000, help="At most so many.")]

MESSAGE_COLUMNS = ("id", "priority", "attempt", "published_at", "key", "payload")
STATS_COLUMNS = ("topic", "depth", "ready", "waiting", "leased", "scheduled", "acked", "dead", "oldest_ready_seconds")
GROUP_COLUMNS = ("group", "depth", "ready", "waiting", "leased", "acked", "dead", "delivered", "oldest_ready_seconds")


def add(app: typer.Typer) -> None:
    verb(app, "peek", USE)(peek)
    verb(app, "trace", USE)(trace)
    verb(app, "explain", USE)(explain)
    verb(app, "stats", USE)(stats)


def peek(session: Session, topic: Topic, limit: Limit = 10, group: Group = "default") -> None:
    """Show what comes next for a group, without taking it."""
    found = [shapes.message(m) for m in session.queue.peek(topic, limit, group=group)]
    session.printer.rows(MESSAGE_COLUMNS, found)
    if not found:
        raise typer.Exit(exits.NOTHING)


def trace(session: Session, id: Id) -> None:
    """Show the life of a message, event by event."""
    found = session.queue.trace(id)
    kept = timeline.retained_until(found, session.queue.settings(found.topic))
    if session.printer.for_people:
        timeline.show(timeline.of_trace(found, kept))
    else:
        session.printer.one(shapes.trace(found) | {"retained_until": shapes.time(kept)})


def explain(session: Session, id: Id, group: Group = "default") -> None:
    """Say why a message is not being delivered right now."""
    found = session.queue.explain(id, group=group)
    if session.printer.for_people:
        timeline.show(timeline.of_explanation(found))
    else:
        session.printer.one(shapes.explanation(found))


def stats(
    session: Session,
    topics: Annotated[list[str] | None, typer.Argument(help="Topics; none: all.", metavar="[TOPIC]…")] = None,
) -> None:
    """Count messages by state, of topics or of all there are."""
    named = topics or session.queue.topics()
    found = [shapes.stats(session.queue.stats(name)) for name in named]
    if session.printer.for_people and topics and len(topics) == 1:
        show_stats(session, found[0])
    else:
        session.printer.rows(STATS_COLUMNS, found)


def show_stats(session: Session, numbers: dict[str, Any]) -> None:
    """The numbers of one topic, and then of its groups."""
    session.printer.one({name: value for name, value in numbers.items() if name != "groups"})
    if numbers["groups"]:
        print()
        session.printer.rows(GROUP_COLUMNS, numbers["groups"].values())
