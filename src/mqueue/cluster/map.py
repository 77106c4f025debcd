"""The map of a cluster: which server has which virtual shard, by what all servers say. Pure.

Each server has rows for what lives there, what comes and what went away. They agree but for moments; where they do not,
the highest map epoch is right: it rises whenever a virtual shard leaves a server, and goes with it. A server from an
old backup says what was true once, with a lower epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from mqueue.log.postgres.moving import Row
from mqueue.policy.routing import VIRTUAL_SHARDS


class Move(Struct, frozen=True):
    """`left`: it has left its source, and is to be brought to its end. Else it may be given up as well."""

    vshard: int
    source: int
    target: int
    left: bool


class Trouble(Struct, frozen=True):
    """Servers that contradict each other. `place`: the server whose row is not believed; None: none is."""

    vshard: int
    code: str
    place: int | None
    why: str


class Map(Struct, frozen=True):
    homes: dict[int, int]
    """Of virtual shards, the places of the servers that have them."""
    moves: tuple[Move, ...]
    troubles: tuple[Trouble, ...]
    targets: dict[int, int]
    """Where those went that are nowhere just now."""


def judge(said: Mapping[int, Sequence[Row]], servers: int) -> Map:
    """`said`: the rows of each server that was heard, by its place; there are `servers` of them."""
    by_vshard: dict[int, dict[int, Row]] = {vshard: {} for vshard in range(VIRTUAL_SHARDS)}
    for place, rows in said.items():
        for row in rows:
            by_vshard.setdefault(row.vshard, {})[place] = row
    away = frozenset(range(servers)) - said.keys()
    homes: dict[int, int] = {}
    moves: list[Move] = []
    troubles: list[Trouble] = []
    targets: dict[int, int] = {}
    for vshard, there in by_vshard.items():
        one = _Judged(vshard, there, away)
        troubles += one.troubles
        moves += one.moves
        if one.home is not None:
            homes[vshard] = one.home
        elif one.target is not None:
            targets[vshard] = one.target
    return Map(homes, tuple(moves), tuple(troubles), targets)


class _Judged:
    """What is to be believed of one virtual shard. `there`: its row at each server that has one."""

    def __init__(self, vshard: int, there: Mapping[int, Row], away: frozenset[int]) -> None:
        self._vshard = vshard
        self.home: int | None = None
        self.target: int | None = None
        self.moves: list[Move] = []
        self.troubles: list[Trouble] = []
        active = [(row.map_epoch, place) for place, row in there.items() if row.state == "active"]
        went = [(row.map_epoch, place) for place, row in there.items() if row.state == "moved"]
        newest = max(active + went, default=(0, -1))[0]
        right = [place for epoch, place in active if epoch == newest]
        for epoch, place in active:
            if epoch < newest:
                why = f"server {place} has it at epoch {epoch}, but it went on to epoch {newest}; is it a backup?"
                self._complain("stale", place, why)
        if len(right) == 1:
            self.home = right[0]
        elif right:
            self._complain("twice", None, f"servers {', '.join(map(str, sorted(right)))} have it at epoch {newest}")
        elif went:
            source = max(went)[1]
            self._gone(source, there[source], there, away)
        elif not away:
            self._complain("nowhere", None, "no server has it")
        for place, row in there.items():
            if row.state == "incoming" and row.came_from is not None and not self.moves:
                self.moves.append(Move(vshard, row.came_from, place, False))

    def _gone(self, source: int, row: Row, there: Mapping[int, Row], away: frozenset[int]) -> None:
        """It left a server, and is active nowhere that we know."""
        self.target = target = row.to if row.to is not None else -1
        if target in away:
            return
        if row.remains == "needed":
            self.moves.append(Move(self._vshard, source, target, True))
            return
        state = there[target].state if target in there else "unknown"
        why = f"it went from server {source} to server {target}, where it is {state}; is it a backup?"
        self._complain("lost", None, why)

    def _complain(self, code: str, place: int | None, why: str) -> None:
        self.troubles.append(Trouble(self._vshard, code, place, why))


def told(troubles: Iterable[Trouble], most: int = 3) -> str:
    """Troubles in a sentence, the first few of each kind."""
    by_why: dict[str, list[int]] = {}
    for trouble in troubles:
        by_why.setdefault(trouble.why, []).append(trouble.vshard)
    parts = []
    for why, vshards in list(by_why.items())[:most]:
        named = ", ".join(map(str, vshards[:most])) + (", …" if len(vshards) > most else "")
        parts.append(f"virtual shard{'s' if len(vshards) > 1 else ''} {named}: {why}")
    more = len(by_why) - most
    return "; ".join(parts) + (f"; {more} more" if more > 0 else "")
