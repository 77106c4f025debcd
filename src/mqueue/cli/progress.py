"""How far long work has come: on stderr, and only if somebody sits there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Gives what is to be called with how much was done. `total` None: nobody knows."""
    if not sys.stderr.isatty() or (sys.stdout.isatty() and sys.stdin.isatty() and total is None):
        yield lambda done: None  # somebody types: a bar would get in their way
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)
