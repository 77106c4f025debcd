"""How answers are printed: tables for people, JSON for programs. A pipe gets the same columns without colours.

Does not know what is printed. What comes from messages is shown with control characters escaped, so that no payload
can play with a terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import json

from mqueue.model.times import rfc3339

Record = Mapping[str, Any]

_CELL_MAX = 80


class Output(StrEnum):
    table = "table"
    json = "json"
    ndjson = "ndjson"


class Printer:
    def __init__(self, output: Output) -> None:
        self.output = output

    @property
    def for_people(self) -> bool:
        return self.output is Output.table

    def rows(self, columns: Sequence[str], records: Iterable[Record], *, title: str = "") -> None:
        """Many records: these columns of them as a table, or all they have as JSON."""
        if self.output is Output.table:
            _print_table(columns, [[cell(record.get(name)) for name in columns] for record in records], title)
        else:
            with self.stream() as put:
                for record in records:
                    put(record)

    def one(self, record: Record) -> None:
        """One record: a line per field, or a JSON object."""
        if self.output is Output.table:
            width = max(map(len, record), default=0)
            for name, value in record.items():
                print(f"{name:<{width}}  {cell(value, None)}".rstrip())
        elif self.output is Output.json:
            print(json.format(json.encode(record), indent=2).decode())
        else:
            print(json.encode(record).decode())

    @contextmanager
    def stream(self) -> Iterator[Any]:
        """Records as they come: one a line, and as JSON an array that is closed whatever happens."""
        if self.output is not Output.json:
            yield lambda record: print(json.encode(record).decode())
            return
        count = 0

        def put(record: Record) -> None:
            nonlocal count
            sys.stdout.write(("[\n  " if not count else ",\n  ") + json.encode(record).decode())
            count += 1

        try:
            yield put
        finally:
            sys.stdout.write("\n]\n" if count else "[]\n")


def cell(value: Any, width_max: int | None = _CELL_MAX) -> str:
    """A value as people read it, on one line."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) < 1e9 else f"{value:.3g}"
    if isinstance(value, datetime):
        return rfc3339(round(value.timestamp() * 1000))
    if isinstance(value, Mapping | list | tuple):
        value = json.encode(value).decode()
    text = printable(str(value))
    return text if width_max is None or len(text) <= width_max else text[: width_max - 1] + "…"


def printable(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def on_terminal() -> bool:
    return sys.stdout.isatty()


def _print_table(columns: Sequence[str], rows: list[list[str]], title: str) -> None:
    if on_terminal():
        _print_rich(columns, rows, title)
        return
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _print_rich(columns: Sequence[str], rows: list[list[str]], title: str) -> None:
    from rich.console import Console

    Console(highlight=False).print(rich_table(columns, rows, title))


def rich_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> Any:
    """A table of rich's, with numbers to the right. Text is taken to the letter: it may look like markup."""
    from rich.table import Table
    from rich.text import Text

    rows = list(rows)
    table = Table(box=None, pad_edge=False, header_style="bold", title=title or None, title_justify="left")
    for number, name in enumerate(columns):
        right = bool(rows) and all(_is_number(row[number]) for row in rows)
        table.add_column(Text(name), justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(text) for text in row))
    return table


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(",", "").replace(".", "").isdigit()
