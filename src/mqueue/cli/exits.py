"""How a run ends: errors become one line on stderr and an exit code that scripts can tell apart."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from mqueue.model.errors import Error
from mqueue.model.exits import FAILED, INTERRUPTED, NOT_NOW, NOTHING, OK, REFUSED, USAGE, code_of, complaint

__all__ = [
    "FAILED",
    "INTERRUPTED",
    "NOTHING",
    "NOT_NOW",
    "OK",
    "REFUSED",
    "USAGE",
    "code_of",
    "complain",
    "told",
]


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
    print(complaint(sentence), file=sys.stderr)


def _forget_stdout() -> None:
    """What is still buffered has nowhere to go: the interpreter must not try again when it ends."""
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    empty = os.open(os.devnull, os.O_WRONLY)
    os.dup2(empty, number)
    os.close(empty)
