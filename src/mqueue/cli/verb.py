"""A function becomes a verb: it gets the options that every verb has, a `Session`, and its errors become exit codes.

@verb(app, "stats", USE)
def stats(session: Session, topic: Annotated[str, typer.Argument(help="…")]) -> None: ...
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from inspect import Parameter
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from mqueue.cli import exits
from mqueue.cli.contexts import Context, book_path, read_book
from mqueue.cli.output import Output, Printer
from mqueue.cli.session import Session
from mqueue.cli.target import Flags, resolve
from mqueue.model.times import duration_ms

F = TypeVar("F", bound=Callable[..., None])

USE, MANAGE, RUN = "Use", "Manage", "Run"
_PLACE = "Where to"

Topic = Annotated[str, typer.Argument(help="The topic.", show_default=False)]
Id = Annotated[int, typer.Argument(help="The message's id.", show_default=False, metavar="ID")]
Group = Annotated[str, typer.Option("--group", "-g", help="The group.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def _place(*names: str, help: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_PLACE, show_default=False)


_OPTIONS: dict[str, tuple[Any, Any]] = {
    "output": (
        Annotated[Output, typer.Option("--output", "-o", help="Tables for people, JSON for programs.")],
        Output.table,
    ),
    "url": (Annotated[str | None, _place("--url", help="http(s)://host:port, or file:./data. [MQUEUE_URL]")], None),
    "namespace": (Annotated[str | None, _place("--namespace", "-n", help="The tenant. [MQUEUE_NAMESPACE]")], None),
    "context": (Annotated[str | None, _place("--context", help="A named place. [MQUEUE_CONTEXT]")], None),
    "token_file": (
        Annotated[str | None, _place("--token-file", help="A file with the token. [MQUEUE_TOKEN_FILE, MQUEUE_TOKEN]")],
        None,
    ),
    "token": (
        Annotated[str | None, _place("--token", help="The token; others can see it here, so rather a file.")],
        None,
    ),
    "ca": (Annotated[str | None, _place("--ca", help="Whom to trust: certificates, PEM. [MQUEUE_CA_FILE]")], None),
    "cert": (Annotated[str | None, _place("--cert", help="Our own certificate, PEM.")], None),
    "cert_key": (Annotated[str | None, _place("--cert-key", help="Its private key, PEM.")], None),
    "timeout": (
        Annotated[str, typer.Option("--timeout", help="How long a call may take.", rich_help_panel=_PLACE)],
        "30s",
    ),
}


class Sections(TyperGroup):
    """All verbs, by what they are for. Plain text: rich would double the time that `--help` takes."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = formatter.width - 6 - max(map(len, self.commands))
        for panel in (USE, MANAGE, RUN):
            known = [(name, verb) for name, verb in self.commands.items() if _panel(verb) == panel]
            with formatter.section(panel):
                formatter.write_dl([(name, verb.get_short_help_str(width)) for name, verb in known])


def _panel(command: Any) -> str | None:
    panel: str | None = command.rich_help_panel
    return panel


class ListFirst(TyperGroup):
    """Verbs below a verb. Without one of them, `list` is meant: `mqueue dlq orders`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        meant = not args or (args[0] not in self.commands and args[0] != "--help")
        if meant and not ctx.resilient_parsing:  # a shell that asks what could follow is to hear of all verbs
            args = ["list", *args]
        return super().parse_args(ctx, args)


def below(app: typer.Typer, name: str, panel: str, help: str) -> typer.Typer:
    """A verb that has verbs below it."""
    inner = typer.Typer(cls=ListFirst, help=help, rich_markup_mode=None)
    app.add_typer(inner, name=name, rich_help_panel=panel)
    return inner


def verb(app: typer.Typer, name: str, panel: str | None = None, *, hands_on: bool = False) -> Callable[[F], F]:
    """Register a function, whose first argument is the session, under a name.

    `hands_on`: words that nobody here knows are no error; its last argument gets them, `--help` too.
    """
    settings: dict[str, Any] = {"ignore_unknown_options": True, "help_option_names": []} if hands_on else {}

    def register(function: F) -> F:
        def run(**given: Any) -> None:
            flags, output, timeout = _taken(given)
            with exits.told():
                duration_ms(timeout, "timeout")
                with Session(_context(flags), Printer(output), timeout) as session:
                    function(session, **given)

        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        common = [Parameter(n, Parameter.KEYWORD_ONLY, default=d, annotation=a) for n, (a, d) in _OPTIONS.items()]
        _dress(run, function, [p.replace(kind=Parameter.KEYWORD_ONLY) for p in own] + common)
        app.command(name, rich_help_panel=panel, context_settings=settings)(run)
        return function

    return register


def local_verb(app: typer.Typer, name: str, panel: str | None = None) -> Callable[[F], F]:
    """The same for what talks to nobody: no session, and no options but its own."""

    def register(function: F) -> F:
        def run(**given: Any) -> None:
            with exits.told():
                function(**given)

        own = inspect.signature(function, eval_str=True).parameters.values()
        _dress(run, function, [p.replace(kind=Parameter.KEYWORD_ONLY) for p in own])
        app.command(name, rich_help_panel=panel)(run)
        return function

    return register


def confirm(question: str, yes: bool) -> None:
    """Go on only if somebody said so. Where nobody can be asked, `--yes` has to be."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("nobody is there to be asked: say --yes", param_hint="--yes")
    if not typer.confirm(question, err=True):
        raise typer.Exit(exits.FAILED)


def _taken(given: dict[str, Any]) -> tuple[Flags, Output, str]:
    """The options of every verb, taken out of what was given."""
    output: Output = given.pop("output")
    timeout: str = given.pop("timeout")
    key = given.pop("cert_key")
    place = {name: given.pop(name) for name in _OPTIONS if name in given}
    return Flags(key=key, **place), output, timeout


def _context(flags: Flags) -> Context:
    return resolve(flags, os.environ, lambda: read_book(book_path(os.environ)))


def _dress(run: Callable[..., None], function: Callable[..., None], parameters: list[Parameter]) -> None:
    """Let `run` look as if it had been written with these parameters: that is where options are read from."""
    run.__doc__ = function.__doc__
    run.__name__ = function.__name__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
