"""What may happen to a cluster at any time: each breaks one thing, for a while, and makes it whole again.

To add one: write a function of a stage, the number of its victim and chance, and list it in `MISCHIEFS` with what it
breaks. Two things are broken at once only if they are not the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from random import Random

from msgspec import Struct

from mqueue.assembly.local import LocalServer
from mqueue.cluster.moving.fleet import Fleet
from mqueue.cluster.moving.mover import STEPS, Mover
from mqueue.log.postgres import catalog, owning
from mqueue.log.postgres.link import Link
from mqueue.model.errors import Error, ShardDown, Unavailable
from tests.cluster.faults.history import now
from tests.cluster.faults.stage import Stage
from tests.cluster.moves.going import Died
from tests.cluster.network.proxy import Weather
from tests.cluster.network.wires import CUT, HOLE, NO_ANSWERS, NO_REQUESTS, Wire

START_SECONDS_MAX = 90.0

Run = Callable[[Stage, int, Random], None]


class Mischief(Struct, frozen=True):
    """`breaks`: what, "node", "server" or "redis", or wires of it; or the "places" of topics, of which one changes."""

    name: str
    breaks: str
    run: Run

    def victims(self, stage: Stage) -> int:
        """How many there are to choose from."""
        if self.breaks in ("server", "sessions"):
            return len(stage.databases)
        return 1 if self.breaks == "places" or self.breaks.startswith("redis") else len(stage.nodes)


def wait(seconds: float) -> None:
    threading.Event().wait(seconds)


def started(server: LocalServer) -> None:
    """A node cannot start while its first server is away: again, until it can."""
    until = now() + START_SECONDS_MAX
    while True:
        try:
            server.start()
            return
        except Unavailable:
            if now() > until:
                raise
            wait(0.5)


# Processes


def kill_node(stage: Stage, victim: int, rng: Random) -> None:
    stage.nodes[victim].kill()
    wait(rng.uniform(0, 8))
    started(stage.nodes[victim])


def stop_node(stage: Stage, victim: int, rng: Random) -> None:
    with suppress(TimeoutError):  # it was killed then
        stage.nodes[victim].stop()
    wait(rng.uniform(0, 3))
    started(stage.nodes[victim])


def freeze_node(stage: Stage, victim: int, rng: Random) -> None:
    stage.nodes[victim].pause()
    wait(rng.uniform(1, 9))
    stage.nodes[victim].resume()


def kill_server(stage: Stage, victim: int, rng: Random) -> None:
    stage.servers[victim].kill()
    wait(rng.uniform(0, 4))
    stage.servers[victim].start()


def restart_server(stage: Stage, victim: int, rng: Random) -> None:
    stage.servers[victim].stop("fast")
    wait(rng.uniform(0, 2))
    stage.servers[victim].start()


def freeze_server(stage: Stage, victim: int, rng: Random) -> None:
    stage.servers[victim].pause()
    wait(rng.uniform(0.5, 8))
    stage.servers[victim].resume()


def end_sessions(stage: Stage, victim: int, rng: Random) -> None:
    with suppress(ShardDown):
        link = stage.link(victim)
        for session, _, _ in owning.alive(link):
            if rng.random() < 0.5:
                link.call("update mqueue.sessions set until = clock_timestamp() where owner = %b", (session,))
    wait(1.0)


def kill_redis(stage: Stage, victim: int, rng: Random) -> None:
    assert stage.redis is not None
    stage.redis.kill()
    wait(rng.uniform(0, 4))
    stage.redis.start()


def flush_redis(stage: Stage, victim: int, rng: Random) -> None:
    assert stage.redis is not None
    with suppress(Error, OSError):
        stage.redis.flush()
    wait(0.5)


# Moves


def move(stage: Stage, victim: int, rng: Random) -> None:
    _move(stage, rng, "")


def move_and_die(stage: Stage, victim: int, rng: Random) -> None:
    _move(stage, rng, rng.choice(STEPS))


def _move(stage: Stage, rng: Random, last: str) -> None:
    """What a topic has goes to another server, unless what is broken meanwhile is in its way, or the mover dies."""

    def told(vshards: Sequence[int], step: str) -> None:
        if step == last:
            raise Died

    with suppress(Error, Died), _fleet(stage) as fleet:
        vshard = rng.choice([row.vshard for one in fleet.servers for row in catalog.topics_of(one.link, None)])
        home = fleet.map().homes[vshard]
        target = rng.choice([one for one in fleet.servers if one.place != home])
        list(Mover(fleet.servers[home], target, told=told).move([vshard]))
    until = now() + START_SECONDS_MAX
    while not _arrived(stage):
        assert now() < until, "what was moved arrived nowhere"
        wait(0.5)


def _arrived(stage: Stage) -> bool:
    with suppress(Error), _fleet(stage) as fleet:
        fleet.check()
        list(fleet.resume())
        found = fleet.map()
        return not found.moves and not found.troubles
    return False


@contextmanager
def _fleet(stage: Stage) -> Iterator[Fleet]:
    fleet = Fleet([Link(url, "chaos") for url in stage.databases])
    try:
        yield fleet
    finally:
        fleet.close()


# Wires


def shard_wire(stage: Stage, victim: int, rng: Random) -> list[Wire]:
    return [rng.choice(stage.wired(stage.nodes[victim]).shards)]


def redis_wires(stage: Stage, victim: int, rng: Random) -> list[Wire]:
    return [wire for node in stage.nodes for wire in stage.wired(node).redis]


def peer_wire(stage: Stage, victim: int, rng: Random) -> list[Wire]:
    return [stage.wired(stage.nodes[victim]).peer]


def spoiled(choose: Callable[[Stage, int, Random], list[Wire]], weather: Callable[[Random], Weather]) -> Run:
    def run(stage: Stage, victim: int, rng: Random) -> None:
        wires = choose(stage, victim, rng)
        for wire in wires:
            wire.set(weather(rng))
        wait(rng.uniform(1, 9))
        for wire in wires:
            wire.heal(reset=rng.random() < 0.5)

    return run


WEATHERS: dict[str, Callable[[Random], Weather]] = {
    "cut": lambda rng: CUT,
    "hole": lambda rng: HOLE,
    "no answers": lambda rng: NO_ANSWERS,
    "no requests": lambda rng: NO_REQUESTS,
    "slow": lambda rng: Weather(latency=rng.uniform(0.025, 0.1)),
    "flaps": lambda rng: Weather(flaps=(rng.uniform(0.2, 1), rng.uniform(0.2, 1))),
}


def _spoilt() -> Iterable[Mischief]:
    for breaks, choose in (("wire to a shard", shard_wire), ("redis wires", redis_wires), ("wire to peers", peer_wire)):
        for name, weather in WEATHERS.items():
            yield Mischief(f"{breaks}: {name}", breaks, spoiled(choose, weather))


MISCHIEFS = (
    *(Mischief("kill node", "node", kill_node), Mischief("stop node", "node", stop_node)),
    *(Mischief("freeze node", "node", freeze_node), Mischief("kill server", "server", kill_server)),
    *(Mischief("restart server", "server", restart_server), Mischief("freeze server", "server", freeze_server)),
    *(Mischief("end sessions", "sessions", end_sessions), Mischief("kill redis", "redis", kill_redis)),
    *(Mischief("flush redis", "redis", flush_redis), Mischief("move", "places", move)),
    Mischief("move and die", "places", move_and_die),
    *_spoilt(),
)
