"""Publishing from the command line: arguments, a file, or whatever a pipe brings, in batches of bounded size."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from itertools import count
from typing import Annotated, Any, BinaryIO

import typer

from mqueue.cli import lines, shapes
from mqueue.cli.drafts import Wishes, draft_of, headers_of
from mqueue.cli.exits import complain
from mqueue.cli.interrupts import Interrupts, interrupts
from mqueue.cli.output import Record
from mqueue.cli.progress import progress
from mqueue.cli.session import Session
from mqueue.cli.verb import USE, Topic, verb
from mqueue.model.errors import Error

RECEIPT_COLUMNS = ("id", "topic", "partition", "offset", "duplicate", "durability")


class Input(StrEnum):
    lines = "lines"
    ndjson = "ndjson"
    whole = "whole"


def add(app: typer.Typer) -> None:
    verb(app, "produce", USE)(produce)


def produce(
    session: Session,
    topic: Topic,
    messages: Annotated[
        list[str] | None, typer.Argument(help="What to publish; none: what stdin brings.", metavar="[MESSAGE]…")
    ] = None,
    file: Annotated[str | None, typer.Option("--file", "-f", help="Read from a file; - is stdin.")] = None,
    input: Annotated[
        Input,
        typer.Option(
            "--input", "-i", help="A message is a line, a line of JSON that describes it, or all there is to read."
        ),
    ] = Input.lines,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key: decides the partition.")] = None,
    header: Annotated[list[str] | None, typer.Option("--header", "-H", help="name=value; may be repeated.")] = None,
    priority: Annotated[
        str | None, typer.Option("--priority", "-p", help="critical, high, normal, low, background, or a number.")
    ] = None,
    delay: Annotated[str | None, typer.Option("--delay", help="Deliver after so long: 30s, 5m, 12h.")] = None,
    deliver_at: Annotated[str | None, typer.Option("--deliver-at", help="Deliver at a time (RFC 3339, UTC).")] = None,
    ttl: Annotated[str | None, typer.Option("--ttl", help="Expire after so long.")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option("--idempotency-key", help="Published twice under it, it is stored once.")
    ] = None,
    fairness_key: Annotated[str | None, typer.Option("--fairness-key", help="Keys take turns.")] = None,
    durability: Annotated[
        str | None,
        typer.Option(
            "--durability", help="What an answer survives: memory, os, fsync; in a cluster shard, quorum, wal"
        ),
    ] = None,
    batch: Annotated[int, typer.Option("--batch", min=1, max=10_000, help="Messages of one call.")] = 1000,
) -> None:
    """Publish messages: arguments, lines of stdin or of a file."""
    if messages and (file or input is not Input.lines):
        raise typer.BadParameter(
            "messages are given as arguments; they are not also read", param_hint="--file, --input"
        )
    wishes = Wishes(
        key, headers_of(header or []), priority_of(priority), delay, deliver_at, ttl, idempotency_key, fairness_key
    )
    if messages:
        drafts = [wishes.of(os.fsencode(text)) for text in messages]
        receipts = session.queue.publish_many(topic, drafts, durability=durability)
        session.printer.rows(RECEIPT_COLUMNS, map(shapes.receipt, receipts))
        return

    def publish(drafts: list[Any]) -> list[Record]:
        return [shapes.receipt(r) for r in session.queue.publish_many(topic, drafts, durability=durability)]

    with interrupts() as heard, _opened(file) as stream:
        _publish_all(session, topic, _read(Patient(stream, heard), input, batch, wishes), publish)


def _publish_all(
    session: Session, topic: str, batches: Iterator[list[Any]], publish: Callable[[list[Any]], list[Record]]
) -> None:
    published = duplicates = 0
    with ExitStack() as stack:
        tick = stack.enter_context(progress("published"))
        put = None if session.printer.for_people else stack.enter_context(session.printer.stream())
        try:
            for drafts in batches:
                receipts = publish(drafts)
                published += len(receipts)
                duplicates += sum(r["duplicate"] for r in receipts)
                tick(len(receipts))
                if put is not None:
                    for record in receipts:
                        put(record)
                    sys.stdout.flush()
        except Error:
            complain(f"{published} messages were published before this:")
            raise
    if session.printer.for_people:
        noted = f", {duplicates} of them duplicates" if duplicates else ""
        print(f"published {published} message{'s' * (published != 1)} to {topic}{noted}")


class Patient:
    """A stream that may be waited for: an interrupt strikes while it is read, and not while something is published."""

    def __init__(self, stream: BinaryIO, heard: Interrupts) -> None:
        self._stream = stream
        self._heard = heard

    def read1(self, size: int, /) -> bytes:
        with self._heard.free():
            return self._stream.read1(size)  # type: ignore[attr-defined, no-any-return]


def _read(stream: Patient, input: Input, batch: int, wishes: Wishes) -> Iterator[list[Any]]:
    if input is Input.whole:
        yield [wishes.of(lines.whole(stream))]
        return
    numbers = count(1)
    for found in lines.batches(stream, batch):
        if input is Input.ndjson:
            yield [draft_of(line, next(numbers), wishes) for line in found]
        else:
            yield [wishes.of(line) for line in found]


@contextmanager
def _opened(file: str | None) -> Iterator[BinaryIO]:
    if file is not None and file != "-":
        with open(file, "rb") as opened:
            yield opened
        return
    if sys.stdin.isatty():
        print("a message a line; Ctrl-D ends", file=sys.stderr)
    yield sys.stdin.buffer


def priority_of(text: str | None) -> int | str | None:
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        return text
