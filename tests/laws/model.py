"""The model queue: the contract in plain dicts and sorted lists, one entry per (group, message). Slow and obvious.

One model is one topic. Ids, partitions and offsets are handed in from the receipts, because any placement that keeps
the rules of routing is right; everything that becomes of a message afterwards is worked out here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

REPEAT_MS = 600_000
TICK_MS = 10
OVER = ("acked", "dead", "expired", "cancelled")


@dataclass
class Rules:
    """The settings that the model knows."""

    attempts_max: int | None = 4
    backoff_ms: int = 1_000
    backoff_max_ms: int = 60_000
    in_flight_max: int = 100_000
    max_depth: int | None = None
    overflow: str = "refuse"
    dlq_expired: bool = False
    dlq_dropped: bool = False
    dedup: str = "window"
    dedup_window_ms: int = 20_000
    on_ack: bool = False
    compact: bool = False
    hours: float | None = None


@dataclass
class Msg:
    id: int
    partition: int
    offset: int
    priority: int
    at: int
    due: int
    expires: int
    payload: bytes
    key: bytes | None
    headers: dict[str, str]
    state: str = "scheduled"

    @property
    def visible_at(self) -> int:
        return max(self.at, self.due)

    @property
    def order(self) -> tuple[int, int, int, int]:
        return self.priority, self.visible_at, self.partition, self.offset


@dataclass
class Entry:
    """What one group knows of one message."""

    state: str = "ready"
    attempt: int = 0
    until: int = 0
    token: bytes = 0


@dataclass
class Group:
    starts: list[int]
    entries: dict[int, Entry] = field(default_factory=dict)
    delivered: int = 0

    def count(self, *states: str) -> int:
        return sum(entry.state in states for entry in self.entries.values())


@dataclass(frozen=True)
class Dead:
    id: int
    group: str
    attempts: int
    reason: str


class Model:
    def __init__(self, now: int, rules: Rules) -> None:
        self.now = now
        self.rules = rules
        self.messages: dict[int, Msg] = {}
        self.groups: dict[str, Group] = {}
        self.ends = [0]
        self.floors = [0]
        self.kept: list[set[int]] = [set()]
        self.dlq: list[Dead] = []
        self.holders: dict[int, str] = {}
        self.answers: dict[tuple[int, int], tuple[str, int]] = {}
        self.claims: dict[str, int] = {}

    # Time

    def moments(self, stop: int) -> list[int]:
        """The times up to `stop` at which something happens by itself."""
        times = {m.due for m in self.messages.values() if m.state == "scheduled"}
        times |= {m.expires for m in self.messages.values() if m.state in ("scheduled", "visible") and m.expires}
        times |= {e.until for g in self.groups.values() for e in g.entries.values() if e.state in ("leased", "waiting")}
        return sorted(time for time in times if time <= stop)

    def advance(self, now: int) -> None:
        """Let time pass, moment by moment."""
        while self.now < now or self.moments(now):
            self.now = max(self.now, min([now, *self.moments(now)]))
            for message in self.messages.values():
                if message.state == "scheduled" and message.due <= self.now:
                    self._show(message)
                if message.state == "visible" and message.expires and message.expires <= self.now:
                    self._expire(message)
            for name, group in self.groups.items():
                for id, entry in group.entries.items():
                    if entry.state == "waiting" and entry.until <= self.now:
                        entry.state = "ready"
                    elif entry.state == "leased" and entry.until <= self.now:
                        self._fail(name, id, entry, "visibility_timeout")

    # Publish and end

    def publish(self, message: Msg) -> None:
        self.messages[message.id] = message
        self.ends[message.partition] = max(self.ends[message.partition], message.offset + 1)
        if message.due <= self.now:
            self._show(message)

    def end(self, message: Msg, cause: str) -> None:
        """A message ends for everybody: cancelled or expired. Whoever holds it may still settle it."""
        if message.state == "scheduled":
            self._show(message)
        message.state = cause
        for group in self.groups.values():
            entry = group.entries.get(message.id)
            if entry is not None and entry.state in ("ready", "waiting"):
                entry.state = cause

    def purge(self) -> int:
        alive = [m for m in self.messages.values() if m.state in ("scheduled", "visible")]
        for message in alive:
            self.end(message, "cancelled")
        return len(alive)

    def purge_ready(self, name: str) -> int:
        entries = self.groups[name].entries
        before = [id for id, entry in entries.items() if entry.state in ("ready", "waiting")]
        for id in before:
            self.end(self.messages[id], "cancelled")
        return len(before)

    def claim(self, key: str) -> Msg | None:
        """The message that an idempotency key stands for now."""
        message = self.messages.get(self.claims.get(key, -1))
        if message is None or self.rules.dedup == "forever":
            return message
        if self.rules.dedup == "window":
            return message if message.at > self.now - self.rules.dedup_window_ms else None
        entries = [group.entries.get(message.id) for group in self.groups.values()]
        done = bool(entries) and all(entry is None or entry.state in OVER for entry in entries)
        over = message.state in (*OVER, "gone") or (message.state == "visible" and done)
        return None if over else message

    def trim(self, floors: list[int], kept: list[set[int]]) -> None:
        """Retention went so far and kept these: what somebody needs must not be gone, nor what no rule lets go."""
        assert all(new >= old for old, new in zip(self.floors, floors, strict=True)), "a floor fell"
        self.floors, self.kept = floors, kept
        gone = [m for m in self.messages.values() if m.state != "gone" and not self.alive(m)]
        for message in gone:
            assert message.state != "scheduled", f"{message} was dropped while scheduled"
            assert not self._owed(message), f"{message} was dropped and is owed"
            assert self._may_go(message), f"{message} was dropped and no rule says so"
        for message in gone:
            message.state = "gone"

    def uncompacted(self) -> Iterator[str]:
        """Which values compaction, having just been by, should not have kept."""
        below = [m for m in self.messages.values() if m.offset < self.floors[m.partition] and not self._owed(m)]
        for message in (m for m in below if m.state == "visible" and m.key is not None):
            if any(self._beats(other, message) for other in below):
                yield f"{message} is kept beside a later one of its key"

    def _owed(self, message: Msg) -> bool:
        entries = [group.entries.get(message.id) for group in self.groups.values()]
        return any(entry is not None and entry.state not in OVER for entry in entries)

    def alive(self, message: Msg) -> bool:
        return message.offset >= self.floors[message.partition] or message.offset in self.kept[message.partition]

    def _may_go(self, message: Msg) -> bool:
        rules = self.rules
        if rules.compact and (message.state in OVER or message.key is not None):
            return message.state in OVER or any(self._beats(other, message) for other in self.messages.values())
        since = message.at if message.state in OVER else message.visible_at
        too_old = rules.hours is not None and since <= self.now - rules.hours * 3_600_000
        return too_old or (rules.on_ack and bool(self.groups))

    def _beats(self, other: Msg, message: Msg) -> bool:
        """Whether a message is there that is later of the same key."""
        later = (other.visible_at, other.offset) > (message.visible_at, message.offset)
        same = (other.key, other.partition) == (message.key, message.partition)
        return same and later and other.state == "visible" and self.alive(other)

    @property
    def firsts(self) -> list[int]:
        return [min({floor} | kept) for floor, kept in zip(self.floors, self.kept, strict=True)]

    # Depth

    def full(self, count: int) -> bool:
        return self.rules.max_depth is not None and self.filled + count > self.rules.max_depth

    def could_drop(self, count: int) -> bool:
        """Whether so many would fit if everything that is visible and not leased were dropped."""
        room = self.rules.max_depth or 0
        if self.rules.overflow == "drop_oldest":
            leased = max((group.count("leased") for group in self.groups.values()), default=0)
            room -= len(self.scheduled) + leased
        return self.rules.overflow != "refuse" and count <= room

    def drop(self, ids: list[int], count: int) -> None:
        """These were dropped to make room. With one group at most it has to be as much as needed, oldest first."""
        visible = [m for m in self.messages.values() if m.state == "visible"]
        groups = self.groups.values()
        owed = [m for m in visible if not groups or any(_owed(group.entries.get(m.id)) for group in groups)]
        dropped = [self.messages[id] for id in ids]
        assert all(message in owed for message in dropped), "dropped what was leased or settled"
        if len(groups) <= 1:
            assert len(dropped) == self.filled + count - (self.rules.max_depth or 0)
            ages = sorted(message.visible_at for message in owed)
            assert sorted(message.visible_at for message in dropped) == ages[: len(dropped)], "not the oldest"
        for message in dropped:
            if self.rules.dlq_dropped:
                self.dlq.append(Dead(message.id, "", 0, "dropped"))
            self.end(message, "cancelled")
        assert not self.full(count), "dropped too little"

    @property
    def scheduled(self) -> list[Msg]:
        return [m for m in self.messages.values() if m.state == "scheduled"]

    @property
    def depth(self) -> int:
        if self.groups:
            return len(self.scheduled) + max(g.count("ready", "waiting", "leased") for g in self.groups.values())
        return len(self.scheduled) + sum(m.state == "visible" for m in self.messages.values())

    @property
    def filled(self) -> int:
        """What counts against `max_depth`."""
        if self.rules.overflow != "drop_ready":
            return self.depth
        if self.groups:
            return max(group.count("ready", "waiting") for group in self.groups.values())
        return self.depth - len(self.scheduled)

    # Groups

    def make_group(self, name: str, starts: list[int]) -> None:
        delivered = self.groups[name].delivered if name in self.groups else 0
        group = self.groups[name] = Group(starts, delivered=delivered)
        for message in self.messages.values():
            if message.state == "visible" and message.offset >= starts[message.partition]:
                group.entries[message.id] = Entry()

    def ready(self, name: str) -> list[Msg]:
        """What a group could be handed, in order."""
        entries = self.groups[name].entries
        return sorted((self.messages[id] for id, e in entries.items() if e.state == "ready"), key=lambda m: m.order)

    def room(self, name: str) -> int:
        return max(0, self.rules.in_flight_max - self.groups[name].count("leased"))

    def lease(self, name: str, token: bytes, ids: Iterable[int], deadline: int) -> list[int]:
        """Hand out messages that are ready; which attempt each one is."""
        group = self.groups[name]
        self.holders[token] = name
        attempts = []
        for id in ids:
            entry = group.entries[id]
            assert entry.state == "ready", f"{id} is {entry.state}"
            entry.state, entry.token, entry.until = "leased", token, deadline
            entry.attempt += 1
            group.delivered += 1
            attempts.append(entry.attempt)
        return attempts

    # Settle

    def settle(self, token: bytes, verb: str, ids: Iterable[int], delay_ms: int | None = None) -> tuple[int, list[int]]:
        """How many were settled, and which are lost. The same call again is answered as the first was."""
        settled, lost = 0, []
        for id in ids:
            entry = self._held(token, id)
            if entry is not None:
                self._settle(self.holders[token], id, entry, verb, delay_ms)
                self.answers[token, id] = verb, self.now
                settled += 1
            elif self._answered(token, id) == verb:
                settled += 1
            else:
                lost.append(id)
        return settled, lost

    def extend(self, token: bytes, ids: Iterable[int], deadline: int) -> tuple[int, list[int]]:
        ids = list(ids)
        held = [entry for id in ids if (entry := self._held(token, id)) is not None]
        for entry in held:
            entry.until = deadline
        return len(held), [id for id in ids if self._held(token, id) is None]

    def redrive(self, dead: Dead) -> str:
        """revived, there (it needs no reviving), or gone (it has to be published anew)."""
        self.dlq.remove(dead)
        message, group = self.messages[dead.id], self.groups.get(dead.group)
        if message.state != "visible" or group is None:
            return "gone"
        entry = group.entries.get(dead.id)
        if entry is not None and entry.state not in OVER:
            return "there"
        group.entries[dead.id] = Entry()
        return "revived"

    def seek(self, name: str, starts: list[int]) -> None:
        self.make_group(name, starts)
        self.holders = {token: holder for token, holder in self.holders.items() if holder != name}

    def explain(self, id: int, name: str) -> str:
        message = self.messages[id]
        if message.state != "visible":
            return message.state
        if name not in self.groups:
            return "no_consumer"
        entry = self.groups[name].entries.get(id)
        if entry is None:
            return "before_start"
        if entry.state != "ready":
            return "settled" if entry.state in OVER and entry.state != "dead" else entry.state
        if not self.room(name):
            return "in_flight_max"
        return "ready" if self.ready(name)[0].id == id else "behind"

    def _show(self, message: Msg) -> None:
        message.state = "visible"
        for group in self.groups.values():
            if message.offset >= group.starts[message.partition]:
                group.entries[message.id] = Entry()

    def _expire(self, message: Msg) -> None:
        states = [g.entries[message.id].state for g in self.groups.values() if message.id in g.entries]
        if self.rules.dlq_expired and (not self.groups or "ready" in states or "waiting" in states):
            self.dlq.append(Dead(message.id, "", 0, "expired"))
        self.end(message, "expired")

    def _settle(self, name: str, id: int, entry: Entry, verb: str, delay_ms: int | None) -> None:
        if verb == "ack":
            entry.state = "acked"
        elif verb == "release":
            entry.attempt -= 1
            self._give_back(id, entry, 0)
        elif verb == "reject":
            self._fail(name, id, entry, "rejected")
        else:
            wait = min(self.rules.backoff_ms * 2 ** (entry.attempt - 1), self.rules.backoff_max_ms)
            due = self.now + (wait if delay_ms is None else delay_ms)
            self._fail(name, id, entry, "max_retries", -(-due // TICK_MS) * TICK_MS)

    def _fail(self, name: str, id: int, entry: Entry, reason: str, due: int = 0) -> None:
        last = self.rules.attempts_max is not None and entry.attempt >= self.rules.attempts_max
        if self.messages[id].state == "visible" and (last or reason == "rejected"):
            entry.state = "dead"
            self.dlq.append(Dead(id, name, entry.attempt, reason))
        else:
            self._give_back(id, entry, due)

    def _give_back(self, id: int, entry: Entry, due: int) -> None:
        message = self.messages[id]
        if message.state != "visible":
            entry.state = message.state
        else:
            entry.state, entry.until = ("waiting", due) if due > self.now else ("ready", 0)

    def _held(self, token: bytes, id: int) -> Entry | None:
        name = self.holders.get(token)
        entry = self.groups[name].entries.get(id) if name in self.groups else None
        return entry if entry is not None and entry.state == "leased" and entry.token == token else None

    def _answered(self, token: bytes, id: int) -> str | None:
        verb, at = self.answers.get((token, id), ("", 0))
        return verb if self.now - at <= REPEAT_MS else None


def _owed(entry: Entry | None) -> bool:
    return entry is not None and entry.state in ("ready", "waiting")


def in_order(ready: list[Msg], count: int, got: list[int]) -> Iterator[str]:
    """What is wrong with a delivery: the best `count`, each partition from its front. Equal keys of different
    partitions have no order between them."""
    by_id = {message.id: message for message in ready}
    strange = [id for id in got if id not in by_id]
    if strange or len(got) != min(count, len(ready)):
        yield f"got {got}, ready were {[message.id for message in ready]}, at most {count} were asked for"
        return
    if [by_id[id].order[:2] for id in got] != [message.order[:2] for message in ready[: len(got)]]:
        yield f"got {got}, not the first of {[message.id for message in ready]}"
    for number in {message.partition for message in ready}:
        mine = [id for id in got if by_id[id].partition == number]
        if mine != [message.id for message in ready if message.partition == number][: len(mine)]:
            yield f"partition {number} gave {mine}, out of its order"
