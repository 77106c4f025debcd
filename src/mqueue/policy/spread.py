"""How virtual shards are spread over nodes: evenly, moving as few as need be. Pure: who is alive is an argument."""

from __future__ import annotations

from collections.abc import Sequence

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
