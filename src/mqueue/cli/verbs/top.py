"""The busiest topics, over and over: what is waiting, how fast it comes and goes, what fails."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mqueue.cli.keys import Keys
from mqueue.cli.output import cell, on_terminal
from mqueue.cli.overview import SORTED_BY, Choice, Control, Look, Record, Sort, View
from mqueue.cli.session import Session
from mqueue.cli.verb import USE, verb
from mqueue.model.errors import Error
from mqueue.model.times import duration_ms

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

COLUMNS = {
    "namespace": "NAMESPACE",
    "topic": "TOPIC",
    "in_per_second": "IN/S",
    "out_per_second": "OUT/S",
    "depth": "DEPTH",
    "ready": "READY",
    "leased": "IN FLIGHT",
    "waiting": "RETRIES",
    "scheduled": "SCHEDULED",
    "dead": "DEAD",
    "oldest_ready_seconds": "OLDEST",
}
"""What is shown, and what it is called on a terminal."""
_LEFT = ("namespace", "topic")
_INTERVAL_MS_MIN = 100
_LATE_SECONDS = 300
"""A message that has waited for longer is worth a colour; a tenth of it, a weaker one."""
_MARGIN = 5
"""Lines beside the rows."""
_HELP = (
    "s S  sort by another column      r  the other way round      /  filter: text or order*      esc  no filter\n"
    "↑ ↓  scroll      p  pause      ?  this      q  leave"
)


def add(app: typer.Typer) -> None:
    verb(app, "top", USE)(top)


def top(
    session: Session,
    interval: Annotated[str, typer.Option("--interval", "-i", help="How often to look again.")] = "2s",
    count: Annotated[int | None, typer.Option("--count", min=1, help="Look so often, then end.")] = None,
    once: Annotated[bool, typer.Option("--once", help="One look, with rates over the interval; as in a pipe.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, max=1000, help="Topics to show.")] = 1000,
    sort: Annotated[Sort, typer.Option("--sort", "-s", help="What comes first.")] = Sort.depth,
    reverse: Annotated[bool, typer.Option("--reverse", "-r", help="The other way round.")] = False,
    filter: Annotated[str, typer.Option("--filter", "-f", help="Part of a name, or a pattern: 'order*'.")] = "",
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Topics of all tenants.")] = False,
) -> None:
    """Watch topics: rates, depth, age, what is in flight, fails and dies."""
    seconds = max(duration_ms(interval, "interval"), _INTERVAL_MS_MIN) / 1000
    choice = Choice(sort, reverse, filter)
    view = View(session, everywhere)
    if session.printer.for_people and on_terminal() and not once:
        _watch(view, Control(choice), _Page(session.context.url, everywhere, limit), seconds, count)
        return
    never = threading.Event()
    for number in range(count or 2):
        if number:
            never.wait(seconds)
        look = view.look(choice)
        if count or number:
            columns = [name for name in COLUMNS if everywhere or name != "namespace"]
            session.printer.rows(columns, choice.of(look)[:limit])
            if look.more:
                print(f"{look.more:,} more topics were not looked at", file=sys.stderr)


def _watch(view: View, control: Control, page: _Page, seconds: float, count: int | None) -> None:
    """Until somebody leaves, or so many looks were taken. A server that goes away comes back."""
    from rich.console import Console
    from rich.live import Live

    look = view.look(control.choice)  # what is wrong from the beginning is told as everywhere
    looks = 1
    due = time.monotonic() + seconds
    screen = Live(page.drawn(look, control), console=Console(), screen=True, auto_refresh=False)
    try:
        with Keys() as keys, screen as live:
            while count is None or looks < count:
                for key in keys.wait(due - time.monotonic()):
                    if not control.act(key):
                        return
                if time.monotonic() >= due:
                    due = time.monotonic() + seconds
                    looks += 1
                    if not control.paused:
                        look = _looked(view, look, control.choice)
                live.update(page.drawn(look, control), refresh=True)
    except KeyboardInterrupt:  # that is how one leaves it
        return


def _looked(view: View, last: Look, choice: Choice) -> Look:
    try:
        return view.look(choice)
    except Error as error:
        return Look(last.records, {error.code: len(last.records)}, last.more)


class _Page:
    """A look, drawn. What comes from names is taken to the letter: it may look like markup."""

    def __init__(self, url: str, everywhere: bool, limit: int) -> None:
        self._url = url
        self._limit = limit
        self._columns = [name for name in COLUMNS if everywhere or name != "namespace"]

    def drawn(self, look: Look, control: Control) -> RenderableType:
        return _Drawing(self, look, control)

    def lines(self, look: Look, control: Control, height: int) -> list[RenderableType]:
        from rich.text import Text

        chosen = control.choice.of(look)[: self._limit]
        room = max(1, height - _MARGIN)
        control.first = min(control.first, max(0, len(chosen) - room))
        rows = chosen[control.first : control.first + room]
        lines: list[RenderableType] = [self._title(look, chosen), self._table(rows, control.choice)]
        if look.trouble:
            told = ", ".join(f"{code}: no new numbers of {topics} topics" for code, topics in look.trouble.items())
            lines.insert(1, Text(told, style="bold red", no_wrap=True, overflow="ellipsis"))
        hidden = len(chosen) - len(rows)
        if hidden > 0:
            lines.append(Text(f"{control.first + 1}–{control.first + len(rows)} of {len(chosen)}", style="dim"))
        return [*lines, Text(_HELP if control.helped else _status(control), style="dim")]

    def _title(self, look: Look, chosen: list[Record]) -> Any:
        from rich.text import Text

        title = Text(overflow="ellipsis", no_wrap=True)
        title.append(f"{len(chosen):,} topics, {look.total('depth'):,.0f} messages to do", "bold")
        title.append(f", {look.total('leased'):,.0f} in flight, in {look.total('in_per_second'):,.0f}/s, ")
        title.append(f"out {look.total('out_per_second'):,.0f}/s")
        if look.more:
            title.append(f"  and {look.more:,} topics that are not looked at", "yellow")
        title.append(f"  {self._url}", "dim")
        return title

    def _table(self, rows: list[Record], choice: Choice) -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, expand=True, header_style="bold")
        for name in self._columns:
            head = Text(COLUMNS[name], "bold reverse" if name == SORTED_BY[choice.sort] else "bold")
            if name in _LEFT:
                table.add_column(head, no_wrap=True, overflow="ellipsis", ratio=1 if name == "topic" else None)
            else:
                table.add_column(head, justify="right", no_wrap=True)
        for row in rows:
            table.add_row(*(Text(_shown(name, row[name]), style=_style(name, row[name])) for name in self._columns))
        return table


class _Drawing:
    """Drawn when the size of the terminal is known: it may have changed."""

    def __init__(self, page: _Page, look: Look, control: Control) -> None:
        self._page, self._look, self._control = page, look, control

    def __rich_console__(self, console: Console, options: Any) -> Any:
        yield from self._page.lines(self._look, self._control, options.max_height)


def _status(control: Control) -> str:
    choice = control.choice
    if control.typing:
        return f"filter: {choice.filter}▏"
    parts = [f"by {choice.sort.value}{', the other way round' if choice.reverse else ''}"]
    if choice.filter:
        parts.append(f"filter {choice.filter}")
    if control.paused:
        parts.append("paused")
    return "  ".join([*parts, "? help  q leave"])


def _shown(name: str, value: Any) -> str:
    if name == "oldest_ready_seconds" and value is not None:
        return age(value)
    if isinstance(value, int):
        return f"{value:,}"
    return cell(value)


def age(seconds: float) -> str:
    """`4.2s`, `3m12s`, `5h03m`, `9d04h`."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 24:
        return f"{hours // 24}d{hours % 24:02}h"
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"


def _style(name: str, value: Any) -> str:
    if name == "dead" and value:
        return "red"
    if name == "waiting" and value:
        return "yellow"
    if name == "oldest_ready_seconds" and value:
        return "bold red" if value >= _LATE_SECONDS else "yellow" if value >= _LATE_SECONDS / 10 else ""
    return "dim" if value in (0, None) and name not in _LEFT else ""
