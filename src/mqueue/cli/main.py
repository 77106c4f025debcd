"""`mqueue`: the command line put together. `main` gives the exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import typer
from typer.main import get_command

from mqueue.cli.verb import Sections
from mqueue.cli.verbs import (
    admin,
    bench,
    cluster,
    config,
    consume,
    context,
    cursors,
    dlq,
    groups,
    look,
    pipeline,
    produce,
    schedule,
    serve,
    shards,
    shell,
    top,
    topics,
)

app = typer.Typer(
    name="mqueue",
    cls=Sections,
    help="A priority message queue that replays like a log.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

for add in (
    serve.add_serve,
    cluster.add,
    shards.add,
    produce.add,
    consume.add,
    look.add,
    serve.add_worker,
    top.add,
    topics.add,
    groups.add,
    dlq.add,
    cursors.add,
    schedule.add,
    admin.add,
    pipeline.add,
    bench.add,
    config.add,
    context.add,
    shell.add,
):
    add(app)


@cache
def command() -> Any:
    """All verbs, ready to be called: that is made once."""
    return get_command(app)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; the exit code. A console that cannot show a character gets an escape instead of an error."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if shell.VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
    try:
        command()(args=None if argv is None else list(argv), prog_name="mqueue")
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    return 0
