"""The faults: each breaks something under a load, waits until it is whole again, and says what it did."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import LiteralString
from uuid import uuid4

from msgspec import Struct

from mqueue.log.postgres import owning
from mqueue.log.postgres.link import Link
from mqueue.model.errors import ShardDown
from mqueue.policy.routing import virtual_shard
from tests.cluster.faults import dropping, networks
from tests.cluster.faults.history import now
from tests.cluster.faults.scene import Disturbance, Scene

STOP_SECONDS = 8.0
"""Longer than a session lasts."""
AWAY_SECONDS = 2.0
STORM = 6
"""So many things happen in one."""
_TRIES = 5
_COMMITS: LiteralString = "select pid from pg_stat_activity where application_name like 'mqueue:%%:commit'"


class Fault(Struct, frozen=True):
    """`redis`: it needs one. `wal`: publishers are answered by the logs of nodes. `wired`: it is one of the network;
    `packets`: whose packets are dropped by the kernel."""

    name: str
    run: Callable[[Scene], Disturbance]
    redis: bool = False
    wal: bool = False
    wired: bool = False
    packets: bool = False


def kill_owner(scene: Scene) -> Disturbance:
    """Without a word. Others wait until its session is over."""
    victim = scene.busiest()
    topics = scene.owned(victim)
    since = now()
    victim.kill()
    scene.wait_back(topics, since)
    return Disturbance(since, now(), topics, nodes=[victim.url], in_time=6.0)


def stop_owner(scene: Scene) -> Disturbance:
    """It stands still for longer than its session lasts, and then goes on as if nothing had happened. What it is asked
    meanwhile it answers then."""
    victim = scene.busiest()
    topics = scene.owned(victim)
    leases = [scene.take(victim, topic, 20, 3.0) for topic in topics for _ in range(3)]
    since = now()
    scene.stage.pause(victim)
    asked = scene.ack_later(victim, leases)
    scene.wait_back(topics, since)
    scene.wait(max(0.0, since + STOP_SECONDS - now()))
    scene.stage.resume(victim)
    for thread in asked:
        thread.join()
    scene.probe([victim])
    return Disturbance(since, now(), topics, nodes=[victim.url], in_time=7.0)


def kill_server(scene: Scene) -> Disturbance:
    """A PostgreSQL server, with everything that is under way."""
    number = scene.rng.randrange(len(scene.stage.servers))
    topics = scene.on(number)
    since = now()
    scene.stage.servers[number].kill()
    scene.wait(AWAY_SECONDS)
    scene.stage.servers[number].start()
    whole = now()
    scene.wait_for(topics, whole)
    return Disturbance(since, now(), topics, silent=topics, whole=whole)


def pause_server(scene: Scene) -> Disturbance:
    """Connections stay, nobody answers; sessions end meanwhile."""
    number = scene.rng.randrange(len(scene.stage.servers))
    topics = scene.on(number)
    since = now()
    scene.stage.servers[number].pause()
    scene.wait(STOP_SECONDS)
    scene.stage.servers[number].resume()
    scene.wait_back(topics, since)
    return Disturbance(since, now(), topics, silent=topics)


def end_session(scene: Scene) -> Disturbance:
    """By hand, while the node lives and thinks that it owns: another takes over at once."""
    victim = scene.busiest()
    topics = scene.owned(victim)
    since = now()
    for server in range(len(scene.stage.databases)):
        for owner in scene.stage.sessions(server, victim):
            scene.stage.link(server).call(
                "update mqueue.sessions set until = clock_timestamp() where owner = %b", (owner,)
            )
    scene.wait_back(topics, since)
    return Disturbance(since, now(), topics)


def usurp(scene: Scene) -> Disturbance:
    """Another owns what a node thinks is its own, in the middle of its commits; and leaves again."""
    victim = scene.busiest()
    topics = scene.owned(victim)
    since = now()
    for server in range(len(scene.stage.databases)):
        link, ghost = scene.stage.link(server), uuid4()
        vshards = [virtual_shard(scene.namespace, topic.name) for topic in topics if topic.server == server]
        owning.beat(link, ghost, 1000, "", 2_000)
        for owner in scene.stage.sessions(server, victim):
            link.call("update mqueue.sessions set until = clock_timestamp() where owner = %b", (owner,))
        owning.own(link, ghost, vshards)
        scene.wait(0.3)
        owning.leave_session(link, ghost)
    scene.wait_back(topics, since)
    return Disturbance(since, now(), topics)


def hold_commits(scene: Scene) -> Disturbance:
    """Commits of all nodes reach a server, and are done when others own what they are about."""
    number = scene.rng.randrange(len(scene.stage.databases))
    topics = scene.on(number)
    link = scene.stage.link(number)
    for _ in range(_TRIES):
        since = now()
        if _held_while_sessions_end(scene, link):
            scene.wait_back(topics, since)
            return Disturbance(since, now(), topics)
        scene.wait_back(topics, since)
    raise TimeoutError("the server stood still whenever its commits did")


def _held_while_sessions_end(scene: Scene, link: Link) -> bool:
    """Whether the server went on meanwhile: a process may be stopped while it has something that all others need."""
    held = [int(pid) for (pid,) in link.call(_COMMITS)]
    for pid in held:
        os.kill(pid, signal.SIGSTOP)
    try:
        scene.wait(1.0)
        link.call("update mqueue.sessions set until = clock_timestamp() where until > clock_timestamp()")
        scene.wait(AWAY_SECONDS + 1)
    except ShardDown:
        return False
    finally:
        for pid in held:
            os.kill(pid, signal.SIGCONT)
    return True


def hand_over(scene: Scene) -> Disturbance:
    """A node is told to stop, and gives back what it has."""
    victim = scene.busiest()
    topics = scene.owned(victim)
    since = now()
    victim.stop()
    scene.wait_back(topics, since)
    return Disturbance(since, now(), topics, nodes=[victim.url])


def join(scene: Scene) -> Disturbance:
    """One more node, which gets its share."""
    before = {node.url: scene.owned(node) for node in scene.stage.nodes}
    since = now()
    node = scene.stage.add_node()
    scene.stage.wait_until(scene.stage.settled)
    topics = [topic for topic in scene.owned(node) if topic not in before.get(node.url, [])]
    scene.wait_back(topics, since)
    return Disturbance(since, now(), topics)


def storm(scene: Scene) -> Disturbance:
    """One thing after the other, before anybody has got over the last: all topics suffer."""
    since = now()
    for _ in range(STORM):
        scene.rng.choice((_stumble, _stumble, _restart, _end_sessions, _hiccup))(scene)
        scene.wait(scene.rng.uniform(0, AWAY_SECONDS))
    scene.wait_for(scene.topics, now())
    return Disturbance(since, now(), scene.topics, general=True)


def _stumble(scene: Scene) -> None:
    """A node stands still for about as long as its session lasts."""
    node = scene.rng.choice(scene.stage.nodes)
    scene.stage.pause(node)
    scene.wait(scene.rng.uniform(3.5, 6.5))
    scene.stage.resume(node)


def _restart(scene: Scene) -> None:
    node = scene.rng.choice(scene.stage.nodes)
    node.kill()
    scene.wait(scene.rng.uniform(0, 2))
    node.start()


def _end_sessions(scene: Scene) -> None:
    link = scene.stage.link(scene.rng.randrange(len(scene.stage.databases)))
    link.call("update mqueue.sessions set until = clock_timestamp() where until > clock_timestamp()")


def _hiccup(scene: Scene) -> None:
    """A server stands still, for a shorter time than sessions last."""
    if scene.stage.servers:
        server = scene.rng.choice(scene.stage.servers)
        server.pause()
        scene.wait(scene.rng.uniform(0.5, 4))
        server.resume()


def kill_redis(scene: Scene) -> Disturbance:
    """It comes back with nothing. Nobody is to notice."""
    assert scene.stage.redis is not None
    since = now()
    scene.stage.redis.kill()
    scene.wait(AWAY_SECONDS)
    scene.stage.redis.start()
    scene.wait(AWAY_SECONDS)
    return Disturbance(since, now(), [])


def flush_redis(scene: Scene) -> Disturbance:
    """Everything in it is gone, several times."""
    assert scene.stage.redis is not None
    since = now()
    for _ in range(5):
        scene.stage.redis.flush()
        scene.wait(AWAY_SECONDS / 4)
    return Disturbance(since, now(), [])


def turn_redis_back(scene: Scene) -> Disturbance:
    """It has what it had a while ago, as after a failover to a replica that was behind."""
    assert scene.stage.redis is not None
    dump = scene.stage.redis.dump()
    scene.wait(AWAY_SECONDS)
    since = now()
    scene.stage.redis.restore(dump)
    scene.wait(AWAY_SECONDS)
    return Disturbance(since, now(), [])


def kill_briefly(scene: Scene) -> Disturbance:
    """It comes back, maybe while others are writing what it had answered: each message is there once."""
    victim = scene.busiest()
    topics = scene.owned(victim)
    since = now()
    victim.kill()
    scene.wait(scene.rng.uniform(0, STOP_SECONDS))
    victim.start()
    scene.wait_back(topics, since)
    return Disturbance(since, now(), topics, nodes=[victim.url])


FAULTS = (
    Fault("kill owner", kill_owner),
    Fault("stop owner", stop_owner),
    Fault("kill server", kill_server),
    Fault("pause server", pause_server),
    Fault("end session", end_session),
    Fault("usurp", usurp),
    Fault("hold commits", hold_commits),
    Fault("hand over", hand_over),
    Fault("join", join),
    Fault("storm", storm),
    Fault("kill redis", kill_redis, redis=True),
    Fault("flush redis", flush_redis, redis=True),
    Fault("turn redis back", turn_redis_back, redis=True),
    Fault("wal: kill redis", kill_redis, redis=True, wal=True),
    Fault("wal: flush redis", flush_redis, redis=True, wal=True),
    Fault("wal: turn redis back", turn_redis_back, redis=True, wal=True),
    Fault("wal: kill node", kill_owner, redis=True, wal=True),
    Fault("wal: node comes back", kill_briefly, redis=True, wal=True),
    Fault("wal: stop owner", stop_owner, redis=True, wal=True),
    Fault("wal: kill server", kill_server, redis=True, wal=True),
    Fault("wal: storm", storm, redis=True, wal=True),
    *(Fault(name, run, wired=True) for name, run in (networks.SHARD | networks.PEER).items()),
    *(Fault(name, run, wired=True, redis=True) for name, run in networks.REDIS.items()),
    *(Fault(f"wal: {name}", run, wired=True, redis=True, wal=True) for name, run in networks.REDIS.items()),
    Fault("wal: shard: black hole", networks.SHARD["shard: black hole"], wired=True, redis=True, wal=True),
    *(Fault(f"netns: {name}", run, redis=True, wired=True, packets=True) for name, run in dropping.PACKETS.items()),
    *(
        Fault(f"netns: wal: {name}", dropping.PACKETS[name], redis=True, wal=True, wired=True, packets=True)
        for name in ("shard: black hole", "redis: black hole")
    ),
)
