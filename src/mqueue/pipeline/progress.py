"""How far a job has come, shown in one of four ways: bars on a terminal, plain lines, JSON lines, or not at all.

with progress_of("auto") as progress:
    progress.step("archive", total=1_000_000)
    progress.advance(50_000, lag=12)

Goes to stderr: stdout belongs to the report. Knows nothing of Spark; what watches Spark is in `watching`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import IO, Any, Protocol

from msgspec import Struct, json

Number = int | float | str

MODES = ("auto", "rich", "plain", "json", "none")
PLAIN_SECONDS = 5.0
JSON_SECONDS = 1.0


class Tick(Struct, frozen=True):
    """How it stands. `total` None: nobody knows. `last`: this step is over."""

    step: str
    done: int
    total: int | None
    seconds: float
    per_second: float
    last: bool
    numbers: dict[str, Number]


class Display(Protocol):
    def show(self, tick: Tick) -> None: ...
    def say(self, sentence: str) -> None: ...
    def close(self) -> None: ...


class Progress:
    """What a job tells. `seconds` is a clock that only goes forward."""

    def __init__(self, display: Display, seconds: Callable[[], float] = time.perf_counter) -> None:
        self._display = display
        self._seconds = seconds
        self._step = ""
        self._done = 0
        self._total: int | None = None
        self._numbers: dict[str, Number] = {}
        self._began = seconds()

    def step(self, what: str, total: int | None = None) -> None:
        """Something new begins; what went before is over."""
        self._end()
        self._step, self._done, self._total, self._numbers = what, 0, total, {}
        self._began = self._seconds()
        self._show()

    def advance(self, by: int, **numbers: Number) -> None:
        """So much more is done."""
        self.reach(self._done + by, None, **numbers)

    def reach(self, done: int, total: int | None = None, **numbers: Number) -> None:
        """So much is done in all."""
        self._done = done
        self._total = self._total if total is None else total
        self._numbers |= numbers
        self._show()

    def say(self, sentence: str) -> None:
        """Something that is worth a line of its own."""
        self._display.say(sentence)

    def close(self) -> None:
        self._end()
        self._display.close()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _end(self) -> None:
        if self._step:
            self._show(last=True)
            self._step = ""

    def _show(self, last: bool = False) -> None:
        seconds = self._seconds() - self._began
        rate = self._done / seconds if seconds > 0 else 0.0
        self._display.show(Tick(self._step, self._done, self._total, seconds, rate, last, dict(self._numbers)))


class Silent:
    def show(self, tick: Tick) -> None:
        """Nobody looks."""

    def say(self, sentence: str) -> None:
        """Nobody looks."""

    def close(self) -> None:
        """Nothing is open."""


class Lines:
    """A line now and then: one when a step begins, one when it ends, between them at most one each `every_seconds`."""

    def __init__(self, write: Callable[[str], Any], every_seconds: float) -> None:
        self._write = write
        self._every_seconds = every_seconds
        self._next = 0.0

    def show(self, tick: Tick) -> None:
        if not tick.last and 0 < tick.seconds < self._next:
            return
        self._next = 0.0 if tick.last else tick.seconds + self._every_seconds
        self._write(self.line(tick) + "\n")

    def say(self, sentence: str) -> None:
        self._write(sentence + "\n")

    def close(self) -> None:
        """What was written is out."""

    def line(self, tick: Tick) -> str:
        of = f" of {tick.total:,}" if tick.total is not None else ""
        parts = [f"{tick.step}: {tick.done:,}{of} in {tick.seconds:.1f} s"]
        if tick.done:
            parts.append(f"{tick.per_second:,.0f}/s")
        return ", ".join(parts + [f"{name} {_shown(value)}" for name, value in tick.numbers.items()])


class JsonLines(Lines):
    """The same as objects, one a line."""

    def line(self, tick: Tick) -> str:
        return json.encode(tick).decode()

    def say(self, sentence: str) -> None:
        self._write(json.encode({"say": sentence}).decode() + "\n")


class Bars:
    """A bar for each step, by rich."""

    def __init__(self, file: IO[str]) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        text = TextColumn("{task.description}", markup=False)
        numbers = TextColumn("{task.fields[numbers]}", markup=False)
        self._console = Console(file=file, highlight=False)
        self._bars = RichProgress(
            text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), numbers, console=self._console
        )
        self._task: Any = None
        self._bars.start()

    def show(self, tick: Tick) -> None:
        if self._task is None:
            self._task = self._bars.add_task(tick.step, total=tick.total, numbers="")
        numbers = {"per second": round(tick.per_second), **tick.numbers} if tick.done else tick.numbers
        told = "  ".join(f"{name} {_shown(value)}" for name, value in numbers.items())
        total = tick.done if tick.last and tick.total is None else tick.total
        self._bars.update(self._task, completed=tick.done, total=total, numbers=told)
        if tick.last:
            self._task = None

    def say(self, sentence: str) -> None:
        self._console.print(sentence, markup=False)

    def close(self) -> None:
        self._bars.stop()


def progress_of(mode: str, file: IO[str] | None = None) -> Progress:
    """The display that a mode stands for; `auto` is bars where somebody looks, else plain lines."""
    file = file or sys.stderr
    if mode == "auto":
        mode = "rich" if file.isatty() else "plain"
    if mode == "rich":
        return Progress(Bars(file))
    if mode == "none":
        return Progress(Silent())
    lines = JsonLines(file.write, JSON_SECONDS) if mode == "json" else Lines(file.write, PLAIN_SECONDS)
    return Progress(lines)


def _shown(value: Number) -> str:
    return value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
