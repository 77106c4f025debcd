"""Two invariants that compare the broker's own books with what its callers saw: traces and statistics."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from mqueue.model.lifecycle import DELIVERY_MOVES, Kind, State
from tests.laws.history import History, Record
from tests.laws.lives import lives

_MOVES: dict[str, State] = {
    Kind.DELIVERED: State.LEASED,
    Kind.REDELIVERED: State.LEASED,
    Kind.ACKNOWLEDGED: State.ACKED,
    Kind.NACKED: State.WAITING,
    Kind.RELEASED: State.READY,
    Kind.TIMED_OUT: State.READY,
    Kind.DEAD: State.DEAD,
    Kind.REDRIVEN: State.READY,
}
"""Where a group has a message after an event of its trace."""
_GROUP = re.compile(r"(?:to )?([A-Za-z0-9_.-]+)")


def trace_is_told(history: History) -> Iterator[str]:
    """I15: a trace begins with the publish, never goes back in time, makes only the moves of the life-cycle, and tells
    of exactly the deliveries and acks that callers saw."""
    moved = bool(history.of("seek"))
    known, traces = lives(history), history.last("traces")
    for id, events in traces.items():
        if not events or events[0][1] != Kind.PUBLISHED:
            yield f"the trace of {id} does not begin with its publish"
        if any(later[0] < earlier[0] for earlier, later in pairwise(events)):
            yield f"the trace of {id} goes back in time"
        told: dict[str, list[str]] = defaultdict(list)
        for _, kind, detail in events:
            if kind in _MOVES and (found := _GROUP.match(detail)):
                told[found[1]].append(kind)
        for group in history.rules["groups"]:
            yield from _moves(id, group, told[group], moved)
            life = known.get((group, id))
            if life is not None:
                counts = Counter(told[group])
                if counts[Kind.DELIVERED] + counts[Kind.REDELIVERED] != len(life.deliveries):
                    yield f"the trace of {id} has not the deliveries that {group} saw"
                acks = len({settle.args["token"] for settle in life.settles("ack")})
                if counts[Kind.ACKNOWLEDGED] < acks:
                    yield f"the trace of {id} lacks an ack of {group}"


def _moves(id: int, group: str, kinds: list[str], moved: bool) -> Iterator[str]:
    """Whether a group made only moves that the table has. Time makes a waiting message ready, and tells nobody."""
    state = State.READY
    for kind in kinds:
        target = _MOVES[kind]
        steps = {(state, target)} | ({(State.READY, target)} if state is State.WAITING else set())
        if not steps & DELIVERY_MOVES and not (moved and target is State.LEASED):
            yield f"the trace of {id} in {group} goes from {state} to {target}"
        state = target


def nothing_miscounted(history: History) -> Iterator[str]:
    """I17: what was published is, for every group, in exactly one state; and the numbers are those that callers saw."""
    stats, scan = history.last("stats"), history.last("scan")
    if stats.published != len(scan):
        yield f"{stats.published} published, {len(scan)} in the log"
    sought = {record.args["group"] for record in history.of("seek")}
    for name in history.rules["groups"]:
        group = stats.groups[name]
        numbers = (group.ready, group.waiting, group.leased, group.acked, group.dead, group.expired, group.cancelled)
        if min(numbers) < 0:
            yield f"negative numbers in {name}: {group}"
        if name not in sought and sum(numbers) + stats.scheduled + group.lapsed != stats.published:
            yield f"{name} counts {sum(numbers)} and {stats.scheduled} scheduled of {stats.published}: {group}"
        mine = [life for life in lives(history).values() if life.group == name]
        if not history.of("redrive"):
            seen = sum(len(life.deliveries) for life in mine)
            if group.delivered != seen:
                yield f"{name} counts {group.delivered} deliveries, {seen} were seen"
        if not history.of("redrive", "purge") and name not in sought and all(not life.may_end for life in mine):
            done = sum(bool(life.settles("ack")) or _once(life.deliveries) for life in mine)
            dead = sum(life.deaths() or 0 for life in mine)
            if (group.acked, group.dead) != (done, dead):
                yield f"{name} counts {group.acked} acked and {group.dead} dead, {done} and {dead} were"


def _once(deliveries: list[Record]) -> bool:
    return any(delivery.args["mode"] == "at_most_once" for delivery in deliveries)
