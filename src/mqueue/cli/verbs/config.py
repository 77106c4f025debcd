"""The configuration of a server, before it is started: is it right, and what does it come to?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mqueue.cli import exits
from mqueue.cli.output import Output, Printer
from mqueue.cli.verb import RUN, local_verb

if TYPE_CHECKING:
    from mqueue.config import Config

File = Annotated[str | None, typer.Option("--config", "-c", help="The file. [MQUEUE_CONFIG]")]
Shown = Annotated[Output, typer.Option("--output", "-o", help="As YAML for people, JSON for programs.")]


def add(app: typer.Typer) -> None:
    inner = typer.Typer(help="Check and show the configuration that `serve` would have.", rich_markup_mode=None)
    app.add_typer(inner, name="config", rich_help_panel=RUN)
    local_verb(inner, "check")(check)
    local_verb(inner, "show")(show)
    local_verb(inner, "path")(path)


def check(config: File = None) -> None:
    """Say everything that is wrong with it, or that nothing is."""
    _load(config)
    print("the configuration is right")


def show(config: File = None, output: Shown = Output.table) -> None:
    """Show what file, environment and defaults come to. Secrets are masked."""
    from mqueue.config import describe

    tree = describe(_load(config))
    if output is Output.table:
        import yaml  # type: ignore[import-untyped]

        print(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True), end="")
    else:
        Printer(output).one(tree)


def path(config: File = None) -> None:
    """Say which file is read; none is looked for."""
    named = config or os.environ.get("MQUEUE_CONFIG")
    if not named:
        exits.complain("no file is named: give --config or set MQUEUE_CONFIG")
        raise typer.Exit(exits.NOTHING)
    print(Path(named).absolute())


def _load(file: str | None) -> Config:
    from mqueue.config import load

    return load(file, os.environ)
