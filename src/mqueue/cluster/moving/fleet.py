"""All PostgreSQL servers of a cluster, as somebody sees them who moves virtual shards: what each has, what is to go.

Talks to the servers themselves, and to no node. Blocking.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from mqueue.cluster.map import Map, judge, told
from mqueue.cluster.moving.heeding import Server, heed
from mqueue.cluster.moving.mover import Done, Mover
from mqueue.log.postgres import catalog, migrate, moving, owning
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.moving import Row
from mqueue.model.errors import BadSetting, Conflict, Refused, ShardDown
from mqueue.policy.routing import VIRTUAL_SHARDS
from mqueue.policy.spread import emptied, evened, in_turn

Plan = dict[tuple[int, int], list[int]]
"""By source and target, the virtual shards that are to go."""


class View(Struct, frozen=True):
    """What one server has. `state`: up, away, or what is wrong with it."""

    place: int
    server: str
    state: str
    vshards: int = 0
    topics: int = 0
    messages: int = 0
    bytes: int = 0
    nodes: dict[str, int] = {}
    """How many virtual shards each node delivers from; "": nobody."""
    coming: int = 0
    going: int = 0
    """Virtual shards that have left, and are active nowhere yet."""
    remains: int = 0
    """Virtual shards that live elsewhere, of which something lies here still."""
    mover: bool = False
    """Whether somebody is moving something away from it now."""


class Fleet:
    """`links`: to all servers, in the order of their places; `hosts`: of those that have several the DSN of each."""

    def __init__(self, links: Sequence[Link], hosts: Sequence[Sequence[str]] = ()) -> None:
        several = hosts or [()] * len(links)
        self.servers = [
            Server(place, link, tuple(those)) for place, (link, those) in enumerate(zip(links, several, strict=True))
        ]

    def close(self) -> None:
        for server in self.servers:
            server.link.close()

    def check(self) -> None:
        """Raise BadSetting unless these are the servers of one cluster, each in its place, ShardDown if one is away.
        From then on they are the primaries, as far as anybody knows."""
        for server in self.servers:
            migrate.check(server.link)
        heed(*self.servers)
        clusters = {migrate.cluster_of(server.link) for server in self.servers}
        if len(clusters) > 1 or None in clusters:
            raise BadSetting("these servers do not belong to one cluster: start a node first", code="no_cluster")
        for server in self.servers:
            place = migrate.place_of(server.link)
            if place != server.place:
                raise BadSetting(f"{server.link.server} is server {place} of its cluster, not {server.place}")
        count = max(migrate.servers(server.link) for server in self.servers)
        if count > len(self.servers):
            raise BadSetting(
                f"the cluster has {count} servers, and DATABASE_URLS names {len(self.servers)}", code="servers_missing"
            )

    def said(self) -> dict[int, list[Row]]:
        """The rows of every server that can be reached."""
        found: dict[int, list[Row]] = {}
        for server in self.servers:
            try:
                found[server.place] = moving.rows(server.link)
            except ShardDown:
                continue
        return found

    def map(self) -> Map:
        return judge(self.said(), len(self.servers))

    def views(self) -> Iterator[View]:
        for server in self.servers:
            try:
                migrate.check(server.link)
                yield _view(server)
            except ShardDown as problem:
                yield View(server.place, server.link.server, f"away: {problem.message}")
            except BadSetting as problem:
                yield View(server.place, server.link.server, problem.message)

    # What is to go

    def to(self, vshards: Sequence[int], target: int) -> Plan:
        """These to a server, wherever they are."""
        self._at(target)
        found = self._agreed()
        plan: Plan = {}
        for vshard in vshards:
            if not 0 <= vshard < VIRTUAL_SHARDS:
                raise Refused(f"virtual shard {vshard}; there are 0 to {VIRTUAL_SHARDS - 1}", code="no_vshard")
            if vshard not in found.homes:
                raise Conflict(
                    f"virtual shard {vshard} is at no server now: see `mqueue shards list`", code="not_there"
                )
            if found.homes[vshard] != target:
                plan.setdefault((found.homes[vshard], target), []).append(vshard)
        return self._ordered(plan)

    def drained(self, place: int) -> Plan:
        """Everything away from a server."""
        self._at(place)
        counts = self._counts()
        if len(counts) < 2:
            raise Refused("there is no other server", code="no_server")
        return self._chosen(emptied(counts, place))

    def rebalanced(self) -> Plan:
        return self._chosen(evened(self._counts()))

    def _counts(self) -> dict[int, int]:
        homes = Counter(self._agreed().homes.values())
        return {server.place: homes[server.place] for server in self.servers}

    def _chosen(self, counts: Mapping[tuple[int, int], int]) -> Plan:
        """So many, of all nodes alike."""
        homes = self._agreed().homes
        plan: Plan = {}
        for source in sorted({source for source, _ in counts}):
            here = [vshard for vshard, place in homes.items() if place == source]
            waiting = iter(in_turn(here, _ranks(self.servers[source].link)))
            for (place, target), count in counts.items():
                if place == source:
                    plan[place, target] = [next(waiting) for _ in range(count)]
        return plan

    def _ordered(self, plan: Plan) -> Plan:
        return {way: in_turn(plan[way], _ranks(self.servers[way[0]].link)) for way in plan}

    def _agreed(self) -> Map:
        """Raises Conflict if servers contradict each other: whoever moves something then may move the wrong one."""
        found = self.map()
        if found.troubles:
            raise Conflict(f"the servers contradict each other: {told(found.troubles)}", code="map_conflict")
        return found

    def _at(self, place: int) -> Server:
        if not 0 <= place < len(self.servers):
            raise Refused(f"server {place}; there are 0 to {len(self.servers) - 1}", code="no_server")
        return self.servers[place]

    # Doing it

    def move(self, plan: Plan, *, force: bool = False, rate: float = 0.0) -> Iterator[Done]:
        movers = {way: self._mover(way, rate) for way in plan}
        if not force:
            for mover in movers.values():
                mover.check_nodes()
        for way, vshards in plan.items():
            yield from movers[way].move(vshards)

    def resume(self, rate: float = 0.0) -> Iterator[Done]:
        """Bring to an end whatever somebody has begun."""
        for way in self._begun():
            yield from self._mover(way, rate).go_on()

    def undo(self) -> Iterator[int]:
        """Give up what has not left yet."""
        for way in self._begun():
            yield from self._mover(way).undo()

    def stale(self) -> dict[tuple[int, int], dict[int, int]]:
        """By a server that was set back and the home of what it says it has: those, and how many messages lie there."""
        found = self.map()
        stale: dict[tuple[int, int], dict[int, int]] = {}
        for one in found.troubles:
            if one.code == "stale" and one.place is not None and one.vshard in found.homes:
                link = self.servers[one.place].link
                topics = [topic.id for topic in moving.topics(link, one.vshard)]
                stale.setdefault((one.place, found.homes[one.vshard]), {})[one.vshard] = moving.messages(link, topics)
        return stale

    def drop_stale(self) -> Iterator[int]:
        """Let these servers not have it any more: what lies there is deleted."""
        for way in self.stale():
            yield from self._mover(way).give_up()

    def _begun(self) -> list[tuple[int, int]]:
        """Moves that are under way, and those that are over but for what they left."""
        said = self.said()
        ways = {(move.source, move.target) for move in judge(said, len(self.servers)).moves}
        ways |= {
            (place, row.to)
            for place, rows in said.items()
            for row in rows
            if row.state == "moved" and row.remains == "needed" and row.to is not None
        }
        return sorted(way for way in ways if way[0] in said and way[1] in said)

    def _mover(self, way: tuple[int, int], rate: float = 0.0) -> Mover:
        return Mover(self.servers[way[0]], self.servers[way[1]], rate=rate)


def _view(server: Server) -> View:
    link = server.link
    rows = moving.rows(link)
    messages, size = moving.weight(link)
    nodes = Counter(address for _, _, _, address, _ in owning.owners(link))
    return View(
        server.place,
        link.server,
        "up",
        sum(row.state == "active" for row in rows),
        sum(catalog.namespaces(link).values()),
        messages,
        size,
        dict(sorted(nodes.items())),
        sum(row.state == "incoming" for row in rows),
        sum(row.state == "moved" and row.remains == "needed" for row in rows),
        sum(row.remains == "free" for row in rows),
        moving.is_locked(link),
    )


def _ranks(link: Link) -> dict[int, int]:
    """Of the virtual shards at a server, the ranks of the nodes that deliver from them, as nodes count them."""
    sharers = sorted(owner for owner, _, address in owning.alive(link) if address)
    ranks = {owner: rank for rank, owner in enumerate(sharers)}
    return {vshard: -1 if owner is None else ranks.get(owner, -1) for vshard, _, _, _, owner in owning.owners(link)}
