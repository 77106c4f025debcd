"""Virtual shards that go from server to server under a load, as faults: some movers live, some die on their way."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from mqueue.cluster.moving.fleet import Fleet
from mqueue.cluster.moving.mover import STEPS, Mover
from mqueue.log.postgres.link import Link
from mqueue.policy.routing import virtual_shard
from tests.cluster.faults.breaking import Fault
from tests.cluster.faults.history import now
from tests.cluster.faults.scene import Disturbance, Scene, until_true

MOVES = 6
HEAL_SECONDS_MAX = 120.0


class Died(Exception):
    """What happens to who moves something."""


def wander(scene: Scene) -> Disturbance:
    """One topic after the other goes to another server."""
    return _go(scene, killed=False)


def wander_and_die(scene: Scene) -> Disturbance:
    """The same, but every mover dies, at any step. What has left is finished by the nodes, what has not by another."""
    return _go(scene, killed=True)


def _go(scene: Scene, *, killed: bool) -> Disturbance:
    since = now()
    fleet = Fleet([Link(url, "going") for url in scene.stage.databases])
    try:
        for _ in range(MOVES):
            vshard = virtual_shard(scene.namespace, scene.rng.choice(scene.topics).name)
            home = fleet.map().homes[vshard]
            target = scene.rng.choice([server.place for server in fleet.servers if server.place != home])
            if killed:
                _die(fleet, home, target, vshard, scene.rng)
                until_true(lambda: not any(move.left for move in fleet.map().moves), HEAL_SECONDS_MAX)
                list(fleet.resume())
            else:
                list(fleet.move(fleet.to([vshard], target)))
            found = fleet.map()
            assert found.homes[vshard] == target, f"virtual shard {vshard} is at {found.homes.get(vshard)}"
            assert not found.moves, found.moves
            assert not found.troubles, found.troubles
            scene.wait(scene.rng.uniform(0, 1))
    finally:
        fleet.close()
    scene.wait_for(scene.topics, now())
    return Disturbance(since, now(), scene.topics, general=True)


def _die(fleet: Fleet, source: int, target: int, vshard: int, rng: Random) -> None:
    last = rng.choice(STEPS)

    def told(vshards: Sequence[int], step: str) -> None:
        if step == last:
            raise Died

    try:
        list(Mover(fleet.servers[source], fleet.servers[target], told=told).move([vshard]))
    except Died:
        return
    raise AssertionError(f"it did not die when it was {last}")


GOING = (
    Fault("move", wander),
    Fault("move and die", wander_and_die),
    Fault("wal: move", wander, redis=True, wal=True),
    Fault("wal: move and die", wander_and_die, redis=True, wal=True),
)
