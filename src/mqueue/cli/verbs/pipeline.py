"""Jobs on many messages at once. Each has its own words, and is run as it would be by `spark-submit`."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

from mqueue.cli.environment import told_by_environment
from mqueue.cli.output import Output, Printer
from mqueue.cli.session import Session
from mqueue.cli.verb import RUN, below, local_verb, verb
from mqueue.model.errors import Refused
from mqueue.pipeline.jobs import JOBS

COLUMNS = ("job", "what_it_does")

Words = Annotated[list[str] | None, typer.Argument(help="What the job takes: see its --help.", metavar="[OPTIONS]")]


def add(app: typer.Typer) -> None:
    inner = below(app, "pipeline", RUN, "Run a job on many messages at once, with Spark: archive, replay, audit ….")
    local_verb(inner, "list")(list_jobs)
    for name, what in JOBS.items():
        _add_job(inner, name, what)


def list_jobs(
    output: Annotated[Output, typer.Option("--output", "-o", help="Tables for people, JSON for programs.")] = (
        Output.table
    ),
) -> None:
    """List the jobs."""
    records = [{"job": name, "what_it_does": what} for name, what in JOBS.items()]
    Printer(output).rows(COLUMNS, records)


def _add_job(inner: typer.Typer, name: str, what: str) -> None:
    def job(session: Session, words: Words = None) -> None:
        told = [*_place(session), "--output", "table" if session.printer.for_people else "json", *(words or [])]
        with told_by_environment(session.context):
            code: int = import_module(f"mqueue.pipeline.jobs.{name}").main(told)
        if code:
            raise typer.Exit(code)

    job.__doc__ = what
    job.__name__ = name
    verb(inner, name, hands_on=True)(job)


def _place(session: Session) -> list[str]:
    """What the environment has no word for."""
    context = session.context
    if context.key:
        raise Refused("--cert-key: a job takes --cert, one PEM file with the certificate and its key")
    given = {"--ca": context.ca, "--cert": context.cert, "--timeout": session.timeout}
    return [word for name, value in given.items() if value for word in (name, value)]
