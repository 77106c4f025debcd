"""Cursors: named places in a topic that retention does not pass."""

from __future__ import annotations

from typing import Annotated

import typer

from mqueue.cli import shapes
from mqueue.cli.session import Session
from mqueue.cli.verb import MANAGE, Topic, below, verb

COLUMNS = ("name", "offsets", "expires_at", "made_at")

Name = Annotated[str, typer.Argument(help="The cursor.", show_default=False)]


def add(app: typer.Typer) -> None:
    inner = below(app, "cursors", MANAGE, "List the cursors of a topic, which hold back retention; set, delete them.")
    verb(inner, "list")(list_cursors)
    verb(inner, "set")(set_cursor)
    verb(inner, "delete")(delete_cursor)


def list_cursors(session: Session, topic: Topic) -> None:
    """List the cursors of a topic."""
    session.printer.rows(COLUMNS, [shapes.cursor(known) for known in session.queue.cursors(topic)])


def set_cursor(
    session: Session,
    topic: Topic,
    name: Name,
    offset: Annotated[
        list[str] | None,
        typer.Option("--offset", help="partition:offset; may be repeated. None: as it stands, or all."),
    ] = None,
    ttl: Annotated[str, typer.Option("--ttl", help="It expires after so long.")] = "7d",
) -> None:
    """Let retention drop nothing from a place on; said again, it moves the cursor or keeps it alive."""
    made = session.queue.set_cursor(topic, name, _offsets(offset), ttl=ttl)
    session.printer.one(shapes.cursor(made))


def delete_cursor(session: Session, topic: Topic, name: Name) -> None:
    """Delete a cursor: it holds back nothing any more."""
    session.queue.delete_cursor(topic, name)
    if session.printer.for_people:
        print(f"deleted cursor {name} of {topic}")


def _offsets(given: list[str] | None) -> dict[int, int] | None:
    if not given:
        return None
    found = {}
    for text in given:
        partition, _, offset = text.partition(":")
        if not (partition.isascii() and partition.isdigit() and offset.isascii() and offset.isdigit()):
            raise typer.BadParameter(f"{text!r:.80}; it takes partition:offset, as in 0:17", param_hint="--offset")
        found[int(partition)] = int(offset)
    return found
