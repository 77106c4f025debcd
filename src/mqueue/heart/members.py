"""What becomes of the members of assigned groups: who may go on, who is dead, and which partition moves when.

    joined, left, dead, more partitions ──► Rebalanced: what moves gets no deliveries
                                               │ settled, released, given up, or over after a while
                                               ▼
                                            HandedOn: its new owner gets them

Partitions that do not move know nothing of it. All is decided here and happens as events; time is an argument.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from mqueue.heart.crew import Crew, Member, Seat
from mqueue.heart.group import Group, Lease
from mqueue.heart.schedule import NEVER
from mqueue.heart.topic import Topic
from mqueue.model import events as ev
from mqueue.model.errors import Conflict, QueueFull
from mqueue.model.limits import MEMBER_SESSION_MS, REBALANCE_PATIENCE_MS
from mqueue.policy.assignment import assign

if TYPE_CHECKING:
    from mqueue.heart.heart import Heart


def make_assigned(heart: Heart, group: Group, now: int) -> Crew:
    """A group that has members from now on."""
    if group.crew is None:
        heart.happen(ev.GroupAssigned(now, group.topic, group.name))
    assert group.crew is not None
    return group.crew


def join(heart: Heart, topic: Topic, group: Group, id: str, consumer: str, members_max: int, now: int) -> Member:
    """A member more; or one that comes back, keeps its partitions, and takes the place of who had its id."""
    crew = group.crew
    known = crew is not None and id in crew.members
    if crew is not None and not known and len(crew.members) >= members_max:
        raise QueueFull(
            f"group {group.name!r} of topic {topic.name!r} has {len(crew.members)} members; {members_max} are allowed",
            code="members_full",
        )
    crew = make_assigned(heart, group, now)
    if known:  # what its predecessor holds ends: nobody can settle that any more
        _give_up(heart, group, crew.owned_by(id), now, f"member {id} joined again")
    heart.happen(ev.MemberJoined(now, topic.id, group.name, id, crew.generation + 1, consumer))
    if known:
        heart.stirred.append(topic)  # who had its place may wait for messages: it is to learn of it
        hand_on(heart, topic, group, now)
    else:
        rebalance(heart, topic, group, f"{id} joined", now)
    return crew.members[id]


def recognised(topic: Topic, group: Group, seat: Seat | None) -> Member:
    """The member that shows a seat, or `Conflict`: what it may do instead is in the words of that."""
    crew = group.crew
    where = f"group {group.name!r} of topic {topic.name!r}"
    if seat is None:
        raise Conflict(
            f"{where} is assigned: only its members receive, each from partitions of its own; join it, or use another"
            " group",
            code="assigned_group",
        )
    id, generation = seat
    member = None if crew is None else crew.members.get(id)
    if member is None:
        raise Conflict(
            f"{id!r:.80} is no member of {where}, or none any more: who leaves, or is not heard of for"
            f" {MEMBER_SESSION_MS // 1000} s, has to join again",
            code="stale_member",
        )
    if member.generation != generation:
        raise Conflict(
            f"member {id!r:.80} of {where} has generation {member.generation}, not {generation!r:.40}: somebody joined"
            " with its id later and has its place; join again to take it back, or with another id",
            code="stale_generation",
        )
    return member


def seats(topic: Topic, group: Group, seat: Seat | None, now: int) -> tuple[int, ...]:
    """The partitions that whoever shows this seat gets messages of."""
    member = recognised(topic, group, seat)
    member.heard_at = now
    assert group.crew is not None
    return group.crew.seats_of(member.id)


def hear(heart: Heart, topic: Topic, group: Group, seat: Seat, released: Collection[int], now: int) -> Member:
    """A member is alive. It lets go of what it holds of partitions that are to move: all that was `released`."""
    member = recognised(topic, group, seat)
    member.heard_at = now
    crew = group.crew
    assert crew is not None
    given = [number for number in crew.revoked_of(member.id) if number in released]
    if given:
        _release(heart, group, given, now)
        hand_on(heart, topic, group, now)
    return member


def leave(heart: Heart, topic: Topic, group: Group, seat: Seat, now: int) -> None:
    """A member goes. What it holds goes to others, and no attempt is counted."""
    member = recognised(topic, group, seat)
    assert group.crew is not None
    _release(heart, group, group.crew.owned_by(member.id), now)
    heart.happen(ev.MemberLeft(now, topic.id, group.name, member.id, "left"))
    rebalance(heart, topic, group, f"{member.id} left", now)


def rebalance(heart: Heart, topic: Topic, group: Group, reason: str, now: int) -> None:
    """Decide anew who is to have what, and begin to move what moves."""
    crew = group.crew
    assert crew is not None
    targets = tuple(assign(list(crew.members), crew.standing()))
    heart.happen(ev.Rebalanced(now, topic.id, group.name, reason, targets))
    heart.stirred.append(topic)
    hand_on(heart, topic, group, now)


def hand_on(heart: Heart, topic: Topic, group: Group, now: int) -> None:
    """Of what is to move, all of which nothing is leased any more goes to its new owner."""
    crew = group.crew
    assert crew is not None
    ripe = crew.ripe if crew.moving else ()
    if ripe:
        heart.happen(ev.HandedOn(now, topic.id, group.name, ripe))
        heart.stirred.append(topic)


def look_after(heart: Heart, topic: Topic, group: Group, now: int) -> None:
    """Time has passed: who was not heard of is dead, who does not let go is waited for no longer."""
    crew = group.crew
    assert crew is not None
    crew.watch_at = NEVER
    silent = []
    for member in list(crew.members.values()):
        if member.kept:
            member.heard_at = now
        elif member.heard_at + MEMBER_SESSION_MS <= now:
            silent.append(member.id)
            _give_up(heart, group, crew.owned_by(member.id), now, f"member {member.id} was not heard of")
            heart.happen(ev.MemberLeft(now, topic.id, group.name, member.id, "dead"))
    late = [number for number, move in crew.moving.items() if move.held and move.since + REBALANCE_PATIENCE_MS <= now]
    _give_up(heart, group, late, now, "its partition has moved")
    if silent or crew.unplanned:
        rebalance(heart, topic, group, f"{', '.join(silent[:5])} died" if silent else "what was begun", now)
    else:
        hand_on(heart, topic, group, now)
    heart.state.watch(topic, group)


def _give_up(heart: Heart, group: Group, partitions: Collection[int], now: int, why: str) -> None:
    """Leases of some partitions end as if their time were over: the attempt is used up."""
    for lease in _leases(heart, group) if partitions else ():
        held = [(run, run.mask) for run in lease.runs if run.mask and run.partition in partitions]
        if held:
            heart.fail(lease, "expire", held, now, None, 0.0, why)


def _release(heart: Heart, group: Group, partitions: Collection[int], now: int) -> None:
    """What is leased of some partitions is ready again, and no attempt is counted."""
    for lease in _leases(heart, group) if partitions else ():
        spans = tuple(span for span in lease.spans() if span[0] in partitions)
        if spans:
            heart.happen(ev.Settled(now, group.topic, group.name, lease.token, "release", spans))


def _leases(heart: Heart, group: Group) -> Iterable[Lease]:
    return [heart.state.leases[token] for token in sorted(group.tokens)]
