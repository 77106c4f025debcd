"""What a history tells of one message in one group: its deliveries, what was settled, and what may have ended it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tests.laws.history import History, Offer, Record

REPEAT_MS = 600_000
TICK_MS = 10


@dataclass
class Life:
    id: int
    group: str
    offer: Offer
    born: Record
    rules: dict[str, object]
    deliveries: list[Record] = field(default_factory=list)
    attempts: dict[int, int] = field(default_factory=dict)
    """Which attempt each delivery was, by its token."""
    settled: list[Record] = field(default_factory=list)
    """Settle calls that were answered ok for this message."""
    refused: list[Record] = field(default_factory=list)
    seeks: list[Record] = field(default_factory=list)
    """Moves of the group: they end its leases, and everything starts anew."""
    redrives: list[Record] = field(default_factory=list)
    ends: list[Record] = field(default_factory=list)
    """What may have ended the message for everybody: cancel, purge, a publish that drops the oldest."""
    moves: list[Record] = field(default_factory=list)

    # What was settled

    def settles(self, verb: str | None = None) -> list[Record]:
        return [record for record in self.settled if verb is None or record.args["verb"] == verb]

    def delivery_of(self, token: bytes) -> Record | None:
        return next((record for record in self.deliveries if record.val[0] == token), None)

    def settled_by(self, delivery: Record) -> list[Record]:
        """The calls that settled this delivery, repetitions left out; an extend settles nothing."""
        token = delivery.val[0]
        return [s for s in self.settles() if s.args["token"] == token and not self.repeats(s) and _ends(s)]

    def settled_before(self, delivery: Record, settle: Record) -> bool:
        return delivery.args["mode"] == "at_most_once" or any(
            other.ret < settle.inv
            for other in self.settles()
            if other.args["token"] == delivery.val[0] and _ends(other)
        )

    def repeats(self, settle: Record) -> bool:
        """Whether the same call was answered ok before, a short while ago."""
        token, verb = settle.args["token"], settle.args["verb"]
        delivery = self.delivery_of(token)
        if verb == "ack" and delivery is not None and delivery.args["mode"] == "at_most_once":
            return True
        return verb != "extend" and any(
            other is not settle
            and other.inv < settle.inv
            and (other.args["token"], other.args["verb"]) == (token, verb)
            and settle.at <= other.till + REPEAT_MS
            for other in self.settled
        )

    def let_go(self, delivery: Record, before: int) -> bool:
        """Whether the holder may have let go before that moment, or was made to."""
        if delivery.args["mode"] == "at_most_once" or self.reset_between(delivery.inv, before):
            return True
        token = delivery.val[0]
        calls = [*self.settled, *self.refused]
        return any(s.args["token"] == token and s.inv < before and _ends(s) for s in calls)

    def overlapped(self, settle: Record) -> bool:
        """Whether another call with the same token ran at the same time."""
        calls = [*self.settled, *self.refused]
        token = settle.args["token"]
        return any(
            s is not settle and s.args["token"] == token and s.inv < settle.ret and settle.inv < s.ret for s in calls
        )

    # Time

    def held_until(self, delivery: Record) -> int:
        """Until then the delivery certainly held its message, if it was not settled."""
        until: int = delivery.at + delivery.args["visibility_ms"]
        for extend in self.settles("extend"):
            if extend.args["token"] == delivery.val[0]:
                until = min(until, extend.at) if extend.args["wait_ms"] is None else extend.at + extend.args["wait_ms"]
        return until

    def over_at(self, delivery: Record, before: int = 2**62) -> int:
        """From then on the delivery certainly holds nothing."""
        over: int = delivery.till + delivery.args["visibility_ms"]
        for extend in self.settles("extend"):
            if extend.args["token"] == delivery.val[0] and extend.inv < before:
                over = max(over, extend.till + extend.args["wait_ms"])
        return over

    def reset_between(self, inv: int, ret: int) -> bool:
        """Whether the message may have begun anew meanwhile."""
        return any(reset.ret > inv and reset.inv < ret for reset in self.resets)

    @property
    def resets(self) -> list[Record]:
        return [*self.seeks, *self.redrives]

    def sought_between(self, ret: int, inv: int) -> bool:
        """Whether the group was certainly moved in between."""
        return any(seek.inv > ret and seek.ret < inv for seek in self.seeks)

    def attempt(self, delivery: Record) -> int:
        return self.attempts[delivery.val[0]]

    # How it ends

    @property
    def may_end(self) -> bool:
        """Whether it may have ended for everybody: expired, cancelled, purged or dropped."""
        return bool(self.offer.ttl_ms or self.ends)

    @property
    def excused(self) -> bool:
        """Whether nobody has to finish it."""
        return self.may_end or bool(self.resets)

    @property
    def done(self) -> bool:
        once = any(delivery.args["mode"] == "at_most_once" for delivery in self.deliveries)
        return once or bool(self.settles("ack")) or bool(self.deaths())

    def deaths(self) -> int | None:
        """How often it certainly died; None if nobody can tell."""
        if self.excused:
            return None
        deaths = 0
        for delivery in self.deliveries:
            verbs = {settle.args["verb"] for settle in self.settled_by(delivery)}
            last = self.attempt(delivery) == self.rules["attempts_max"]
            if "reject" in verbs or (
                last and delivery.args["mode"] != "at_most_once" and not verbs & {"ack", "release"}
            ):
                deaths += 1
        return deaths

    def certainly_ready(self, record: Record) -> bool:
        """Whether it was ready for the group all the time that a receive took."""
        if self.born.ret >= record.inv or self.reset_between(0, record.ret) or self.moves:
            return False
        if self.born.till + self.offer.delay_ms > record.at:
            return False
        before = [delivery for delivery in self.deliveries if delivery.val[0] < record.val[0]]
        if not before:
            return True
        last = before[-1]
        if last.ret >= record.inv:
            return False
        calls = [s for s in self.settled_by(last) if s.inv < record.ret]
        if any(s.ret >= record.inv for s in calls) or self.attempt(last) >= int(str(self.rules["attempts_max"])):
            return False
        if not calls:
            return last.args["mode"] != "at_most_once" and self.over_at(last) + TICK_MS <= record.at
        verb, wait = calls[0].args["verb"], calls[0].args["wait_ms"]
        if verb == "release":
            return True
        longest = int(str(self.rules["backoff_max_ms"])) * 1.2 if wait is None else wait
        return verb == "nack" and calls[0].till + longest + TICK_MS <= record.at


def _ends(settle: Record) -> bool:
    return bool(settle.args["verb"] != "extend")


def lives(history: History) -> dict[tuple[str, int], Life]:
    """The life of every message in every group; worked out once, when the run is over."""
    if history.lives is None:
        history.lives = _lives(history)
    found: dict[tuple[str, int], Life] = history.lives
    return found


def _lives(history: History) -> dict[tuple[str, int], Life]:
    found: dict[tuple[str, int], Life] = {}
    settles: dict[str, dict[int, list[tuple[Record, bool]]]] = defaultdict(lambda: defaultdict(list))
    for record in history.of("settle", res=None):
        lost = set(record.val[1]) if record.res == "ok" else set(record.args["ids"])
        for id in record.args["ids"]:
            settles[record.args["group"]][id].append((record, id in lost))
    moves = defaultdict(list)
    for record in history.of("reschedule"):
        moves[record.args["id"]].append(record)
    purges, redrives, seeks = history.of("purge"), history.of("redrive"), history.of("seek")
    drops = history.of("publish") if history.rules.get("overflow") == "drop_oldest" else []
    dead = {(one.group, one.id) for one in history.last("dlq")}
    cancelled = {record.args["id"]: record for record in history.of("cancel")}
    for record in history.of("publish"):
        for offer, (id, _, _, duplicate) in zip(record.args["offers"], record.val, strict=True):
            for group in () if duplicate else history.rules["groups"]:
                life = found[group, id] = Life(id, group, offer, record, history.rules, moves=moves[id])
                life.seeks = [seek for seek in seeks if seek.args["group"] == group]
                life.redrives = redrives if (group, id) in dead else []
                life.ends = [purge for purge in purges if purge.inv > record.inv] + drops
                if id in cancelled:
                    life.ends.append(cancelled[id])
                for settle, refused in settles[group][id]:
                    (life.refused if refused else life.settled).append(settle)
    for record in history.of("receive"):
        for one in record.val[1]:
            life_ = found.get((record.args["group"], one.id))
            if life_ is not None:
                life_.deliveries.append(record)
                life_.attempts[record.val[0]] = one.attempt
    for life in found.values():  # of calls that were under way at the same time only the tokens know the order
        life.deliveries.sort(key=lambda delivery: delivery.val[0])
    return found
