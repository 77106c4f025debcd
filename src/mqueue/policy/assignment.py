"""Who gets which partition: even within one, and as few as possible move. Pure: does not know leases, nor time."""

from __future__ import annotations

from collections.abc import Sequence


def assign(members: Sequence[str], owners: Sequence[str]) -> list[str]:
    """The member that is to have each partition, given who has it now (empty: nobody); all empty without members.

    Those that have most already keep one more where it does not come out even, so nothing moves that need not: what
    moves is what is above somebody's share, or has no owner.
    """
    if not members:
        return [""] * len(owners)
    held: dict[str, list[int]] = {member: [] for member in members}
    for number, owner in enumerate(owners):
        if owner in held:
            held[owner].append(number)
    share, more = divmod(len(owners), len(members))
    richest = sorted(members, key=lambda member: -len(held[member]))  # stable: among equals, who stands first
    room = {member: share + (place < more) for place, member in enumerate(richest)}
    targets = [""] * len(owners)
    for member, numbers in held.items():
        for number in numbers[: room[member]]:
            targets[number] = member
        room[member] -= min(len(numbers), room[member])
    takers = (member for member in members for _ in range(room[member]))
    return [target or next(takers) for target in targets]
