"""What must hold of every history, whatever was broken meanwhile: one function a rule, each yields what breaks it.

They report only what is certain: an effect lies somewhere between the moments in which a call began and ended, and a
call of which nobody knows what became of it may have happened, or not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from msgspec import Struct

from tests.cluster.faults.history import KEYED, NO, OK, UNKNOWN, Final, History, Publish, Receive, Row, Settle

ROUNDING_SECONDS = 0.002
"""Servers count in milliseconds."""

Check = Callable[[History, Final], Iterator[str]]


class Hold(Struct):
    """A message in somebody's hands, for certain: from when it was answered until its time is up or it is let go."""

    id: int
    token: str
    begun: float
    """When it was asked for."""
    start: float
    stop: float
    until: float
    """When its time is up, if it is not let go before."""
    attempt: int
    let_go: bool = False
    """Whether its holder asked for it to be settled, in whatever way."""


def wrong(history: History, final: Final) -> list[str]:
    return [sentence for check in CHECKS for sentence in check(history, final)]


# What is published


def lost(history: History, final: Final) -> Iterator[str]:
    """What was answered is in the log, has been delivered or is dead."""
    there = {row.uid for row in final.rows}
    dead = {row.uid for row in _dead_rows(final)}
    delivered = {got.uid for call in history.answered(Receive) for got in call.got}
    answered = {sent.uid for call in history.answered(Publish) for sent in call.sent}
    yield from told("published and not in the log", answered - there)
    yield from told("published and never delivered", answered - delivered - dead)


def phantoms(history: History, final: Final) -> Iterator[str]:
    """Nothing is there that nobody published, or that was refused."""
    tried: dict[int, set[str]] = defaultdict(set)
    for call in history.of(Publish):
        for sent in call.sent:
            tried[sent.uid].add(call.outcome)
    there = {row.uid for row in final.rows} | {g.uid for call in history.answered(Receive) for g in call.got}
    yield from told("published by nobody", there - tried.keys())
    yield from told("refused and yet there", (uid for uid in there if tried[uid] == {NO}))


def doubled(history: History, final: Final) -> Iterator[str]:
    """Each message is in the log once: none is handed in twice but with an idempotency key."""
    places: dict[int, set[int]] = defaultdict(set)
    for row in final.rows:
        places[row.uid].add(row.id)
    for call in history.answered(Receive):
        for got in call.got:
            places[got.uid].add(got.id)
    yield from told("there more than once", (uid for uid, ids in places.items() if len(ids) > 1))


def repeated(history: History, final: Final) -> Iterator[str]:
    """An idempotency key belongs to one message."""
    ids: dict[tuple[str, str], set[int]] = defaultdict(set)
    for call in history.answered(Publish):
        for sent, receipt in zip(call.sent, call.receipts, strict=True):
            if sent.once is not None:
                ids[call.topic, sent.once].add(receipt.id)
    yield from told("idempotency keys with several messages", (key for key, found in ids.items() if len(found) > 1))


def misplaced(history: History, final: Final) -> Iterator[str]:
    """A message is where its receipt says, and is the one that was handed in; the same wherever it is delivered."""
    rows = {row.id: row for row in final.rows}
    sent = {one.uid: one.digest for call in history.of(Publish) for one in call.sent}
    bad: list[object] = []
    for call in history.answered(Publish):
        for one, receipt in zip(call.sent, call.receipts, strict=True):
            row = rows.get(receipt.id)
            known = receipt.offset < 0 or (row and (row.partition, row.offset) == (receipt.partition, receipt.offset))
            if row is not None and (not known or row.uid != one.uid):
                bad.append((receipt, row))
    for got in (got for call in history.answered(Receive) for got in call.got):
        row = rows.get(got.id)
        if row is not None and (row.partition, row.offset, row.uid) != (got.partition, got.offset, got.uid):
            bad.append((got, row))
    yield from told("not where they were said to be", bad)
    changed = [row for row in final.rows if sent.get(row.uid, row.digest) != row.digest]
    seen = (got for call in history.answered(Receive) for got in call.got)
    yield from told("not what was handed in", [*changed, *(g for g in seen if sent.get(g.uid, g.digest) != g.digest)])


def gaps(history: History, final: Final) -> Iterator[str]:
    """Offsets of a partition are 0, 1, 2 …"""
    places: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row in final.rows:
        places[row.topic, row.partition].append(row.offset)
    bad = (place for place, offsets in places.items() if sorted(offsets) != list(range(len(offsets))))
    yield from told("partitions whose offsets have gaps", bad)


# What is delivered


def held_twice(history: History, final: Final) -> Iterator[str]:
    """No message is in two hands at once."""
    bad = []
    for id, found in holds(history).items():
        latest: Hold | None = None
        for hold in sorted(found, key=lambda hold: hold.start):
            if latest is not None and hold.stop > hold.start and hold.start < latest.stop:
                bad.append((id, latest.token, hold.token, f"for {latest.stop - hold.start:.3f} s"))
            if latest is None or hold.stop > latest.stop:
                latest = hold
    yield from told("held by two at once", bad)


def falling(history: History, final: Final) -> Iterator[str]:
    """Of two leases of a message the later one has the greater token."""
    bad = []
    for id, found in holds(history).items():
        for before, after in pairwise(sorted(found, key=lambda hold: hold.start)):
            if before.start < after.begun and before.token >= after.token:
                bad.append((id, before.token, after.token))
    yield from told("tokens that do not rise", bad)


def stale(history: History, final: Final) -> Iterator[str]:
    """Whoever has lost a message settles it no more. A call that is repeated is answered as the first was."""
    given = holds(history)
    tried: set[tuple[str, str, int]] = set()
    bad = []
    for call in sorted(history.of(Settle), key=lambda call: call.begun):
        for id in call.settled:
            later = any(hold.token > call.token and hold.start < call.begun for hold in given.get(id, ()))
            if later and (call.verb, call.token, id) not in tried:
                bad.append((call.verb, call.token, id))
        if call.outcome != NO:
            tried |= {(call.verb, call.token, id) for id in call.ids}
    yield from told("settled by a token that was stale", bad)


def refused(history: History, final: Final) -> Iterator[str]:
    """Whoever holds a message, for certain, is not told that he lost it."""
    given = {(hold.token, hold.id): hold for found in holds(history).values() for hold in found}
    begun: set[tuple[str, int]] = set()
    bad = []
    for call in sorted(history.of(Settle), key=lambda call: call.begun):
        for id in call.lost if call.outcome != UNKNOWN else ():
            hold = given.get((call.token, id))
            if hold is not None and call.ended < hold.until and (call.token, id) not in begun:
                bad.append((call.verb, call.token, id))
        if call.verb != "extend":
            begun |= {(call.token, id) for id in call.ids}
    yield from told("refused though they were held", bad)


def acked_again(history: History, final: Final) -> Iterator[str]:
    """What is acked is never delivered again, and is not dead."""
    acked: dict[int, float] = {}
    for call in history.answered(Settle):
        if call.verb == "ack":
            for id in call.settled:
                acked[id] = min(acked.get(id, call.ended), call.ended)
    again = {
        got.id for call in history.answered(Receive) for got in call.got if acked.get(got.id, call.begun) < call.begun
    }
    yield from told("delivered again after they were acked", again)
    yield from told("acked and dead", acked.keys() & {dead.id for dead in final.dead})


def out_of_order(history: History, final: Final) -> Iterator[str]:
    """Where nothing but the offset decides, first deliveries follow it. What somebody may hold of whom we know nothing
    is passed over rightly."""
    topics = {topic.name for topic in history.topics.values() if topic.kind == KEYED}
    calls: dict[str, list[Receive]] = defaultdict(list)
    for call in history.of(Receive):
        if call.topic in topics:
            calls[call.topic].append(call)
    bad = [found for topic in topics for found in _overtaken(calls[topic])]
    yield from told("overtaken by a later one of their partition", bad)
    mixed = (call for call in history.answered(Receive) if not _is_sorted([got.priority for got in call.got]))
    yield from told("answers with the less urgent first", (call.token for call in mixed))


def early(history: History, final: Final) -> Iterator[str]:
    """Nothing is delivered before its time."""
    due: dict[int, float] = {}
    for call in history.of(Publish):
        for sent in call.sent:
            due[sent.uid] = min(due.get(sent.uid, float("inf")), call.begun + sent.delay)
    bad = [
        (got.uid, f"{due[got.uid] - call.ended:.3f} s")
        for call in history.answered(Receive)
        for got in call.got
        if call.ended + ROUNDING_SECONDS < due.get(got.uid, 0)
    ]
    yield from told("delivered early", bad)


def attempts(history: History, final: Final) -> Iterator[str]:
    """Attempts rise, but for what was given back, and are never too many; who is dead had all of them."""
    most = {topic.name: topic.attempts_max for topic in history.topics.values()}
    over = [got for call in history.answered(Receive) for got in call.got if got.attempt > most[call.topic]]
    yield from told("tried too often", over)
    given_back = {(c.token, id) for c in history.of(Settle) if c.verb == "release" and c.outcome != NO for id in c.ids}
    bad = []
    for id, found in holds(history).items():
        for before, after in pairwise(sorted(found, key=lambda hold: hold.start)):
            if before.start < after.begun and before.attempt >= after.attempt and (before.token, id) not in given_back:
                bad.append((id, before.attempt, after.attempt))
    yield from told("attempts that do not rise", bad)
    rejected = {id for call in history.of(Settle) if call.verb == "reject" for id in call.ids}
    hasty = (dead for dead in final.dead if dead.attempts != most[dead.topic] and dead.id not in rejected)
    yield from told("dead before their last attempt", hasty)


def left(history: History, final: Final) -> Iterator[str]:
    """In the end everything is acked or dead, and by somebody who asked for it."""
    yield from told("topics that are not empty", (place for place in final.left.items() if place[1]))
    asked = {id for call in history.of(Settle) if call.verb == "ack" and call.outcome != NO for id in call.ids}
    dead = {dead.id for dead in final.dead}
    rows = (row for row in final.rows if row.topic in final.left)
    yield from told("gone, and nobody acked them", (row for row in rows if row.id not in asked and row.id not in dead))
    counted: dict[int, int] = defaultdict(int)
    for one in final.dead:
        counted[one.id] += 1
    yield from told("dead more than once", (id for id, count in counted.items() if count > 1))


CHECKS: tuple[Check, ...] = (
    *(lost, phantoms, doubled, repeated, misplaced, gaps),
    *(held_twice, falling, stale, refused, acked_again, out_of_order, early, attempts, left),
)


def holds(history: History) -> dict[int, list[Hold]]:
    """By message, everybody who had it in hands."""
    found: dict[int, list[Hold]] = defaultdict(list)
    known: dict[tuple[str, int], Hold] = {}
    for call in history.answered(Receive):
        for got in call.got:
            until = call.begun + call.lasting
            hold = Hold(got.id, call.token, call.begun, call.ended, until, until, got.attempt)
            known[call.token, got.id] = hold
            found[got.id].append(hold)
    for settle in sorted(history.of(Settle), key=lambda call: call.begun):
        for id in settle.ids:
            mine = known.get((settle.token, id))
            if mine is not None:
                _change(mine, settle, id)
    return found


def _change(hold: Hold, call: Settle, id: int) -> None:
    """An extend holds it for so long from then on, be that less; whoever settles has let go when he asks."""
    if call.verb != "extend":
        hold.stop, hold.let_go = min(hold.stop, call.begun), True
    elif not hold.let_go:
        until = call.begun + call.lasting
        hold.stop = hold.until = until if id in call.settled else min(hold.until, until)


def _overtaken(calls: list[Receive]) -> Iterator[tuple[str, int, int]]:
    """(topic, partition, offset) of what was handed out for the first time after a later one had been answered."""
    answered = sorted((call for call in calls if call.outcome == OK), key=lambda call: call.ended)
    unknown = [call for call in calls if call.outcome == UNKNOWN]
    first: dict[int, Receive] = {}
    for call in answered:
        for got in call.got:
            first.setdefault(got.id, call)
    furthest: dict[int, tuple[int, Receive]] = {}
    ended = iter(answered)
    before = next(ended, None)
    for call in sorted(answered, key=lambda call: call.begun):
        while before is not None and before.ended < call.begun:
            for got in before.got:
                if first[got.id] is before and got.offset > furthest.get(got.partition, (-1, before))[0]:
                    furthest[got.partition] = got.offset, before
            before = next(ended, None)
        yield from _passed(call, first, furthest, unknown)


def _passed(
    call: Receive, first: dict[int, Receive], furthest: dict[int, tuple[int, Receive]], unknown: list[Receive]
) -> Iterator[tuple[str, int, int]]:
    last: dict[int, int] = {}
    for got in call.got:
        if first[got.id] is not call or got.attempt > 1:
            continue
        if got.offset < last.get(got.partition, -1):
            yield call.topic, got.partition, got.offset
        last[got.partition] = got.offset
        offset, other = furthest.get(got.partition, (-1, call))
        if got.offset < offset and not any(_may_hold(one, other) for one in unknown):
            yield call.topic, got.partition, got.offset


def _may_hold(unknown: Receive, other: Receive) -> bool:
    """Whether a call that got no answer may have held something when another was served."""
    return unknown.begun < other.ended and unknown.ended + unknown.lasting > other.begun


def _dead_rows(final: Final) -> Iterator[Row]:
    dead = {one.id for one in final.dead}
    return (row for row in final.rows if row.id in dead)


def _is_sorted(numbers: list[int]) -> bool:
    return all(before <= after for before, after in pairwise(numbers))


def told(what: str, found: Iterable[object]) -> Iterator[str]:
    listed = list(found)
    if listed:
        yield f"{len(listed)} {what}, such as {listed[0]!r:.200}"
