"""What a job has to say when it is over: numbers by name, a table of findings, remarks. Shown as text or as JSON."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, json

Value = int | float | str | bool | None

FINDINGS_SHOWN_MAX = 50
_CELL_MAX = 60


class Report(Struct, frozen=True):
    """`clean` False: the job ran, but what it found or left undone has to be looked at, and its exit code says so."""

    job: str
    numbers: dict[str, Value]
    findings: tuple[dict[str, Value], ...] = ()
    remarks: tuple[str, ...] = ()
    """What was skipped and why, one sentence each."""
    clean: bool = True

    def text(self) -> str:
        """For people: a line for each number, then the findings as a table, then the remarks."""
        width = max(map(len, self.numbers), default=0)
        lines = [self.job, *(f"  {name:<{width}}  {_shown(value)}" for name, value in self.numbers.items())]
        if self.findings:
            lines += ["", *_table(self.findings[:FINDINGS_SHOWN_MAX])]
        if len(self.findings) > FINDINGS_SHOWN_MAX:
            lines.append(f"… and {len(self.findings) - FINDINGS_SHOWN_MAX:,} more; --output json shows all")
        if self.remarks:
            lines += ["", *self.remarks]
        return "\n".join(line.rstrip() for line in lines) + "\n"

    def json(self) -> str:
        """For programs: one document."""
        return json.format(json.encode(self), indent=2).decode() + "\n"


def rate(count: int, seconds: float) -> float:
    """So many a second."""
    return round(count / seconds, 1) if seconds > 0 else 0.0


def _table(rows: tuple[dict[str, Value], ...]) -> list[str]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names, *([_cell(row.get(name)) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in cells]


def _cell(value: Any) -> str:
    text = _shown(value)
    return text if len(text) <= _CELL_MAX else text[: _CELL_MAX - 1] + "…"


def _shown(value: Any) -> str:
    """On one line, without what could move a terminal's cursor."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    text = str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
