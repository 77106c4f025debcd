"""Consuming from the command line: as a member of a group, or reading the log as it lies."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from mqueue.cli import exits
from mqueue.cli.session import Session
from mqueue.cli.taking import Put, ended_by_signals, hand_over, settle, written
from mqueue.cli.verb import USE, Topic, verb

if TYPE_CHECKING:
    from mqueue.broker.message import AnyMessage, Message
    from mqueue.cli.session import Queue

_BATCH = 100
_KEPT_MAX = 10_000
_POLL_SECONDS = 0.5
_WAIT = "20s"


class Wanted(Struct, frozen=True):
    """What was asked for. `start` and `stop`: offsets, or times; None: no such end."""

    topic: str
    group: str | None
    limit: int | None
    follow: bool
    wait: str | None
    visibility: str | None
    start: int | str | None
    stop: int | str | None
    partition: int | None


def add(app: typer.Typer) -> None:
    verb(app, "consume", USE)(consume)


def consume(
    session: Session,
    topic: Topic,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="The group to work for; `default`, unless the log is read.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-l", min=1, help="End after so many.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Do not end: wait for more.")] = False,
    wait: Annotated[str | None, typer.Option("--wait", "-w", help="Wait so long for the first: 10s, 1m.")] = None,
    ack: Annotated[bool, typer.Option("--ack/--no-ack", help="Ack what was printed, or give it back.")] = True,
    visibility: Annotated[str | None, typer.Option("--visibility", help="How long the leases last.")] = None,
    from_time: Annotated[str | None, typer.Option("--from-time", help="Read the log from a time on.")] = None,
    from_offset: Annotated[int | None, typer.Option("--from-offset", min=0, help="… from an offset on.")] = None,
    to_time: Annotated[str | None, typer.Option("--to-time", help="… up to a time.")] = None,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, help="… up to an offset.")] = None,
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="… of one partition.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Before each a line that says what it is.")] = False,
) -> None:
    """Print messages and ack them; or, from an offset or a time on, read the log."""
    start, stop = _one("from", from_time, from_offset), _one("to", to_time, to_offset)
    wanted = Wanted(topic, group, limit, follow, wait, visibility, start, stop, partition)
    _check(wanted, ack)
    with ended_by_signals(), written(session.printer, verbose) as put:
        count = _run(session.queue, wanted, ack, put)
    if not count:
        raise typer.Exit(exits.NOTHING)


def _run(queue: Queue, wanted: Wanted, ack: bool, put: Put) -> int:
    if wanted.start is None and wanted.stop is None and wanted.partition is None:
        return _take(queue, wanted, put) if ack else _show(queue, wanted, put)
    if wanted.group is not None and wanted.stop is None:
        _move(queue, wanted.topic, wanted.group, wanted.start)
        return _take(queue, wanted, put)
    return _replay(queue, wanted, put)


def _take(queue: Queue, wanted: Wanted, put: Put) -> int:
    """Messages of a group, printed and acked batch by batch; how many."""
    count = 0
    while wanted.limit is None or count < wanted.limit:
        room = _BATCH if wanted.limit is None else min(_BATCH, wanted.limit - count)
        messages = _receive(queue, wanted, room, waiting=not count)
        if messages:
            hand_over(queue, messages, put)
            count += len(messages)
        elif not wanted.follow:
            break
    return count


def _show(queue: Queue, wanted: Wanted, put: Put) -> int:
    """The same, and all is given back at the end: given back at once, it would come at once."""
    room = min(wanted.limit or _BATCH, _KEPT_MAX)
    held: list[Message] = []
    try:
        while len(held) < room and (messages := _receive(queue, wanted, room - len(held), waiting=not held)):
            held += messages
            for m in messages:
                put(m)
        sys.stdout.flush()
    finally:
        settle(queue.release, held, "given back")
    return len(held)


def _receive(queue: Queue, wanted: Wanted, room: int, *, waiting: bool) -> list[Message]:
    wait = _WAIT if wanted.follow else wanted.wait if waiting else None
    group = wanted.group or "default"
    return queue.receive(wanted.topic, room, group=group, wait=wait, visibility=wanted.visibility)


def _replay(queue: Queue, wanted: Wanted, put: Put) -> int:
    """The log as it lies. A group that is named stands at the end of it afterwards."""
    found = _tail(queue, wanted) if wanted.follow else _scan(queue, wanted, wanted.start, wanted.partition)
    count = 0
    for m in islice(found, wanted.limit):
        put(m)
        count += 1
    sys.stdout.flush()
    if wanted.group is not None and (wanted.limit is None or count < wanted.limit):
        _move(queue, wanted.topic, wanted.group, wanted.stop)
    return count


def _scan(queue: Queue, wanted: Wanted, start: int | str | None, partition: int | None) -> Iterator[AnyMessage]:
    return queue.scan(wanted.topic, start, wanted.stop, partition=partition)


def _tail(queue: Queue, wanted: Wanted) -> Iterator[AnyMessage]:
    """Each partition from where the last look ended; new ones from the beginning."""
    ends: dict[int, int] = {}
    never = threading.Event()
    while True:
        partitions = range(queue.settings(wanted.topic)["partitions"])
        for number in partitions if wanted.partition is None else [wanted.partition]:
            for m in _scan(queue, wanted, ends.get(number, wanted.start), number):
                ends[number] = m.offset + 1
                yield m
        sys.stdout.flush()
        never.wait(_POLL_SECONDS)


def _move(queue: Queue, topic: str, group: str, to: int | str | None) -> None:
    position = "earliest" if to is None else to
    if group in queue.groups(topic):
        queue.seek(topic, group=group, to=position)
    else:
        queue.create_group(topic, group, start=position)


def _one(end: str, time: str | None, offset: int | None) -> int | str | None:
    if time is not None and offset is not None:
        raise typer.BadParameter("give one of them", param_hint=f"--{end}-time, --{end}-offset")
    return time if offset is None else offset


def _check(wanted: Wanted, ack: bool) -> None:
    reads = wanted.start is not None or wanted.stop is not None or wanted.partition is not None
    if wanted.follow and wanted.stop is not None:
        raise typer.BadParameter("what ends cannot be followed", param_hint="--follow")
    if not ack and (wanted.follow or reads):
        raise typer.BadParameter("it goes with neither --follow nor reading the log", param_hint="--no-ack")
    if wanted.partition is not None and wanted.group is not None:
        raise typer.BadParameter("a group reads all partitions", param_hint="--partition")
