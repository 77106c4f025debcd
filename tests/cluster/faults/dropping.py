"""Faults of the network below TCP: packets are dropped, and nobody is told. The rest is as in `networks`.

A machine that is gone sends no last word. What it was connected to finds out by itself, by asking and by waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.cluster.faults.history import now
from tests.cluster.faults.networks import always, flapping, gone_clients, no_peer, no_redis, no_shard, poor_shard
from tests.cluster.faults.scene import Disturbance, Scene, until_true
from tests.cluster.network.packets import callers
from tests.cluster.network.proxy import Weather
from tests.cluster.network.wires import CUT, HOLE, NO_ANSWERS, NO_REQUESTS

HALF_OPEN_SECONDS_MAX = 60.0
"""A server asks after 15 seconds of silence, three times, and gives up; this machine is busy."""
LOSSY = Weather(loss=0.2)
NARROW = Weather(rate=200_000)
_CONNECTED = "select client_port from pg_stat_activity where application_name like 'mqueue:shard%%'"


def vanish(scene: Scene) -> Disturbance:
    """The machine of the owner is gone, and nobody hears of it: another takes over, and what is half open at the
    servers is given up there."""
    victim = scene.busiest()
    topics = scene.owned(victim)
    wired = scene.stage.wired(victim)
    held = [callers(wire.port) for wire in wired.shards]
    since = now()
    for wire in wired.all:
        wire.set(HOLE)
    victim.kill()
    scene.wait_back(topics, since)
    complaints = [
        f"server {server} has what is half open for more than {HALF_OPEN_SECONDS_MAX:g} s"
        for server, ports in enumerate(held)
        if not until_true(partial(_given_up, scene, server, ports), since + HALF_OPEN_SECONDS_MAX - now())
    ]
    for wire in wired.all:
        wire.heal()
    return Disturbance(since, now(), topics, nodes=[victim.url], in_time=7.0, complaints=complaints)


def _given_up(scene: Scene, server: int, ports: set[int]) -> bool:
    return ports.isdisjoint(port for (port,) in scene.stage.link(server).call(_CONNECTED))


PACKETS: dict[str, Callable[[Scene], Disturbance]] = {
    "vanish": vanish,
    "shard: cut": partial(no_shard, sky=always(CUT)),
    "shard: black hole": partial(no_shard, sky=always(HOLE)),
    "shard: hole, then gone": partial(no_shard, sky=always(HOLE), lost=True),
    "shard: no answers": partial(no_shard, sky=always(NO_ANSWERS), lost=True, in_time=8.0),
    "shard: no requests": partial(no_shard, sky=always(NO_REQUESTS)),
    "shard: lossy": partial(poor_shard, sky=always(LOSSY)),
    "shard: narrow": partial(poor_shard, sky=always(NARROW)),
    "shard: flapping": partial(poor_shard, sky=flapping),
    "redis: cut": partial(no_redis, sky=always(CUT)),
    "redis: black hole": partial(no_redis, sky=always(HOLE)),
    "redis: no answers": partial(no_redis, sky=always(NO_ANSWERS), lost=True),
    "redis: lossy": partial(no_redis, sky=always(LOSSY)),
    "redis: flapping": partial(no_redis, sky=flapping),
    "peer: black hole": partial(no_peer, sky=always(HOLE)),
    "peer: no answers": partial(no_peer, sky=always(NO_ANSWERS), lost=True),
    "peer: lossy": partial(no_peer, sky=always(LOSSY)),
    "peer: flapping": partial(no_peer, sky=flapping),
    "peer: gone clients": gone_clients,
}
