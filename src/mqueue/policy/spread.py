"""How virtual shards are spread over nodes, and over servers: evenly, moving as few as need be. Pure: who is alive is
an argument."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct


class Share(Struct, frozen=True):
    """What a node should do: take some of those that are free, or give some back."""

    take: tuple[int, ...] = ()
    give: tuple[int, ...] = ()


def share(mine: Sequence[int], free: Sequence[int], total: int, nodes: int, rank: int) -> Share:
    """`total` virtual shards are there, `nodes` nodes alive, this one is number `rank` of them.

    Each node has total / nodes of them, the first ones one more. A node gives back only what is beyond that, so that
    those who have fewer can take it; and takes no more, so that two who look at the same time leave each other room.
    """
    least, more = divmod(total, max(1, nodes))
    target = least + (rank < more)
    if len(mine) > target:
        return Share(give=tuple(sorted(mine)[target - len(mine) :]))
    room = target - len(mine)
    start = rank * len(free) // max(1, nodes)  # nodes that look at once begin at different places
    turned = [*free[start:], *free[:start]]
    return Share(take=tuple(turned[:room]))


def evened(counts: Mapping[int, int]) -> dict[tuple[int, int], int]:
    """How many virtual shards have to go from which server to which, so that all have the same number or one more.

    `counts`: how many each has. As few as possible: nobody gives and gets.
    """
    if not counts:
        return {}
    least, more = divmod(sum(counts.values()), len(counts))
    fullest = sorted(counts, key=lambda place: (-counts[place], place))
    wanted = {place: least + (rank < more) for rank, place in enumerate(fullest)}
    givers = [[place, counts[place] - wanted[place]] for place in fullest if counts[place] > wanted[place]]
    takers = [[place, wanted[place] - counts[place]] for place in fullest if counts[place] < wanted[place]]
    return _matched(givers, takers)


def emptied(counts: Mapping[int, int], place: int) -> dict[tuple[int, int], int]:
    """The same if one of the servers is to have none."""
    left = {other: count for other, count in counts.items() if other != place}
    if not left:
        return {}
    takers = dict.fromkeys(left, 0)
    for _ in range(counts[place]):
        fewest = min(left, key=lambda other: (left[other] + takers[other], other))
        takers[fewest] += 1
    return {(place, other): count for other, count in takers.items() if count}


def in_turn(vshards: Sequence[int], owners: Mapping[int, int]) -> list[int]:
    """Virtual shards in an order in which they can go away without anybody else having too many: always one of the
    node that owns most, the last one of those that own as many.

    `owners`: of all that are there, the ranks of their nodes; -1: nobody's.
    """
    owned = Counter(owners.values())
    waiting: dict[int, list[int]] = {}
    for vshard in sorted(vshards, reverse=True):
        waiting.setdefault(owners.get(vshard, -1), []).append(vshard)
    found: list[int] = []
    while waiting:
        rank = max(waiting, key=lambda one: (owned[one], one))
        found.append(waiting[rank].pop())
        owned[rank] -= 1
        if not waiting[rank]:
            del waiting[rank]
    return found


def _matched(givers: list[list[int]], takers: list[list[int]]) -> dict[tuple[int, int], int]:
    """Who has too many gives to who has too few."""
    found: dict[tuple[int, int], int] = {}
    while givers and takers:
        count = min(givers[0][1], takers[0][1])
        found[givers[0][0], takers[0][0]] = count
        for side in (givers, takers):
            side[0][1] -= count
            if not side[0][1]:
                side.pop(0)
    return found
