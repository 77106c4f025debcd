"""Messages on their way to stdout: printed, flushed, and only then acked. What was not printed is given back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from mqueue.cli import shapes
from mqueue.cli.exits import complain
from mqueue.cli.interrupts import Interrupts
from mqueue.cli.output import Printer, cell, on_terminal, printable
from mqueue.model.errors import LeaseLost

if TYPE_CHECKING:
    from mqueue.broker.message import AnyMessage, Message
    from mqueue.cli.session import Queue

Put: TypeAlias = "Callable[[AnyMessage], None]"


@contextmanager
def written(printer: Printer, verbose: bool) -> Iterator[Put]:
    """Gives what writes a message: its payload on a line of its own, or as JSON."""
    if printer.for_people:
        yield _write_verbose if verbose else _write_payload
        return
    with printer.stream() as put:
        yield lambda m: put(shapes.message(m))


def hand_over(queue: Queue, messages: list[Message], put: Put, heard: Interrupts) -> None:
    """Print messages and ack them. If that is cut short, ack what was printed, release the rest."""
    done = 0
    try:
        try:
            with heard.free():
                for m in messages:
                    put(m)
                    done += 1
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        done = 0  # how much of the buffer was read, nobody knows: rather twice than never
        raise
    finally:
        settle(queue.ack, messages[:done], "acked")
        settle(queue.release, messages[done:], "given back")


def settle(call: Callable[[Any], Any], messages: list[Message], what: str) -> None:
    """A message that was held for too long comes again; that is worth a word, not an end."""
    if not messages:
        return
    try:
        lost = len(call(messages).lost)
    except LeaseLost:
        lost = len(messages)
    if lost:
        complain(f"{lost} messages were held for longer than their lease: they are not {what}, and come again")


def _write_payload(m: AnyMessage) -> None:
    """To a pipe the bytes as they are; on a terminal nothing that could play with it."""
    if on_terminal():
        text = m.payload.decode(errors="backslashreplace")
        print("\n".join(printable(line) for line in text.split("\n")))
    else:
        sys.stdout.flush()  # what was printed as text before
        sys.stdout.buffer.write(m.payload + b"\n")


def _write_verbose(m: AnyMessage) -> None:
    key = "" if m.key is None else f" key={cell(m.key.decode(errors='backslashreplace'))}"
    at = shapes.time(m.published_at)
    print(f"# {m.id} {m.topic}/{m.partition}@{m.offset} priority={m.priority} attempt={m.attempt} {at}{key}")
    _write_payload(m)
