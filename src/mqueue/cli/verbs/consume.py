"""Consuming from the command line: as a member of a group, or reading the log as it lies."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct
from msgspec.structs import replace

from mqueue.cli import exits
from mqueue.cli.interrupts import Interrupts, interrupts
from mqueue.cli.session import Session
from mqueue.cli.taking import Put, hand_over, settle, written
from mqueue.cli.verb import USE, Topic, verb
from mqueue.model.times import duration_ms

if TYPE_CHECKING:
    from mqueue.broker.message import AnyMessage, Message
    from mqueue.cli.session import Queue

_BATCH = 100
_KEPT_MAX = 10_000
_STEP_MS = 500


class Wanted(Struct, frozen=True):
    """What was asked for. `start` and `stop`: offsets, or times; None: no such end."""

    topic: str
    group: str | None
    limit: int | None
    follow: bool
    wait_ms: int
    visibility: str | None
    start: int | str | None
    stop: int | str | None
    partition: int | None
    deleted: bool
    """Also what retention has dropped."""

    @property
    def reads(self) -> bool:
        """Whether the log is to be read, not messages of a group taken."""
        bounded = self.start is not None or self.stop is not None
        return bounded or self.partition is not None or self.deleted


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
    from_snapshot: Annotated[
        str | None, typer.Option("--from-snapshot", help="Read all that was published from a time on, deleted or not.")
    ] = None,
    include_deleted: Annotated[
        bool, typer.Option("--include-deleted", help="Read also what retention has dropped, from the server's lake.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Before each a line that says what it is.")] = False,
) -> None:
    """Print messages and ack them; or, from an offset or a time on, read the log."""
    start = _one("--from-time, --from-offset, --from-snapshot", from_time, from_offset, from_snapshot)
    stop = _one("--to-time, --to-offset", to_time, to_offset)
    deleted = include_deleted or from_snapshot is not None
    wait_ms = 0 if wait is None else duration_ms(wait, "wait")
    wanted = Wanted(topic, group, limit, follow, wait_ms, visibility, start, stop, partition, deleted)
    _check(wanted, ack)
    session.patient = follow
    with interrupts() as heard, written(session.printer, verbose) as put:
        count = _run(session.queue, wanted, ack, put, heard)
    if not count:
        raise typer.Exit(exits.NOTHING)


def _run(queue: Queue, wanted: Wanted, ack: bool, put: Put, heard: Interrupts) -> int:
    if not wanted.reads:
        return _take(queue, wanted, put, heard) if ack else _show(queue, wanted, put, heard)
    if wanted.group is not None and wanted.stop is None:
        _move(queue, wanted.topic, wanted.group, wanted.start)
        return _take(queue, wanted, put, heard)
    if wanted.group is not None and isinstance(wanted.stop, int):  # a group does not stand behind the end
        end = max(known.next for known in queue.offsets(wanted.topic))
        wanted = replace(wanted, stop=min(wanted.stop, end))
    return _replay(queue, wanted, put, heard)


def _take(queue: Queue, wanted: Wanted, put: Put, heard: Interrupts) -> int:
    """Messages of a group, printed and acked batch by batch; how many."""
    count = 0
    while wanted.limit is None or count < wanted.limit:
        room = _BATCH if wanted.limit is None else min(_BATCH, wanted.limit - count)
        messages = _receive(queue, wanted, room, 0 if count else wanted.wait_ms, heard)
        if not messages:
            break
        hand_over(queue, messages, put, heard)
        count += len(messages)
    return count


def _show(queue: Queue, wanted: Wanted, put: Put, heard: Interrupts) -> int:
    """The same, and all is given back at the end: given back at once, it would come at once."""
    room = min(wanted.limit or _BATCH, _KEPT_MAX)
    held: list[Message] = []
    try:
        while len(held) < room:
            messages = _receive(queue, wanted, room - len(held), 0 if held else wanted.wait_ms, heard)
            if not messages:
                break
            held += messages
            with heard.free():
                for m in messages:
                    put(m)
                sys.stdout.flush()
    finally:
        settle(queue.release, held, "given back")
    return len(held)


def _receive(queue: Queue, wanted: Wanted, room: int, wait_ms: int, heard: Interrupts) -> list[Message]:
    """The next messages; while there are none, wait in short steps, between which we may be told to stop."""
    while True:
        heard.check()
        step_ms = _STEP_MS if wanted.follow else min(_STEP_MS, wait_ms)
        found = queue.receive(
            wanted.topic,
            room,
            group=wanted.group or "default",
            wait=step_ms / 1000 if step_ms else None,
            visibility=wanted.visibility,
        )
        wait_ms -= step_ms
        if found or (wait_ms <= 0 and not wanted.follow):
            return found


def _replay(queue: Queue, wanted: Wanted, put: Put, heard: Interrupts) -> int:
    """The log as it lies. A group that is named stands at the end of it afterwards."""
    found = _tail(queue, wanted, heard) if wanted.follow else _whole(queue, wanted, wanted.partition)
    count = 0
    for m in islice(found, wanted.limit):
        with heard.free():
            put(m)
        count += 1
    sys.stdout.flush()
    if wanted.group is not None and (wanted.limit is None or count < wanted.limit):
        _move(queue, wanted.topic, wanted.group, wanted.stop)
    return count


def _whole(queue: Queue, wanted: Wanted, partition: int | None) -> Iterator[AnyMessage]:
    return queue.scan(wanted.topic, wanted.start, wanted.stop, partition=partition, include_deleted=wanted.deleted)


def _tail(queue: Queue, wanted: Wanted, heard: Interrupts) -> Iterator[AnyMessage]:
    """Each partition from where the last look at it ended."""
    ends: dict[int, int] = {}
    never = threading.Event()
    while True:
        partitions = range(queue.settings(wanted.topic)["partitions"])
        for number in partitions if wanted.partition is None else [wanted.partition]:
            for m in _next(queue, wanted, number, ends.get(number)):
                ends[number] = m.offset + 1
                yield m
        with heard.free():
            sys.stdout.flush()
            never.wait(_STEP_MS / 1000)


def _next(queue: Queue, wanted: Wanted, partition: int, end: int | None) -> Iterator[AnyMessage]:
    """What has come behind the end of the last look; at first all that was asked for."""
    if end is None:
        return _whole(queue, wanted, partition)
    return queue.scan(wanted.topic, end, partition=partition)


def _move(queue: Queue, topic: str, group: str, to: int | str | None) -> None:
    position = "earliest" if to is None else to
    if group in queue.groups(topic):
        queue.seek(topic, group=group, to=position)
    else:
        queue.create_group(topic, group, start=position)


def _one(names: str, *ends: int | str | None) -> int | str | None:
    given = [end for end in ends if end is not None]
    if len(given) > 1:
        raise typer.BadParameter("give one of them", param_hint=names)
    return given[0] if given else None


def _check(wanted: Wanted, ack: bool) -> None:
    if wanted.follow and wanted.stop is not None:
        raise typer.BadParameter("what ends cannot be followed", param_hint="--follow")
    if not ack and (wanted.follow or wanted.reads):
        raise typer.BadParameter("it goes with neither --follow nor reading the log", param_hint="--no-ack")
    if wanted.deleted and wanted.group is not None:
        raise typer.BadParameter(
            "a group is given what is there; what was deleted can only be read",
            param_hint="--include-deleted, --from-snapshot",
        )
    if wanted.partition is not None and wanted.group is not None:
        raise typer.BadParameter("a group reads all partitions", param_hint="--partition")
