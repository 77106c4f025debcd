"""How a run ends: errors become one line on stderr and an exit code that scripts can tell apart."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from mqueue.model.errors import (
    DiskFull,
    Error,
    Forbidden,
    NotFound,
    QueueFull,
    QuotaExceeded,
    Refused,
    Unauthorized,
    Unavailable,
)

OK = 0
FAILED = 1
USAGE = 2
NOTHING = 3
REFUSED = 4
NOT_NOW = 5
INTERRUPTED = 130

_CODES: tuple[tuple[tuple[type[Error], ...], int], ...] = (
    ((NotFound,), NOTHING),
    ((Refused, Unauthorized, Forbidden), REFUSED),
    ((Unavailable, QuotaExceeded, QueueFull, DiskFull), NOT_NOW),
)


def code_of(error: Error) -> int:
    if error.code == "bad_config":
        return USAGE
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), FAILED)


@contextmanager
def told() -> Iterator[None]:
    """Tell what went wrong, and leave with its code. A reader who has had enough and closes the pipe is no error."""
    try:
        yield
        sys.stdout.flush()
    except Error as error:
        complain(str(error))
        raise typer.Exit(code_of(error)) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(INTERRUPTED) from error
    except BrokenPipeError as error:
        _forget_stdout()
        raise typer.Exit(OK) from error
    except OSError as error:
        complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        raise typer.Exit(FAILED) from error


def complain(sentence: str) -> None:
    """On stderr, without what could move a terminal's cursor: a part of it may come from a server."""
    shown = "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in sentence)
    print(f"mqueue: {shown}", file=sys.stderr)


def _forget_stdout() -> None:
    """What is still buffered has nowhere to go: the interpreter must not try again when it ends."""
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    empty = os.open(os.devnull, os.O_WRONLY)
    os.dup2(empty, number)
    os.close(empty)
