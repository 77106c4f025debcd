"""Named places to talk to: `mqueue context set prod --url …`, `mqueue context use prod`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from mqueue.cli.contexts import Book, Context, book_path, check_context_name, read_book, write_book
from mqueue.cli.output import Output, Printer
from mqueue.cli.target import read_token
from mqueue.cli.verb import RUN, below, local_verb

Name = Annotated[str, typer.Argument(help="The context.", show_default=False)]
Shown = Annotated[Output, typer.Option("--output", "-o", help="Tables for people, JSON for programs.")]

COLUMNS = ("current", "name", "url", "namespace", "token")


def add(app: typer.Typer) -> None:
    inner = below(app, "context", RUN, "Named places to talk to: a URL, a namespace and a token each.")
    local_verb(inner, "list")(list_contexts)
    local_verb(inner, "set")(set_context)
    local_verb(inner, "use")(use)
    local_verb(inner, "delete")(delete)


def list_contexts(output: Shown = Output.table) -> None:
    """List the contexts. Tokens are never shown."""
    book = _book()
    records = [
        {
            "current": name == book.current,
            "name": name,
            "url": context.url,
            "namespace": context.namespace or "default",
            "token": context.token is not None,
        }
        for name, context in sorted(book.contexts.items())
    ]
    Printer(output).rows(COLUMNS, records)


def set_context(
    name: Name,
    url: Annotated[str, typer.Option("--url", help="http(s)://host:port, or file:/absolute/path.", show_default=False)],
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="The tenant.")] = None,
    token_file: Annotated[
        str | None, typer.Option("--token-file", help="Take the token from a file; - is stdin.")
    ] = None,
    ca: Annotated[str | None, typer.Option("--ca", help="Whom to trust: certificates, PEM.")] = None,
    cert: Annotated[str | None, typer.Option("--cert", help="Our own certificate, PEM.")] = None,
    cert_key: Annotated[str | None, typer.Option("--cert-key", help="Its private key, PEM.")] = None,
) -> None:
    """Remember a context; the first one is in use at once."""
    book = _book()
    token = None if token_file is None else read_token(token_file)
    files = [None if path is None else os.path.abspath(path) for path in (ca, cert, cert_key)]
    book.contexts[check_context_name(name)] = Context(url, token, namespace, *files)
    book.current = book.current or name
    write_book(book_path(os.environ), book)


def use(name: Name) -> None:
    """Make a context the one that counts where none is named."""
    book = _book()
    book.find(name)
    book.current = name
    write_book(book_path(os.environ), book)


def delete(name: Name) -> None:
    """Forget a context."""
    book = _book()
    book.find(name)
    del book.contexts[name]
    if book.current == name:
        book.current = None
    write_book(book_path(os.environ), book)


def _book() -> Book:
    return read_book(book_path(os.environ))
