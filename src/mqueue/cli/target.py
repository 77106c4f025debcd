"""Whom a verb talks to: what the flags say, then the environment, then the context in use, then this machine.

A token goes only where it was meant for: one of a context is never sent to a URL that was given otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from mqueue.cli.contexts import Book, Context
from mqueue.model.errors import Refused

DEFAULT_URL = "http://127.0.0.1:8080"
TOKEN_BYTES_MAX = 64 * 1024


class Flags(Struct, frozen=True):
    """What was typed. None: nothing."""

    url: str | None = None
    token: str | None = None
    token_file: str | None = None
    namespace: str | None = None
    context: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def __repr__(self) -> str:
        return "<Flags>"


def resolve(flags: Flags, environ: Mapping[str, str], book: Callable[[], Book]) -> Context:
    """The book is opened only if it has a say."""
    if flags.url and flags.context:
        raise Refused("--url and --context: give one of them")
    found = _place(flags, environ, book)
    given = {name: getattr(flags, name) for name in ("namespace", "ca", "cert", "key") if getattr(flags, name)}
    token = flags.token or (read_token(flags.token_file) if flags.token_file else None)
    if flags.token and flags.token_file:
        raise Refused("--token and --token-file: give one of them")
    return replace(found, **given, **({"token": token} if token else {}))


def read_token(path: str) -> str:
    """The first line of a file; `-` is stdin."""
    try:
        if path == "-":
            content = sys.stdin.buffer.read(TOKEN_BYTES_MAX + 1)
        else:
            with Path(path).open("rb") as file:
                content = file.read(TOKEN_BYTES_MAX + 1)
        lines = content.decode("ascii").splitlines()
    except OSError as error:
        raise Refused(f"the token's file {path!r:.80} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise Refused(f"the token's file {path!r:.80} does not hold a token: it is not ASCII") from None
    if len(content) > TOKEN_BYTES_MAX:
        raise Refused(f"the token's file {path!r:.80} is longer than {TOKEN_BYTES_MAX} bytes")
    if not lines or not lines[0].strip():
        raise Refused(f"the token's file {path!r:.80} is empty")
    return lines[0].strip()


def _place(flags: Flags, environ: Mapping[str, str], book: Callable[[], Book]) -> Context:
    if flags.url:
        return _from_environment(flags.url, environ)
    if flags.context:
        return book().find(flags.context)
    if url := environ.get("MQUEUE_URL"):
        return _from_environment(url, environ)
    contexts = book()
    if name := environ.get("MQUEUE_CONTEXT") or contexts.current:
        return _filled(contexts.find(name), environ)
    return _from_environment(DEFAULT_URL, environ)


def _from_environment(url: str, environ: Mapping[str, str]) -> Context:
    return _filled(Context(url), environ)


def _filled(context: Context, environ: Mapping[str, str]) -> Context:
    """What the context leaves open, as the environment has it."""
    token = context.token or environ.get("MQUEUE_TOKEN") or None
    if token is None and (path := environ.get("MQUEUE_TOKEN_FILE")):
        token = read_token(path)
    return replace(
        context,
        token=token,
        namespace=context.namespace or environ.get("MQUEUE_NAMESPACE") or None,
        ca=context.ca or (context.url.lower().startswith("https:") and environ.get("MQUEUE_CA_FILE")) or None,
    )
