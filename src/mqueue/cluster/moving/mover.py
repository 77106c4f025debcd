"""Moves virtual shards from one server to another while they are used.

    expect    the target knows that it comes; the source serves it on
    copy      what is there goes over, while more is added
    leave     the source refuses everything from now on; nobody else serves it yet
    rest      what came last goes over
    activate  the target serves it
    release   what lies at the source still may go; and goes

Each step may be done twice. A mover that dies before `leave` has changed nothing that anybody sees: another one may go
on or undo it. After `leave` anybody may bring it to its end, and the nodes do. One mover at a time moves things away
from a server: it holds a lock there for as long as its connection lasts, so who has died is known. At the target it
holds one as well, and whoever comes after it ends the connection that has it: a mover that stood still for long does
nothing more, at neither of them.

Before each step that cannot be undone it looks whether both are the primaries still. If another was promoted it stops.

Nothing is asked of nodes: a statement that comes too late is refused, and whoever made it looks where to go.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from mqueue.cluster.map import Map, judge
from mqueue.cluster.moving import comparing
from mqueue.cluster.moving.copying import Copied, Copier
from mqueue.cluster.moving.heeding import Server, heed
from mqueue.log.postgres import living, moving, owning
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.moving import Left, Row
from mqueue.log.postgres.problems import Broken, Moved, TopicTaken
from mqueue.model.errors import Conflict, Refused, Unavailable

_KNOWS_MOVES = 7
"""The version of the schema that nodes have to know."""
BULK = 256
"""So many that have nothing go at once."""
_CLEARED_AT_ONCE = 1_000
STILL_SECONDS = 10.0
"""Whoever lets both servers wait for so long, while something has left, is followed by another."""
STEPS = ("expected", "copied", "left", "rested", "activated", "released")


class Done(Struct, frozen=True):
    """`pause_ms`: for how long nobody served it."""

    vshards: tuple[int, ...]
    source: int
    target: int
    pause_ms: int
    copied: Copied


class Mover:
    """From one server to another. `told` hears of each step when it is done: the virtual shards, and its name."""

    def __init__(
        self,
        source: Server,
        target: Server,
        *,
        rate: float = 0.0,
        told: Callable[[Sequence[int], str], None] = lambda vshards, step: None,
    ) -> None:
        if source.place == target.place:
            raise Refused(f"server {source.place} is where they are already", code="same_server")
        self._source = source
        self._target = target
        self._rate = rate
        self._told = told

    def check_nodes(self) -> None:
        """Raise if a node that works at the source knows nothing of the target: it could not serve what goes there."""
        known = {node for _, node, _ in owning.alive(self._target.link)}
        missing = [
            address or f"node {node}" for _, node, address in owning.alive(self._source.link) if node not in known
        ]
        if missing:
            raise Refused(
                f"{len(missing)} nodes have no session at server {self._target.place}, {self._target.link.server}: "
                f"{', '.join(missing[:5])}; start them with all DATABASE_URLS, or say --force",
                code="node_missing",
            )
        old = living.too_old(living.running(self._source.link), _KNOWS_MOVES)
        if old:
            raise Refused(
                f"{len(old)} nodes do not know that virtual shards move, such as {old[0]}: they need a newer mqueue",
                code="node_old",
            )

    def move(self, vshards: Sequence[int]) -> Iterator[Done]:
        """In this order, but first what has left already, and those that have nothing. What lies at the source still is
        removed at the end."""
        with self._alone():
            yield from self._finish_left()
            empty = moving.empty(self._source.link, vshards)
            for start in range(0, len(empty), BULK):
                yield from self._bulk(empty[start : start + BULK])
            here = {row.vshard for row in moving.rows(self._source.link) if row.state == "active"}
            for vshard in dict.fromkeys(vshards):
                if vshard in here:
                    yield self._one(vshard)
            self._tidy()

    def go_on(self) -> Iterator[Done]:
        """Bring to an end what somebody has begun between these two."""
        with self._alone():
            for move in self._begun().moves:
                if (move.source, move.target) == (self._source.place, self._target.place):
                    yield self._finish(move.vshard) if move.left else self._one(move.vshard)
            self._tidy()

    def finish(self) -> list[Done]:
        """The same for what has left: nothing else is touched. Who began it and does nothing is not waited for."""
        with self._alone(patient=False):
            done = list(self._finish_left())
            self._release_known()
        return done

    def undo(self) -> list[int]:
        """Give up what was begun between these two and has not left; what was copied goes."""
        with self._alone():
            begun = [
                move.vshard
                for move in self._begun().moves
                if not move.left and (move.source, move.target) == (self._source.place, self._target.place)
            ]
            given_up = moving.refuse(self._target.link, begun) if begun else []
            for vshard in given_up:
                clear(self._target.link, vshard)
        return given_up

    def give_up(self) -> list[int]:
        """Those that the source says it has, but the target has at a higher epoch: the source was set back. What lies
        there goes."""
        with self._alone():
            found = self._begun()
            stale = [one.vshard for one in found.troubles if (one.code, one.place) == ("stale", self._source.place)]
            left = self._leave([vshard for vshard in stale if found.homes.get(vshard) == self._target.place])
            self._release(left)
            self._tidy()
        return [one.vshard for one in left]

    # Steps

    def _bulk(self, vshards: Sequence[int]) -> Iterator[Done]:
        """Those that have nothing to be copied, all at once. One that got something meanwhile stays for later."""
        self._expect(vshards)
        self._expect_anew(sorted(set(vshards) - set(moving.empty(self._target.link, vshards))))
        self._step(vshards, "expected")
        begun = time.monotonic()
        left = self._leave(vshards, only_empty=True)
        self._step(vshards, "left")
        self._activate(left)
        pause = _ms_since(begun)
        gone = [one.vshard for one in left]
        self._step(gone, "activated")
        self._release(left)
        if gone:
            yield Done(tuple(gone), self._source.place, self._target.place, pause, Copied())

    def _one(self, vshard: int) -> Done:
        copied = Copied()
        copier = self._copier(vshard, copied)
        self._expect_rest(vshard)
        self._step([vshard], "expected")
        with _refusals(vshard, self._target):
            copier.live()
        self._step([vshard], "copied")
        begun = time.monotonic()
        left = self._leave([vshard])
        if not left:
            raise Conflict(f"virtual shard {vshard} is not active at server {self._source.place}", code="not_there")
        self._step([vshard], "left")
        return self._end(left[0], copier, copied, begun)

    def _finish_left(self) -> Iterator[Done]:
        for move in self._begun().moves:
            if move.left and (move.source, move.target) == (self._source.place, self._target.place):
                yield self._finish(move.vshard)

    def _finish(self, vshard: int) -> Done:
        """It has left, and is not active yet."""
        row = next(row for row in moving.rows(self._source.link) if row.vshard == vshard)
        copied = Copied()
        self._expect_rest(vshard)
        left = Left(vshard, row.map_epoch, row.owner_epoch)
        return self._end(left, self._copier(vshard, copied), copied, time.monotonic())

    def _end(self, left: Left, copier: Copier, copied: Copied, begun: float) -> Done:
        with _refusals(left.vshard, self._target):
            copier.rest()
        self._step([left.vshard], "rested")
        if not self._activate([left]):
            raise Conflict(
                f"virtual shard {left.vshard} was not expected at server {self._target.place} any more",
                code="not_expected",
            )
        pause = _ms_since(begun)
        self._step([left.vshard], "activated")
        self._release([left])
        self._step([left.vshard], "released")
        return Done((left.vshard,), self._source.place, self._target.place, pause, copied)

    def _leave(self, vshards: Sequence[int], *, only_empty: bool = False) -> list[Left]:
        heed(self._source, self._target)
        return moving.leave(self._source.link, vshards, self._target.place, only_empty=only_empty)

    def _activate(self, left: Sequence[Left]) -> list[int]:
        heed(self._source, self._target)
        return moving.activate(self._target.link, left)

    def _release(self, left: Sequence[Left]) -> None:
        heed(self._source, self._target)
        moving.release(self._source.link, left)

    def _expect(self, vshards: Sequence[int]) -> None:
        """What an earlier stay has left at the target goes first."""
        wanted = set(vshards)
        for vshard in moving.leftovers(self._target.link):
            if vshard in wanted:
                clear(self._target.link, vshard)
        missing = wanted - set(moving.expect(self._target.link, vshards, self._source.place))
        if missing:
            row = next(row for row in moving.rows(self._target.link) if row.vshard in missing)
            raise Conflict(
                f"virtual shard {row.vshard} cannot come to server {self._target.place}: {_state(row)}",
                code="not_movable",
            )

    def _expect_rest(self, vshard: int) -> None:
        """What somebody has copied stays there, if it is what the source had."""
        self._expect([vshard])
        if comparing.agree(self._source.link, self._target.link, vshard):
            comparing.drop_strays(self._target.link, vshard)
        else:
            self._expect_anew([vshard])

    def _expect_anew(self, vshards: Sequence[int]) -> None:
        """What was copied goes."""
        for vshard in moving.refuse(self._target.link, vshards):
            clear(self._target.link, vshard)
        self._expect(vshards)

    def _copier(self, vshard: int, copied: Copied) -> Copier:
        return Copier(self._source.link, self._target.link, vshard, copied, self._rate)

    def _begun(self) -> Map:
        """As these two see it."""
        said = {server.place: moving.rows(server.link) for server in (self._source, self._target)}
        return judge(said, 1 + max(said))

    def _tidy(self) -> None:
        self._release_known()
        for vshard in moving.leftovers(self._source.link):
            clear(self._source.link, vshard)

    def _release_known(self) -> None:
        """What is active at the target need not lie at the source: whoever moved it may have died before he said so."""
        there = {row.vshard: row.map_epoch for row in moving.rows(self._target.link) if row.state == "active"}
        kept = [row for row in moving.rows(self._source.link) if row.state == "moved" and row.remains == "needed"]
        done = [row for row in kept if there.get(row.vshard, -1) >= row.map_epoch]
        if done:
            self._release([Left(row.vshard, row.map_epoch, row.owner_epoch) for row in done])

    def _step(self, vshards: Sequence[int], step: str) -> None:
        self._told(vshards, step)

    # Alone

    @contextmanager
    def _alone(self, *, patient: bool = True) -> Iterator[None]:
        try:
            with self._source.link.held(), self._target.link.held():
                self._lock(patient)
                yield
        except Broken as problem:
            raise Unavailable(
                f"{problem.message}: somebody else may be moving the virtual shards of server {self._source.place} by"
                " now; go on with --resume",
                code="mover_lost",
            ) from None

    def _lock(self, patient: bool) -> None:
        alone = moving.lock(self._source.link)
        if not alone and not patient and self._are_still():
            alone = moving.follow(self._source.link)
        if not alone:
            raise Unavailable(
                f"somebody is moving virtual shards away from server {self._source.place} now", code="mover_busy"
            )
        if not moving.succeed(self._target.link, self._source.place):
            raise Unavailable(
                f"whoever moved virtual shards to server {self._target.place} is still connected there",
                code="mover_busy",
            )
        # If somebody has followed us at the source by now, it was his connection that we ended: then this fails.
        moving.lock(self._source.link)

    def _are_still(self) -> bool:
        """Both servers wait for whoever moves something: he was stopped, or his machine was."""
        ms = round(STILL_SECONDS * 1000)
        return moving.are_still(self._source.link, ms) and moving.are_still(self._target.link, ms, self._source.place)


def clear(link: Link, vshard: int) -> None:
    """Remove all that may go of a virtual shard that is not here any more."""
    while moving.clear(link, vshard, _CLEARED_AT_ONCE):
        pass


@contextmanager
def _refusals(vshard: int, target: Server) -> Iterator[None]:
    try:
        yield
    except TopicTaken as problem:
        raise Conflict(
            f"virtual shard {vshard} cannot go to server {target.place}: {problem}: both are from before the numbers of"
            " topics were unique in a cluster; undo the move, and choose another server",
            code="topic_taken",
        ) from None
    except Moved as problem:
        raise Conflict(f"{problem}: somebody else has moved it, or undone the move", code="not_expected") from None


def _state(row: Row) -> str:
    if row.state == "incoming":
        return f"it comes from server {row.came_from} already"
    if row.state == "active":
        return f"it lives there, at epoch {row.map_epoch}"
    return f"it has left for server {row.to}, and is not active there yet"


def _ms_since(begun: float) -> int:
    return round((time.monotonic() - begun) * 1000)
