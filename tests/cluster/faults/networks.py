"""Faults of the network: of the wires between a node and a shard, all nodes and Redis, a node and the others, a node
and its clients. Each needs a stage that is wired."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from mqueue.testing import NodeServer
from tests.cluster.faults.calls import PATIENT
from tests.cluster.faults.history import Receive, Topic, now
from tests.cluster.faults.scene import Disturbance, Scene
from tests.cluster.network.proxy import Weather
from tests.cluster.network.wires import CUT, HOLE, NO_ANSWERS, NO_REQUESTS, Wire

BAD_SECONDS = 8.0
"""Longer than a session lasts."""
ANSWERED_SECONDS = 20.0
"""Within so long a call is answered, in whatever way, that is forwarded to a node which does not answer."""
CLIENTS = 12

Sky = Callable[[Scene], Weather]


def always(weather: Weather) -> Sky:
    return lambda scene: weather


def far(scene: Scene) -> Weather:
    """A round trip of 50 to 200 ms: as far as a shard may be. What is read of it is read in one go after the other."""
    return Weather(latency=scene.rng.uniform(0.025, 0.1))


def slow(scene: Scene) -> Weather:
    """A round trip of 50 to 500 ms."""
    return Weather(latency=scene.rng.uniform(0.025, 0.25), rate=scene.rng.choice((0.0, 1e6)))


def flapping(scene: Scene) -> Weather:
    return Weather(flaps=(scene.rng.uniform(0.2, 1.0), scene.rng.uniform(0.2, 1.0)))


@contextmanager
def bad(
    scene: Scene, wires: list[Wire], weather: Weather, lost: bool, node: NodeServer | None = None
) -> Iterator[None]:
    """`lost`: what was under way gets there never, instead of late. `node`: whose answers nobody counts on."""
    for wire in wires:
        wire.set(weather)
    if node is not None:
        scene.stage.cut_off.append(node)
    try:
        yield
    finally:
        for wire in wires:
            wire.heal(reset=lost)
        if node is not None:
            scene.stage.cut_off.remove(node)


# A node and a shard


def _victim(scene: Scene) -> tuple[NodeServer, int, list[Topic]]:
    """The node that delivers most, one of the servers that it delivers from, and those topics."""
    victim = scene.busiest()
    topics = scene.owned(victim)
    server = scene.rng.choice(sorted({topic.server for topic in topics}))
    return victim, server, [topic for topic in topics if topic.server == server]


def no_shard(scene: Scene, sky: Sky, lost: bool = False, in_time: float = 7.0) -> Disturbance:
    """The owner does not reach its shard for longer than its session lasts: another takes over. What it is asked
    meanwhile waits there, and reaches the shard when all is whole, if it is not lost: too late."""
    victim, server, topics = _victim(scene)
    leases = [scene.take(victim, topic, 20, 3.0) for topic in topics for _ in range(3)]
    wire = scene.stage.wired(victim).shards[server]
    since = now()
    with bad(scene, [wire], sky(scene), lost, victim):
        asked = scene.ack_later(victim, leases)
        scene.wait_back(topics, since)
        scene.wait(max(0.0, since + BAD_SECONDS - now()))
    for thread in asked:
        thread.join()
    scene.probe([victim])
    until = now()
    return Disturbance(since, until, topics, apart=[(victim.url, server)], in_time=in_time)


def poor_shard(scene: Scene, sky: Sky, in_time: float = 0.0) -> Disturbance:
    """The wire of the owner to its shard is bad, and not gone."""
    victim, server, topics = _victim(scene)
    wire = scene.stage.wired(victim).shards[server]
    since = now()
    with bad(scene, [wire], sky(scene), lost=False):
        if in_time:
            scene.wait_for(topics, since)
        scene.wait(max(0.0, since + BAD_SECONDS - now()))
    whole = since if in_time else now()
    scene.wait_for(topics, whole)
    apart = [(victim.url, server)]
    return Disturbance(since, now(), topics, apart=apart, whole=whole, in_time=in_time)


# Nodes and Redis


def no_redis(scene: Scene, sky: Sky, lost: bool = False) -> Disturbance:
    """Nobody is to notice."""
    wires = [wire for node in scene.stage.nodes for wire in scene.stage.wired(node).redis]
    assert wires
    since = now()
    with bad(scene, wires, sky(scene), lost):
        scene.wait(BAD_SECONDS / 2)
    scene.wait(BAD_SECONDS / 4)
    return Disturbance(since, now(), [])


# Nodes among themselves


def no_peer(scene: Scene, sky: Sky, lost: bool = False) -> Disturbance:
    """The other nodes do not reach an owner that lives: who asks it is served, who asks them is told so soon, and
    publishing goes on."""
    victim = scene.busiest()
    topics = scene.owned(victim)
    wire = scene.stage.wired(victim).peer
    complaints: list[str] = []
    since = now()
    with bad(scene, [wire], sky(scene), lost):
        asked = [
            threading.Thread(target=_timed, args=(scene, node, topic, complaints), daemon=True)
            for node in scene.stage.alive()
            for topic in topics
            if node is not victim
        ]
        for thread in asked:
            thread.start()
        _ask_owner(scene, victim, topics, complaints)
        for thread in asked:
            thread.join()
        scene.wait(max(0.0, since + BAD_SECONDS - now()))
    whole = now()
    scene.wait_for(topics, whole)
    return Disturbance(since, now(), topics, whole=whole, complaints=complaints)


def _timed(scene: Scene, node: NodeServer, topic: Topic, complaints: list[str]) -> None:
    begun = now()
    lease = scene.take(node, topic, 1, 2.0)
    _let_go(scene, node, lease)
    if now() - begun > ANSWERED_SECONDS:
        complaints.append(f"{node.url} answered {lease.outcome} {lease.code} after {now() - begun:.1f} s")


def _ask_owner(scene: Scene, owner: NodeServer, topics: list[Topic], complaints: list[str]) -> None:
    for topic in topics:
        lease = scene.take(owner, topic, 1, 2.0)
        _let_go(scene, owner, lease)
        if lease.code:
            complaints.append(f"the owner of {topic.name} answered {lease.code}")


def _let_go(scene: Scene, node: NodeServer, lease: Receive) -> None:
    if lease.got:
        scene.caller.settle(node.url, lease.topic, "ack", lease.token, [got.id for got in lease.got], timeout=PATIENT)


# A node and its clients


def gone_clients(scene: Scene) -> Disturbance:
    """Consumers that wait for messages are gone without a word: what was handed out to them comes back."""
    victim = scene.busiest()
    assert scene.stage.wires is not None
    wire = scene.stage.wires.open(victim.port)
    url = f"http://127.0.0.1:{wire.port}"
    topics = [topic for topic in scene.topics if topic.kind != "keyed"]
    waiting = [
        threading.Thread(
            target=partial(scene.caller.receive, url, topic.name, 20, 2.0, wait=3.0, timeout=PATIENT), daemon=True
        )
        for topic in (topics * CLIENTS)[:CLIENTS]
    ]
    since = now()
    for thread in waiting:
        thread.start()
    scene.stage.wait_until(lambda: wire.connections > 0)
    scene.wait(0.3)
    wire.abandon("client")
    for thread in waiting:
        thread.join()
    wire.set(CUT)
    scene.wait(2.0)
    return Disturbance(since, now(), [], nodes=[url])


SHARD: dict[str, Callable[[Scene], Disturbance]] = {
    "shard: cut": partial(no_shard, sky=always(CUT)),
    "shard: black hole": partial(no_shard, sky=always(HOLE)),
    "shard: hole, then reset": partial(no_shard, sky=always(HOLE), lost=True),
    "shard: no answers": partial(no_shard, sky=always(NO_ANSWERS), lost=True, in_time=8.0),
    "shard: late answers": partial(no_shard, sky=always(NO_ANSWERS), in_time=8.0),
    "shard: late requests": partial(no_shard, sky=always(NO_REQUESTS)),
    "shard: slow": partial(poor_shard, sky=far, in_time=8.0),
    "shard: flapping": partial(poor_shard, sky=flapping),
}
REDIS: dict[str, Callable[[Scene], Disturbance]] = {
    "redis: cut": partial(no_redis, sky=always(CUT)),
    "redis: black hole": partial(no_redis, sky=always(HOLE)),
    "redis: no answers": partial(no_redis, sky=always(NO_ANSWERS), lost=True),
    "redis: slow": partial(no_redis, sky=slow),
    "redis: flapping": partial(no_redis, sky=flapping),
}
PEER: dict[str, Callable[[Scene], Disturbance]] = {
    "peer: cut": partial(no_peer, sky=always(CUT)),
    "peer: black hole": partial(no_peer, sky=always(HOLE)),
    "peer: no answers": partial(no_peer, sky=always(NO_ANSWERS), lost=True),
    "peer: slow": partial(no_peer, sky=slow),
    "peer: flapping": partial(no_peer, sky=flapping),
    "peer: gone clients": gone_clients,
}
