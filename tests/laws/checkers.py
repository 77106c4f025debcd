"""The invariants, as checkers over a history. Each yields a sentence for every violation that is certain.

They are conservative: a call took effect at some moment between its beginning and its end, and whatever could be
explained by a lucky order of overlapping calls is not reported. So a clean broker is never accused.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TypeAlias

from mqueue.model.ident import node_of
from tests.laws.history import History, Offer, Record, Seen
from tests.laws.ledgers import nothing_miscounted, trace_is_told
from tests.laws.lives import Life, lives

Checker: TypeAlias = Callable[[History], Iterator[str]]


_FEW = 1_000
"""Of more messages than these nobody looks for one that was passed over: it would take too long."""


def stored(history: History) -> dict[int, tuple[Offer, Record, int, int]]:
    """id → (offer, record, partition, offset) of everything that was published and is no duplicate."""
    return {
        id: (offer, record, partition, offset)
        for record in history.of("publish")
        for offer, (id, partition, offset, duplicate) in zip(record.args["offers"], record.val, strict=True)
        if not duplicate
    }


def nothing_lost(history: History) -> Iterator[str]:
    """I1, I2: what was answered ok is in the log and done in every group at the end; nothing else ever shows up."""
    known = stored(history)
    refused = {offer.uid for record in history.of("publish", res="fail") for offer in record.args["offers"]}
    refused -= {offer.uid for offer, *_ in known.values()}
    logged = {one.id for one in history.last("scan")}
    redriven = bool(history.of("redrive"))
    for id in known.keys() - logged:
        yield f"message {id} was answered and is not in the log"
    for record in history.of("receive"):
        for one in record.val[1]:
            if one.id not in known and not redriven:
                yield f"message {one.id} was delivered and never published"
            if one.uid in refused:
                yield f"message {one.uid} was refused and delivered"
    stats = history.last("stats")
    for group in history.rules["groups"]:
        if stats.groups[group].depth or stats.scheduled:
            yield f"group {group} is still owed something after the drain: {stats.groups[group]}"
    for life in lives(history).values():
        if not life.done and not life.excused:
            yield f"message {life.id} was never finished in group {life.group}, and nobody ended it"


def ack_is_final(history: History) -> Iterator[str]:
    """I3: after an ok ack nobody in the group gets the message again, unless the group was moved."""
    for life in lives(history).values():
        for ack in (settle for settle in life.settles("ack") if not life.repeats(settle)):
            for delivery in life.deliveries:
                if delivery.inv > ack.ret and not life.reset_between(ack.inv, delivery.ret):
                    yield f"message {life.id} was acked in {life.group} and delivered again"


def no_double_lease(history: History) -> Iterator[str]:
    """I4: two deliveries to one group are not alive at the same time."""
    for life in lives(history).values():
        for first, second in pairwise(life.deliveries):
            if second.inv > first.ret and second.till < life.held_until(first) and not life.let_go(first, second.ret):
                yield f"message {life.id} was leased twice in {life.group}, at {first.at} and {second.at}"


def fencing(history: History) -> Iterator[str]:
    """I5: tokens rise; what a newer lease holds an older one cannot settle; what a lease holds it can settle."""
    for life in lives(history).values():
        for first, second in pairwise(life.deliveries):
            if second.inv > first.ret and second.val[0] <= first.val[0]:
                yield f"tokens of message {life.id} do not rise in {life.group}"
        for settle in life.settles():
            token = settle.args["token"]
            newer = any(other.ret < settle.inv and other.val[0] > token for other in life.deliveries)
            if newer and not life.repeats(settle):
                yield f"{settle.args['verb']} of message {life.id} was accepted with an old token"
        for settle in life.refused:
            delivery = life.delivery_of(settle.args["token"])
            if (
                delivery is not None
                and settle.till < life.held_until(delivery)
                and not life.let_go(delivery, settle.inv)
                and not life.overlapped(settle)
            ):
                yield f"{settle.args['verb']} of message {life.id} was refused while it was held in {life.group}"


def stale_is_refused(history: History) -> Iterator[str]:
    """I13: a lease that is over, or has been settled, settles nothing any more."""
    for life in lives(history).values():
        for settle in life.settles():
            delivery = life.delivery_of(settle.args["token"])
            if delivery is None:
                yield f"message {life.id} was settled with a token that never held it"
                continue
            over = settle.at >= life.over_at(delivery, settle.inv) or life.settled_before(delivery, settle)
            if (over or life.sought_between(delivery.ret, settle.inv)) and not life.repeats(settle):
                yield f"{settle.args['verb']} of message {life.id} was accepted after its lease was over"


def strict_priority(history: History) -> Iterator[str]:
    """I6: nothing more urgent was certainly ready and passed over; a batch is sorted."""
    known, everyone = stored(history), lives(history)
    by_group: dict[str, list[Life]] = defaultdict(list)
    for life in everyone.values():
        if life.id in known and not life.may_end:
            by_group[life.group].append(life)
    for record in history.of("receive"):
        got: list[Seen] = record.val[1]
        for one, other in pairwise(got):
            if one.priority > other.priority:
                yield f"a batch of {record.args['group']} is not sorted by priority"
        if got and len(known) <= _FEW:
            worst, taken = max(one.priority for one in got), {one.id for one in got}
            for life in by_group[record.args["group"]]:
                if known[life.id][0].priority < worst and life.id not in taken and life.certainly_ready(record):
                    yield f"message {life.id} was ready and passed over for less urgent ones"


def first_in_order(history: History) -> Iterator[str]:
    """I7: a key stays in its partition; what was never delayed is first delivered in order of offset, per priority."""
    known = stored(history)
    homes: dict[bytes, set[int]] = defaultdict(set)
    for offer, _, partition, _ in known.values():
        if offer.key is not None:
            homes[offer.key].add(partition)
    for key, partitions in homes.items():
        if len(partitions) > 1:
            yield f"key {key!r} is in partitions {partitions}"
    newest: dict[tuple[str, int, int], tuple[int, int]] = {}
    given: set[tuple[str, int]] = set()
    moved = {record.args["group"] for record in history.of("seek")}
    for record in history.of("receive"):
        group = record.args["group"]
        for one in record.val[1]:
            if one.id not in known or known[one.id][0].delay_ms or (group, one.id) in given or group in moved:
                continue
            given.add((group, one.id))
            lane = (group, one.partition, one.priority)
            ret, offset = newest.get(lane, (0, -1))
            if offset > one.offset and (ret < record.inv or ret == record.ret):
                yield f"offset {one.offset} of {lane} was first delivered after offset {offset}"
            if offset < one.offset:
                newest[lane] = (record.ret, one.offset)


def never_early(history: History) -> Iterator[str]:
    """I8: nothing is delivered before it is due, nor after it has expired."""
    known = stored(history)
    moves = defaultdict(list)
    for record in history.of("reschedule"):
        moves[record.args["id"]].append(record)
    for record in history.of("receive"):
        for one in record.val[1]:
            if one.id in known:
                offer, publish, _, _ = known[one.id]
                due = publish.at + offer.delay_ms
                for move in moves[one.id]:
                    if move.inv < record.inv:
                        due = move.at + move.args["delay_ms"]
                if record.till < due:
                    yield f"message {one.id} was delivered {due - record.till} ms early"
                if offer.ttl_ms and record.at >= publish.till + offer.delay_ms + offer.ttl_ms:
                    yield f"message {one.id} was delivered after it had expired"


def attempts_and_backoff(history: History) -> Iterator[str]:
    """I9: attempts are counted one by one, a released one is not; a failed message stays away for its backoff."""
    rules = history.rules
    for life in lives(history).values():
        for first, second in pairwise(life.deliveries):
            now, before = life.attempt(second), life.attempt(first)
            if life.reset_between(first.inv, second.ret):
                continue
            released = any(s.args["verb"] == "release" for s in life.settled_by(first))
            if now != before + (not released) or now > rules["attempts_max"]:
                yield f"attempt {now} of message {life.id} follows attempt {before} in {life.group}"
            for nack in (s for s in life.settled_by(first) if s.args["verb"] == "nack"):
                backoff = min(rules["backoff_ms"] * 2 ** (before - 1), rules["backoff_max_ms"])
                least = round(backoff * 0.8) if nack.args["wait_ms"] is None else nack.args["wait_ms"]
                if nack.ret < second.inv and second.till < nack.at + least:
                    yield f"message {life.id} came back {nack.at + least - second.till} ms too soon"
        if life.deliveries and life.attempt(life.deliveries[0]) != 1:
            yield f"the first delivery of message {life.id} to {life.group} is no attempt 1"


def dead_at_the_last_attempt(history: History) -> Iterator[str]:
    """I10: as many copies in the dead-letter queue as deaths, and what died is not delivered again by itself."""
    copies = Counter((one.group, one.id) for one in history.last("dlq"))
    offers = {id: offer for id, (offer, *_) in stored(history).items()}
    for life in lives(history).values():
        deaths = life.deaths()
        if deaths is not None and copies[life.group, life.id] != deaths:
            yield f"{life.id} died {deaths} times in {life.group} and has {copies[life.group, life.id]} copies"
    for one in history.last("dlq"):
        its_life = lives(history).get((one.group, one.id))
        if its_life is None:
            if not history.of("redrive"):  # else it may have been published anew
                yield f"a copy in the dead-letter queue of message {one.id}, which {one.group} was never to get"
        elif one.reason != "rejected" and one.attempts != history.rules["attempts_max"]:
            yield f"message {one.id} died after {one.attempts} attempts"
        elif one.id in offers and one.digest != offers[one.id].digest:
            yield f"the copy of dead message {one.id} is not what was published"


def one_per_key(history: History) -> Iterator[str]:
    """I11: publishes with one idempotency key inside the window give one id; another payload is a conflict."""
    first: dict[str, tuple[int, Offer, Record]] = {}
    window = history.rules["window_ms"]
    for record in history.of("publish", res=None):
        for number, offer in enumerate(record.args["offers"]):
            if offer.idem is None:
                continue
            known = first.get(offer.idem)
            inside = known is not None and record.till < known[2].at + window and record.inv > known[2].ret
            if record.res == "ok":
                id, _, _, duplicate = record.val[number]
                if known is not None and inside and (id != known[0] or not duplicate):
                    yield f"key {offer.idem} gave {known[0]} and then {id}"
                if known is not None and inside and offer.payload != known[1].payload:
                    yield f"key {offer.idem} was accepted with another payload"
                if not duplicate:
                    first[offer.idem] = (id, offer, record)
            elif known is not None and inside and offer.payload == known[1].payload and record.val[0] == "conflict":
                yield f"key {offer.idem} is a conflict with itself"


def quota_holds(history: History) -> Iterator[str]:
    """I12: no window has more messages than the bucket and its refill; and nothing is refused that would fit."""
    limit = history.rules["quota"]
    if limit is None:
        return
    best, sent = float("-inf"), 0
    for record in history.of("publish"):
        best = max(best, record.at * limit / 60_000 - sent)
        sent += len(record.args["offers"])
        if best + sent - record.till * limit / 60_000 > limit + 1e-6:
            yield f"{sent} messages by {record.till} are more than the quota of {limit} a minute allows"
    level, at = float(limit), 0
    for record in history.of("publish", res=None):
        level, at = min(limit, level + (record.at - at) * limit / 60_000), record.at
        count = len(record.args["offers"])
        if record.res == "ok":
            level -= count
        elif record.val[0].startswith("quota") and count <= level - 1e-6:
            yield f"{count} messages were refused with {level:.2f} tokens left"


def replay_is_whole(history: History) -> Iterator[str]:
    """I14: two replays are the same, without gaps, in order of time."""
    one, other = [record.val for record in history.of("scan")][-2:]
    if one != other:
        yield "two replays differ"
    for partition in {seen.partition for seen in one}:
        mine = [seen for seen in one if seen.partition == partition]
        if [seen.offset for seen in mine] != list(range(len(mine))):
            yield f"partition {partition} has gaps"
        if any(b.published_at < a.published_at for a, b in pairwise(mine)):
            yield f"times fall in partition {partition}"


def rising_ids(history: History) -> Iterator[str]:
    """I19: no id twice, later publishes have greater ids, and the ids of a message agree everywhere."""
    highest, ret = -1, 0
    seen = Counter(one.id for one in history.last("scan"))
    for id, count in seen.items():
        if count > 1:
            yield f"id {id} was given {count} times"
        if node_of(id) != 0:
            yield f"id {id} is one of another node"
    for record in history.of("publish"):
        fresh = [id for id, _, _, duplicate in record.val if not duplicate]
        if fresh and ret < record.inv and min(fresh) <= highest:
            yield f"id {min(fresh)} was given after {highest}"
        if fresh and max(fresh) > highest:
            highest, ret = max(fresh), record.ret


def same_bytes(history: History) -> Iterator[str]:
    """I20: every delivery, replay and dead copy carries exactly what was published."""
    known = stored(history)
    shown = [one for record in history.of("receive") for one in record.val[1]] + list(history.last("scan"))
    for one in shown:
        if one.id in known:
            offer, _, partition, offset = known[one.id]
            if one.digest != offer.digest or one.priority != offer.priority:
                yield f"message {one.id} is not what was published"
            if (one.partition, one.offset) != (partition, offset):
                yield f"message {one.id} is not where its receipt says"


def room_is_kept(history: History) -> Iterator[str]:
    """A topic is never deeper than its setting allows after a publish was let in."""
    deepest = history.rules.get("max_depth")
    for record in history.of("depth"):
        if deepest is not None and record.val > deepest:
            yield f"{record.val} messages where {deepest} are allowed"


CHECKERS: dict[str, Checker] = {
    "I1 lost": nothing_lost,
    "I3 ack": ack_is_final,
    "I4 lease": no_double_lease,
    "I5 fence": fencing,
    "I6 priority": strict_priority,
    "I7 order": first_in_order,
    "I8 early": never_early,
    "I9 attempts": attempts_and_backoff,
    "I10 dead": dead_at_the_last_attempt,
    "I11 idempotent": one_per_key,
    "I12 quota": quota_holds,
    "I13 stale": stale_is_refused,
    "I14 replay": replay_is_whole,
    "I15 trace": trace_is_told,
    "I17 conservation": nothing_miscounted,
    "I19 ids": rising_ids,
    "I20 bytes": same_bytes,
    "depth": room_is_kept,
}
