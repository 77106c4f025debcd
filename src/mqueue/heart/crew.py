"""The members of an assigned group: who has which partition, who is to have it, and what moves just now.

A partition is its owner's until nothing of it is leased any more; only then it is handed on. So whatever is leased of a
partition was leased by its owner, and no message is ever held by two. Decides nothing: see `members` for that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TypeAlias

from msgspec import Struct

from mqueue.heart.schedule import NEVER
from mqueue.model import events as ev
from mqueue.model.limits import MEMBER_SESSION_MS, REBALANCE_PATIENCE_MS, REBALANCES_KEPT

Seat: TypeAlias = tuple[str, int]
"""The id of a member and the generation that it joined with: what it shows with each call."""


class Member(Struct):
    id: str
    generation: int
    consumer: str
    joined_at: int
    heard_at: int
    kept: bool = False
    """A consumer of this process stands for it: it is alive as long as that is."""


class Move(Struct):
    """A partition that gets no deliveries until it is handed on."""

    since: int
    held: int = 0
    """How many messages of it are leased."""


class Rebalance(Struct):
    """`moved`: how many partitions; `paused_ms`: for how long the one that took longest got nothing."""

    number: int
    at: int
    reason: str
    members: int
    moved: int
    ended_at: int = 0
    paused_ms: int = 0


class Crew:
    __slots__ = (
        "generation",
        "history",
        "members",
        "moving",
        "owners",
        "rebalances",
        "seats",
        "targets",
        "version",
        "watch_at",
    )

    def __init__(self, partitions: int, generation: int = 0) -> None:
        self.generation = generation
        """Of who joined last."""
        self.version = 0
        """Rises whenever somebody may have other partitions than before."""
        self.members: dict[str, Member] = {}
        self.owners = [""] * partitions
        self.targets = [""] * partitions
        self.moving: dict[int, Move] = {}
        self.rebalances = 0
        self.history: deque[Rebalance] = deque(maxlen=REBALANCES_KEPT)
        self.seats: dict[str, tuple[int, ...]] = {}
        """What each member may take messages of, as far as somebody asked."""
        self.watch_at = NEVER
        """When its timer fires."""

    # What is so

    def seats_of(self, member: str) -> tuple[int, ...]:
        """The partitions that a member gets messages of."""
        found = self.seats.get(member)
        if found is None:
            moving = self.moving
            found = tuple(n for n, owner in enumerate(self.owners) if owner == member and n not in moving)
            self.seats[member] = found
        return found

    def revoked_of(self, member: str) -> tuple[int, ...]:
        """The partitions that a member is to let go of."""
        return tuple(sorted(number for number in self.moving if self.owners[number] == member))

    def owned_by(self, member: str) -> list[int]:
        return [number for number, owner in enumerate(self.owners) if owner == member]

    def standing(self) -> list[str]:
        """Who has each partition, or would get it: a move that has not happened yet can be called off."""
        pairs = zip(self.owners, self.targets, strict=True)
        return [owner or (target if target in self.members else "") for owner, target in pairs]

    @property
    def unplanned(self) -> bool:
        """Whether some partition is for nobody who is there: what follows from a member's end was cut off."""
        return bool(self.members) and any(target not in self.members for target in self.targets)

    @property
    def ripe(self) -> tuple[int, ...]:
        """What can be handed on."""
        return tuple(sorted(n for n, move in self.moving.items() if not move.held and self.targets[n]))

    @property
    def next_at(self) -> int:
        """When somebody has to look after it, if nothing happens until then."""
        silence = min((member.heard_at for member in self.members.values()), default=NEVER) + MEMBER_SESSION_MS
        waiting = min((move.since for move in self.moving.values()), default=NEVER) + REBALANCE_PATIENCE_MS
        return min(silence, waiting, NEVER)

    # What happens

    def revive(self, now: int) -> None:
        """Nobody could be heard of for a while: all who are there have their time again."""
        for member in self.members.values():
            member.heard_at = max(member.heard_at, now)

    def grow(self, partitions: int) -> None:
        more = partitions - len(self.owners)
        self.owners += [""] * more
        self.targets += [""] * more

    def let_go(self, partition: int, count: int) -> None:
        """So many messages of a partition are leased no more."""
        move = self.moving.get(partition)
        if move is not None:
            move.held -= count

    def freed(self) -> None:
        """Nothing is leased any more."""
        for move in self.moving.values():
            move.held = 0

    def joined(self, event: ev.MemberJoined) -> None:
        self.generation = event.generation
        self.members[event.member] = Member(event.member, event.generation, event.consumer, event.at, event.at)

    def left(self, event: ev.MemberLeft) -> None:
        del self.members[event.member]
        self.owners = ["" if owner == event.member else owner for owner in self.owners]
        self._changed()

    def plan(self, event: ev.Rebalanced) -> None:
        before = self.moving
        self.targets = list(event.targets)
        self.moving = {
            number: Move(before[number].since if number in before else event.at)
            for number, (owner, target) in enumerate(zip(self.owners, self.targets, strict=True))
            if target and owner != target
        }
        if self.history and not self.history[-1].ended_at:
            self.history[-1].ended_at = event.at
        self.rebalances += 1
        self.history.append(Rebalance(self.rebalances, event.at, event.reason, len(self.members), len(self.moving)))
        self._conclude(event.at)
        self._changed()

    def count(self, held: Iterable[tuple[int, int]]) -> None:
        """What is leased: (partition, count)."""
        for partition, count in held:
            self.let_go(partition, -count)

    def handed_on(self, event: ev.HandedOn) -> None:
        last = self.history[-1]
        for number in event.partitions:
            self.owners[number] = self.targets[number]
            last.paused_ms = max(last.paused_ms, event.at - self.moving.pop(number).since)
        self._conclude(event.at)
        self._changed()

    def _conclude(self, at: int) -> None:
        if not self.moving:
            self.history[-1].ended_at = at

    def _changed(self) -> None:
        self.version += 1
        self.seats = {}


class CrewPoint(Struct, frozen=True):
    """What a checkpoint knows of it."""

    generation: int
    version: int
    members: tuple[tuple[str, int, str, int, int], ...]
    """id, generation, consumer, joined_at, heard_at"""
    owners: tuple[str, ...]
    targets: tuple[str, ...]
    moving: tuple[tuple[int, int], ...]
    """partition, since when"""
    rebalances: int
    history: tuple[tuple[int, int, str, int, int, int, int], ...]


def crew_point(crew: Crew) -> CrewPoint:
    return CrewPoint(
        crew.generation,
        crew.version,
        tuple((m.id, m.generation, m.consumer, m.joined_at, m.heard_at) for m in crew.members.values()),
        tuple(crew.owners),
        tuple(crew.targets),
        tuple((number, move.since) for number, move in crew.moving.items()),
        crew.rebalances,
        tuple((r.number, r.at, r.reason, r.members, r.moved, r.ended_at, r.paused_ms) for r in crew.history),
    )


def crew_of(point: CrewPoint) -> Crew:
    """The crew of a checkpoint; what is leased of what moves is counted by whoever knows the leases."""
    crew = Crew(len(point.owners), point.generation)
    crew.version, crew.rebalances = point.version, point.rebalances
    crew.members = {told[0]: Member(*told) for told in point.members}
    crew.owners, crew.targets = list(point.owners), list(point.targets)
    crew.moving = {number: Move(since) for number, since in point.moving}
    crew.history.extend(Rebalance(*told) for told in point.history)
    return crew
