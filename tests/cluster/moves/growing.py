"""A cluster grows while messages flow: a third server joins, nodes learn of it one by one, and all is spread anew."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from mqueue.cluster.moving import growing
from mqueue.cluster.moving.fleet import Fleet
from mqueue.log.postgres.link import Link
from mqueue.policy.routing import VIRTUAL_SHARDS, virtual_shard
from mqueue.testing import NodeServer
from tests.cluster.faults.history import now
from tests.cluster.faults.scene import until_true
from tests.cluster.moves.flow import Flow

PAUSE_MS_MAX = 1_000
"""What a virtual shard may be without a server: five times what was measured on two cores."""
GAP_SECONDS_MAX = 10.0
"""A call waits no longer than this for one that moves."""
SETTLE_SECONDS_MAX = 120.0
DRAIN_SECONDS_MAX = 120.0


class Growth(Struct):
    messages: int
    rate: float
    """Messages a second that were answered while virtual shards moved."""
    before: float
    """And before."""
    moved: int
    pause_ms: int
    """The longest that a virtual shard was served by nobody, as the mover says."""
    publish_gap: float
    receive_gap: float
    """The longest that a topic was without an answer, while virtual shards moved."""
    quiet_gaps: tuple[float, float]
    """The same before: how long somebody waits on this machine anyway."""
    wrong: list[str]

    def __str__(self) -> str:
        told = (
            f"{self.messages} messages, {self.before:.0f} -> {self.rate:.0f}/s while {self.moved} virtual shards moved;"
            f" paused {self.pause_ms} ms at most; longest gap: publishing {self.quiet_gaps[0]:.2f} ->"
            f" {self.publish_gap:.2f} s, receiving {self.quiet_gaps[1]:.2f} -> {self.receive_gap:.2f} s"
        )
        return "\n".join([told, *(f"    WRONG {line}" for line in self.wrong)])


def grow(place: Path, databases: Sequence[str], seed: int, topics: int = 6, seconds: float = 5.0) -> Growth:
    """`databases`: three, of which the last one joins."""
    names = [f"flow-{seed}-{number}" for number in range(topics)]
    settings = {"cluster.databaseUrls": list(databases[:2]), "metrics.enabled": False}
    nodes = [NodeServer(settings, place / f"grow{seed}-{number}") for number in range(2)]
    links = [Link(url, "grow", 60_000) for url in databases]
    fleet = Fleet(links)
    try:
        growing.add(links[:2], links[2])
        for node in nodes:  # one by one
            node.stop()
            node._settings["cluster.databaseUrls"] = list(databases)
            node.start()
        assert until_true(lambda: _shared(fleet, len(nodes)), SETTLE_SECONDS_MAX), list(fleet.views())
        return _measured(Flow([node.url for node in nodes], names), fleet, names, seconds)
    finally:
        fleet.close()
        for node in nodes:
            node.close()


def _measured(flow: Flow, fleet: Fleet, names: Sequence[str], seconds: float) -> Growth:
    flow.start()
    assert until_true(lambda: all(lane.published and lane.received for lane in flow.lanes), SETTLE_SECONDS_MAX)
    begun, first = now(), flow.published
    until_true(lambda: False, seconds)
    since, before = now(), flow.published
    plan = fleet.rebalanced()
    homes = fleet.map().homes
    for way, vshards in plan.items():  # those that messages flow to go in any case
        busy = [vshard for name in names if homes[vshard := virtual_shard("default", name)] == way[0]]
        plan[way] = list(dict.fromkeys([*busy, *vshards]))[: len(vshards)]
    done = list(fleet.move(plan))
    until, after = now(), flow.published
    flow.end(DRAIN_SECONDS_MAX)
    gaps = flow.gap(since, until)
    pause = max(one.pause_ms for one in done)
    return Growth(
        flow.published,
        (after - before) / (until - since),
        (before - first) / (since - begun),
        sum(len(one.vshards) for one in done),
        pause,
        *gaps,
        flow.gap(begun, since),
        flow.wrong() + _orphans(fleet) + _slow(pause, gaps),
    )


def _slow(pause_ms: int, gaps: tuple[float, float]) -> list[str]:
    wrong = [f"a topic was without an answer for {gap:.2f} s" for gap in gaps if gap >= GAP_SECONDS_MAX]
    return wrong + [f"a virtual shard was served by nobody for {pause_ms} ms"] * (pause_ms >= PAUSE_MS_MAX)


def _shared(fleet: Fleet, nodes: int) -> bool:
    return all(len(view.nodes) == nodes or not view.vshards for view in fleet.views())


def _orphans(fleet: Fleet) -> list[str]:
    found = fleet.map()
    counts = [view.vshards for view in fleet.views()]
    wrong = [str(one) for one in (*found.moves, *found.troubles)]
    if len(found.homes) != VIRTUAL_SHARDS or max(counts) - min(counts) > 1:
        wrong.append(f"{len(found.homes)} virtual shards have homes, {counts} at each server")
    return wrong
