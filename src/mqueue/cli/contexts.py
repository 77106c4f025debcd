"""Named places to talk to, kept in `~/.config/mqueue/contexts.toml`. Only its owner may read it: it holds tokens.

```toml
current = "prod"

[contexts.prod]
url = "https://mq.example"
namespace = "tenant-a"
token = "…"
```
Does not know what a URL means.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, ValidationError, convert

from mqueue.model.errors import NotFound, Refused

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_BYTES_MAX = 256 * 1024


class Context(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where to, and as whom."""

    url: str
    token: str | None = None
    namespace: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def __repr__(self) -> str:
        return f"<Context {self.namespace or 'default'}{', with a token' if self.token else ''}>"


class Book(Struct, forbid_unknown_fields=True):
    """All contexts of a user; `current` is the one that counts where none is named."""

    current: str | None = None
    contexts: dict[str, Context] = {}

    def find(self, name: str) -> Context:
        if name not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "none"
            raise NotFound(f"context {name!r:.80} is not there; known: {known}")
        return self.contexts[name]


def book_path(environ: Mapping[str, str]) -> Path:
    home = environ.get("XDG_CONFIG_HOME") or ""
    # A relative one is to be ignored, says the standard that gave it its name.
    base = Path(home) if os.path.isabs(home) else Path(environ.get("HOME") or Path.home()) / ".config"
    return base / "mqueue" / "contexts.toml"


def read_book(path: Path) -> Book:
    """The book, empty if there is none."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_BYTES_MAX + 1)
    except FileNotFoundError:
        return Book()
    if len(content) > _BYTES_MAX:
        raise Refused(f"{path} is longer than {_BYTES_MAX} bytes")
    try:
        book = convert(tomllib.loads(content.decode()), Book)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, ValidationError) as error:
        raise Refused(f"{path} cannot be read: {error}") from None  # the cause would show the text, and so a token
    if mode & (stat.S_IRWXG | stat.S_IRWXO) and any(context.token for context in book.contexts.values()):
        raise Refused(f"{path} holds tokens and others may read it; say: chmod 600 {path}")
    return book


def write_book(path: Path, book: Book) -> None:
    """All or nothing, and readable by its owner alone from the first byte on."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    number, made = tempfile.mkstemp(dir=path.parent, prefix=path.name)  # made with mode 0600
    try:
        with open(number, "w", encoding="utf-8") as file:
            file.write(_toml(book))
            file.flush()
            os.fsync(file.fileno())
        os.replace(made, path)
    except BaseException:
        os.unlink(made)
        raise


def check_context_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise Refused(f"context {name!r:.80}; a name is 1 to 64 of A-Z a-z 0-9 . _ -")
    return name


def _toml(book: Book) -> str:
    lines = [f"current = {_text(book.current)}"] if book.current else []
    for name, context in sorted(book.contexts.items()):
        lines += ["", f'[contexts."{name}"]']
        fields: dict[str, Any] = {field: getattr(context, field) for field in Context.__struct_fields__}
        lines += [f"{field} = {_text(value)}" for field, value in fields.items() if value is not None]
    return "\n".join(lines).lstrip() + "\n"


def _text(value: str) -> str:
    """A JSON string is a TOML one, but for the one control character that JSON lets pass."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
