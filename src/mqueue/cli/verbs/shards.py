"""The PostgreSQL servers of a cluster: what each has, one more of them, virtual shards that go from one to another."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import to_builtins

from mqueue.cli import exits
from mqueue.cli.output import Output, Printer
from mqueue.cli.verb import RUN, Yes, below, confirm, local_verb
from mqueue.model.errors import Refused
from mqueue.model.names import check_name

if TYPE_CHECKING:
    from mqueue.cluster.moving.fleet import Fleet, Plan
    from mqueue.cluster.moving.mover import Done
    from mqueue.config import Config

_COLUMNS = ("place", "server", "state", "vshards", "topics", "messages", "bytes", "nodes", "coming", "going", "remains")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")

File = Annotated[str | None, typer.Option("--config", "-c", help="A YAML file. [MQUEUE_CONFIG]")]
Shown = Annotated[Output, typer.Option("--output", "-o", help="Tables for people, JSON for programs.")]
Force = Annotated[bool, typer.Option("--force", help="Also if nodes do not know the server that things go to.")]
Rate = Annotated[float, typer.Option("--rate", min=0, help="Copy at most so many MB a second; 0: as fast as it goes.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would go where.")]


def add(app: typer.Typer) -> None:
    inner = below(app, "shards", RUN, "The servers of a cluster: list, add, move, drain, rebalance.")
    local_verb(inner, "list")(list_servers)
    local_verb(inner, "add")(add_server)
    local_verb(inner, "move")(move)
    local_verb(inner, "drain")(drain)
    local_verb(inner, "rebalance")(rebalance)


def list_servers(config: File = None, output: Shown = Output.table) -> None:
    """What each server has, what is on its way, and where servers contradict each other: then it ends with 1."""
    printer = Printer(output)
    with _fleet(config) as fleet:
        views = [to_builtins(view) for view in fleet.views()]
        found = fleet.map()
    if not printer.for_people:
        printer.one({"servers": views, "moves": to_builtins(found.moves), "troubles": to_builtins(found.troubles)})
    else:
        printer.rows(_COLUMNS, [{**view, "nodes": _nodes(view["nodes"])} for view in views])
        for one in found.moves:
            state = "has left, and is not active yet" if one.left else "is being copied"
            print(f"virtual shard {one.vshard}: server {one.source} → {one.target}, {state}")
        for view in views:
            if view["mover"]:
                print(f"somebody is moving virtual shards away from server {view['place']}")
    for trouble in found.troubles:
        exits.complain(f"virtual shard {trouble.vshard}: {trouble.why} ({trouble.code})")
    if found.troubles or any(view["state"] != "up" for view in views):
        raise typer.Exit(exits.FAILED)


def add_server(
    url: Annotated[str, typer.Argument(help="The URL of its database, as in DATABASE_URLS.", show_default=False)],
    config: File = None,
    output: Shown = Output.table,
) -> None:
    """Let one more server join: it gets the next place, and nothing to serve until something is moved there."""
    told = _config(config)
    from mqueue.assembly import sharding

    place, server = sharding.add(told, url)
    if Printer(output).for_people:
        print(f"{server} is server {place} now: append it to DATABASE_URLS and start the nodes again, one by one;")
        print("then `mqueue shards rebalance`")
    else:
        Printer(output).one({"place": place, "server": server})


def move(
    what: Annotated[str | None, typer.Argument(help="A virtual shard (7), some (0-99), or a topic.")] = None,
    to: Annotated[int | None, typer.Option("--to", min=0, help="The place of the server that they go to.")] = None,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Of the topic.")] = "default",
    topic: Annotated[bool, typer.Option("--topic", help="It is a topic, though it looks like a number.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Bring to an end what somebody has begun.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Give up what somebody has begun and has not left yet.")] = False,
    drop_stale: Annotated[
        bool, typer.Option("--drop-stale", help="Delete what a server has that was set back, and went on elsewhere.")
    ] = False,
    yes: Yes = False,
    force: Force = False,
    rate: Rate = 0.0,
    config: File = None,
    output: Shown = Output.table,
) -> None:
    """Move virtual shards to another server, while they are used."""
    if (what is None) != (to is None) or sum((what is not None, resume, undo, drop_stale)) != 1:
        raise Refused("say what to move and --to where, or --resume, or --undo, or --drop-stale", code="bad_usage")
    with _fleet(config) as fleet:
        fleet.check()
        if resume:
            _show(fleet.resume(rate * 1e6), output)
        elif undo:
            given_up = list(fleet.undo())
            _tell(output, {"undone": given_up}, f"undone: {len(given_up)} virtual shards stay where they are")
        elif drop_stale:
            _drop_stale(fleet, yes, output)
        else:
            assert what is not None
            assert to is not None
            _do(fleet, fleet.to(_vshards(what, namespace, topic), to), output, force=force, rate=rate)


def drain(
    server: Annotated[int, typer.Argument(help="Its place.", show_default=False, min=0)],
    dry_run: DryRun = False,
    force: Force = False,
    rate: Rate = 0.0,
    config: File = None,
    output: Shown = Output.table,
) -> None:
    """Move everything away from a server, to the others alike."""
    with _fleet(config) as fleet:
        fleet.check()
        _do(fleet, fleet.drained(server), output, dry_run=dry_run, force=force, rate=rate)


def rebalance(
    dry_run: DryRun = False, force: Force = False, rate: Rate = 0.0, config: File = None, output: Shown = Output.table
) -> None:
    """Let all servers have as many virtual shards, moving as few as possible."""
    with _fleet(config) as fleet:
        fleet.check()
        _do(fleet, fleet.rebalanced(), output, dry_run=dry_run, force=force, rate=rate)


def _config(file: str | None) -> Config:
    from mqueue.config import load

    return load(file, os.environ)


@contextmanager
def _fleet(file: str | None) -> Iterator[Fleet]:
    told = _config(file)
    try:
        from mqueue.assembly import sharding
    except ModuleNotFoundError as error:
        exits.complain(f"a cluster needs {error.name}: pip install 'mqueue[cluster]'")
        raise typer.Exit(exits.FAILED) from None
    with sharding.fleet(told) as found:
        yield found


def _vshards(what: str, namespace: str, topic: bool) -> list[int]:
    found = None if topic else _RANGE.fullmatch(what)
    if found is None:
        from mqueue.policy.routing import virtual_shard  # it brings numpy

        return [virtual_shard(check_name(namespace, "namespace"), check_name(what, "topic"))]
    first, last = int(found[1]), int(found[2] or found[1])
    if last < first:
        raise Refused(f"{what}: the first of them is larger than the last", code="bad_usage")
    return list(range(first, last + 1))


def _do(
    fleet: Fleet, plan: Plan, output: Output, *, dry_run: bool = False, force: bool = False, rate: float = 0.0
) -> None:
    if dry_run or not plan:
        ways = [{"source": s, "target": t, "count": len(these), "vshards": these} for (s, t), these in plan.items()]
        for_people = [f"{way['count']} virtual shards: server {way['source']} → {way['target']}" for way in ways]
        _tell(output, {"plan": ways}, "\n".join(for_people) or "nothing is to be moved")
    else:
        _show(fleet.move(plan, force=force, rate=rate * 1e6), output)


def _drop_stale(fleet: Fleet, yes: bool, output: Output) -> None:
    """After saying what that is."""
    stale = fleet.stale()
    for (place, home), found in stale.items():
        count = sum(found.values())
        which = ", ".join(map(str, found))
        exits.complain(f"server {place} has {count} messages of virtual shards that went on at server {home}: {which}")
    if stale:
        confirm("Delete what these servers have of them?", yes)
    dropped = list(fleet.drop_stale())
    _tell(output, {"dropped": dropped}, f"dropped: what was out of date of {len(dropped)} virtual shards")


def _show(moves: Iterable[Done], output: Output) -> None:
    printer = Printer(output)
    if not printer.for_people:
        with printer.stream() as put:
            for done in moves:
                put(to_builtins(done))
        return
    count = 0
    for done in moves:
        count += len(done.vshards)
        print(_line(done), flush=True)
    print(f"{count} virtual shards moved")


def _line(done: Done) -> str:
    which = f"virtual shard {done.vshards[0]}" if len(done.vshards) == 1 else f"{len(done.vshards)} virtual shards"
    copied = done.copied
    return (
        f"{which}: server {done.source} → {done.target}, paused {done.pause_ms} ms,"
        f" {copied.frames} frames, {copied.rows} rows, {copied.bytes / 1e6:.1f} MB"
    )


def _tell(output: Output, record: dict[str, Any], sentence: str) -> None:
    if Printer(output).for_people:
        print(sentence)
    else:
        Printer(output).one(record)


def _nodes(nodes: dict[str, int]) -> str:
    return ", ".join(f"{address or 'nobody'}: {count}" for address, count in nodes.items()) or "-"
