"""The dead: look at them, bring them back, be rid of them."""

from __future__ import annotations

from typing import Annotated

import typer
from msgspec import to_builtins

from mqueue.cli import shapes
from mqueue.cli.session import Session
from mqueue.cli.verb import MANAGE, Topic, below, verb
from mqueue.cli.verbs.look import Limit

ERROR_COLUMNS = ("fingerprint", "count", "reason", "error", "transient", "last_at")
DEAD_COLUMNS = ("id", "group", "attempts", "reason", "error", "payload")

Filter = Annotated[
    str | None, typer.Option("--filter", "-F", help="Only those that match: 'error ~ \"timeout\" and attempts > 3'.")
]


def add(app: typer.Typer) -> None:
    inner = below(app, "dlq", MANAGE, "List the dead of a topic, bring them back, or delete them.")
    verb(inner, "list")(list_dead)
    verb(inner, "errors")(errors)
    verb(inner, "redrive")(redrive)
    verb(inner, "delete")(delete)


def list_dead(session: Session, topic: Topic, filter: Filter = None, limit: Limit = 100) -> None:
    """List the dead of a topic that nobody has dealt with."""
    found = session.queue.dlq(topic).messages(limit, filter=filter)
    session.printer.rows(DEAD_COLUMNS, [shapes.dead(m) for m in found])


def errors(session: Session, topic: Topic) -> None:
    """Sort the dead of a topic by what they died of; `--filter 'fingerprint = …'` picks those of one line."""
    found = session.queue.dlq(topic).errors()
    session.printer.rows(ERROR_COLUMNS, [to_builtins(entry) for entry in found])


def delete(
    session: Session,
    topic: Topic,
    filter: Filter = None,
    limit: Annotated[int | None, typer.Option("--limit", "-l", min=1, help="At most so many.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many it would be.")] = False,
) -> None:
    """Delete the dead: they are listed no more, and cannot be redriven."""
    done = session.queue.dlq(topic).delete(filter=filter, limit=limit, dry_run=dry_run)
    if not session.printer.for_people:
        session.printer.one(to_builtins(done))
    elif dry_run:
        print(f"{done.matched} would be deleted")
    else:
        print(f"deleted {done.deleted} of {done.matched}")


def redrive(
    session: Session,
    topic: Topic,
    filter: Filter = None,
    limit: Annotated[int | None, typer.Option("--limit", "-l", min=1, help="At most so many.")] = None,
    rate: Annotated[float | None, typer.Option("--rate", help="So many a second; without it, all at once.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many it would be.")] = False,
) -> None:
    """Make the dead ready again, each in the group that it died in."""
    done = session.queue.dlq(topic).redrive(filter=filter, limit=limit, dry_run=dry_run, rate=rate)
    if not session.printer.for_people:
        session.printer.one(to_builtins(done))
    elif dry_run:
        print(f"{done.matched} would be redriven")
    else:
        print(f"redriven {done.redriven} of {done.matched}")
