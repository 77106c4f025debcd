"""Managing topics: list, describe, configure, empty, delete."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from msgspec import DecodeError, json, to_builtins

from mqueue.cli import shapes
from mqueue.cli.session import Session
from mqueue.cli.verb import MANAGE, Topic, Yes, confirm, verb
from mqueue.cli.verbs.look import show_stats
from mqueue.model.errors import NotFound
from mqueue.model.settings import Settings
from mqueue.model.settings import describe as defaults_of

_NOTHING = ("none", "null")


def add(app: typer.Typer) -> None:
    verb(app, "topics", MANAGE)(topics)
    verb(app, "describe", MANAGE)(describe)
    verb(app, "configure", MANAGE)(configure)
    verb(app, "purge", MANAGE)(purge)
    verb(app, "delete", MANAGE)(delete)


def topics(session: Session) -> None:
    """List the topics of the namespace."""
    names = session.queue.topics()
    if session.printer.for_people:
        print("\n".join(names), end="\n" if names else "")
    else:
        session.printer.rows(("topic",), ({"topic": name} for name in names))


def describe(session: Session, topic: Topic) -> None:
    """Show the settings, the numbers and the groups of a topic."""
    settings = to_builtins(session.queue.settings(topic))
    numbers = shapes.stats(session.queue.stats(topic))
    if not session.printer.for_people:
        session.printer.one({"topic": topic, "settings": settings, "stats": numbers})
        return
    session.printer.one(settings)
    print()
    show_stats(session, numbers)


def configure(
    session: Session,
    topic: Topic,
    settings: Annotated[
        list[str], typer.Argument(help="partitions=6 max_retries=5 retention.hours=24 …", metavar="NAME=VALUE…")
    ],
) -> None:
    """Change settings of a topic, which is made if it is not there. Only what is named changes."""
    given = settings_of(settings)
    if isinstance(given.get("retention"), dict):
        given["retention"] = _retention(session, topic) | given["retention"]
    session.printer.one(to_builtins(session.queue.configure(topic, **given)))


def purge(session: Session, topic: Topic, yes: Yes = False) -> None:
    """Cancel every message of a topic, for every group."""
    confirm(f"Cancel all messages of {topic}?", yes)
    count = session.queue.purge(topic)
    if session.printer.for_people:
        print(f"purged {count} messages of {topic}")
    else:
        session.printer.one({"topic": topic, "purged": count})


def delete(session: Session, topic: Topic, yes: Yes = False) -> None:
    """Delete a topic with all its messages."""
    confirm(f"Delete {topic} and all its messages?", yes)
    session.queue.delete_topic(topic)
    if session.printer.for_people:
        print(f"deleted {topic}")


def settings_of(given: list[str]) -> dict[str, Any]:
    """From `name=value` and `name.part=value`. A value is JSON if it can be, `none` is nothing, all else is text."""
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{text!r:.80}; it takes name=value", param_hint="NAME=VALUE")
        head, dot, part = name.partition(".")
        if dot:
            below = found.setdefault(head, {})
            if not isinstance(below, dict):
                raise typer.BadParameter(f"{head} is given as a whole and in parts", param_hint="NAME=VALUE")
            below[part] = _value(value)
        else:
            found[name] = _value(value)
    return found


def _value(text: str) -> Any:
    if text.lower() in _NOTHING:
        return None
    try:
        return json.decode(text)
    except DecodeError:
        return text


def _retention(session: Session, topic: str) -> dict[str, Any]:
    """As it is now, so that only what is named changes."""
    try:
        known = session.queue.settings(topic)
    except NotFound:
        known = defaults_of(Settings())
    kept: dict[str, Any] = to_builtins(known["retention"])
    return kept
