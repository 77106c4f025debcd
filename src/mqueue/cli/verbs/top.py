"""The busiest topics, over and over: what is waiting, and how fast it comes and goes."""

from __future__ import annotations

import threading
import time
from typing import Annotated, Any

import typer

from mqueue.cli import shapes
from mqueue.cli.output import cell, on_terminal, rich_table
from mqueue.cli.session import Session
from mqueue.cli.verb import USE, verb
from mqueue.model.times import duration_ms

COLUMNS = (
    "topic",
    "depth",
    "ready",
    "leased",
    "scheduled",
    "dead",
    "in_per_second",
    "out_per_second",
    "oldest_ready_seconds",
)

_INTERVAL_MS_MIN = 100
_TOPICS_MAX = 1000
"""Each is a call of its own: of more topics than these the first are looked at."""


def add(app: typer.Typer) -> None:
    verb(app, "top", USE)(top)


def top(
    session: Session,
    interval: Annotated[str, typer.Option("--interval", "-i", help="How often to look again.")] = "2s",
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="Look so often; on a terminal until Ctrl-C, else once.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, max=1000, help="Topics to show.")] = 20,
) -> None:
    """Watch the busiest topics."""
    seconds = max(duration_ms(interval, "interval"), _INTERVAL_MS_MIN) / 1000
    live = session.printer.for_people and on_terminal()
    looks = count if count is not None or live else 1
    if live:
        _watch(session, seconds, looks, limit)
        return
    view = View(session)
    for number in range(looks or 1):
        if number:
            threading.Event().wait(seconds)
        session.printer.rows(COLUMNS, view.look()[:limit])


class View:
    """Remembers the numbers of the last look, to tell rates."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._before: dict[str, dict[str, Any]] = {}
        self._at = 0.0

    def look(self) -> list[dict[str, Any]]:
        """All topics, those with the most to do first."""
        queue = self._session.queue
        now = time.monotonic()
        found = {name: shapes.stats(queue.stats(name)) for name in queue.topics()[:_TOPICS_MAX]}
        for name, numbers in found.items():
            before = self._before.get(name)
            span = now - self._at
            for rate, counter in (("in_per_second", "published"), ("out_per_second", "acked")):
                numbers[rate] = max(0.0, (numbers[counter] - before[counter]) / span) if before and span > 0 else None
        self._before, self._at = found, now
        return sorted(found.values(), key=lambda numbers: (-numbers["depth"], numbers["topic"]))


def _watch(session: Session, seconds: float, looks: int | None, limit: int) -> None:
    from rich.live import Live

    view = View(session)
    never = threading.Event()
    try:
        with Live(_page(view, limit), screen=True, auto_refresh=False) as live:
            while looks is None or looks > 1:
                never.wait(seconds)
                live.update(_page(view, limit), refresh=True)
                looks = None if looks is None else looks - 1
    except KeyboardInterrupt:  # that is how one leaves it
        return


def _page(view: View, limit: int) -> Any:
    found = view.look()
    title = f"{len(found)} topics, {sum(numbers['depth'] for numbers in found):,} messages to do"
    return rich_table(COLUMNS, [[cell(numbers.get(name)) for name in COLUMNS] for numbers in found[:limit]], title)
