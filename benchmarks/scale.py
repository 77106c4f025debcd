"""What a message costs a cluster: bytes and commits of PostgreSQL, CPU of everybody, traffic of Redis.

    python -m benchmarks.scale              measure, print, and write benchmarks/results/scale.json
    python -m benchmarks.scale --model      what follows from the numbers that are kept in scale_costs.json

One shard, one Redis, two nodes: one is published to, the other delivers, so that what goes between nodes is in it. What
everybody does at rest is measured before, and taken off. The numbers are of one machine; what they mean for others is
arithmetic, in `scale_model`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import redis as redis_client
from msgspec import Struct
from msgspec.structs import asdict

import mqueue
from benchmarks import scale_model
from benchmarks.scale_model import Cost
from mqueue.assembly.devcluster import DevCluster
from mqueue.policy.routing import virtual_shard

BATCHES = (1, 10, 100, 1000)
PAYLOADS = (100, 1024)
MESSAGES = {1: 2_048, 10: 9_600, 100: 40_000, 1000: 120_000}
CALLERS = {1: 64, 10: 32, 100: 8, 1000: 4}
"""By the size of batches: as many as keep the nodes busy, or what is done at rest hides what is measured."""
REST_SECONDS = 10.0
RESULTS = Path(__file__).parent / "results" / "scale.json"
STATEMENTS = ("mqueue_shard_appends_total", "mqueue_shard_commits_total")
_TICKS = os.sysconf("SC_CLK_TCK")


class Counted(Struct):
    """Everything that is read before and after."""

    at: float
    wal_bytes: int
    heap_bytes: int
    commits: int
    statements: int
    postgres_cpu: float
    node_cpu: float
    redis_cpu: float
    redis_in: int
    redis_out: int
    redis_ops: int
    redis_memory: int


class Bench:
    def __init__(self, cluster: DevCluster) -> None:
        assert cluster.redis is not None
        self.cluster = cluster
        self._database = psycopg.connect(cluster.databases[0], autocommit=True)
        self._redis: Any = redis_client.Redis(port=cluster.redis.port, password=cluster.redis.password)
        self._rest: dict[str, float] = {}

    def rest(self) -> None:
        """What is done while nobody asks for anything, a second."""
        before = self.count()
        time.sleep(REST_SECONDS)
        self._rest = _gone(before, self.count())

    def count(self) -> Counted:
        [(wal, heap, commits)] = self._database.execute(
            "select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint,"
            " (select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint from pg_class c"
            "  join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'mqueue' and c.relkind = 'r'),"
            " (select xact_commit from pg_stat_database where datname = current_database())"
        ).fetchall()
        told = self._redis.info()
        assert self.cluster.redis is not None
        return Counted(
            time.perf_counter(),
            int(wal),
            int(heap),
            int(commits),
            sum(
                _metric(node.url, ("mqueue_shard_appends_total", "mqueue_shard_commits_total"))
                for node in self.cluster.nodes
            ),
            _cpu(_pid(self.cluster.shards[0])),
            sum(_cpu(_pid(node)) for node in self.cluster.nodes),
            _cpu(_pid(self.cluster.redis)),
            int(told["total_net_input_bytes"]),
            int(told["total_net_output_bytes"]),
            int(told["total_commands_processed"]),
            int(told["used_memory"]),
        )

    async def measured(self, verb: str, batch: int, payload: int, work: Callable[[], Awaitable[int]]) -> Cost:
        self._database.execute("checkpoint")
        before = self.count()
        messages = await work()
        await asyncio.sleep(1.2)  # what PostgreSQL counts is told once a second
        after = self.count()
        seconds = after.at - before.at - 1.2
        spent = {
            name: max(0.0, value - self._rest.get(name, 0.0) * (after.at - before.at))
            for name, value in _difference(before, after).items()
        }
        each = {name: value / messages for name, value in spent.items() if name != "at"}
        return Cost(verb, batch, payload, messages, messages / seconds, **each)


async def cell(bench: Bench, batch: int, payload: int) -> list[Cost]:
    """Publish through the node that does not deliver, receive and ack at the one that does."""
    topic = f"t{batch}-{payload}"
    body, total, callers = os.urandom(payload), MESSAGES[batch], CALLERS[batch]
    owner = await asyncio.to_thread(_owner, bench, topic)
    other = next(node.url for node in bench.cluster.nodes if node.url != owner)
    async with (
        mqueue.AsyncClient(other, encoding="arrow") as publisher,
        mqueue.AsyncClient(owner, encoding="arrow") as consumer,
    ):
        await publisher.configure(topic, partitions=1)
        await publisher.publish(topic, b"first")
        [first] = await consumer.receive(topic, wait="10s")
        await first.ack()

        async def publish() -> int:
            async def one(calls: int) -> None:
                for _ in range(calls):
                    await publisher.publish_many(topic, [body] * batch)

            await asyncio.gather(*(one(total // batch // callers) for _ in range(callers)))
            return total // batch // callers * callers * batch

        async def consume() -> int:
            async def one() -> int:
                done = 0
                while found := await consumer.receive(topic, batch):
                    await consumer.ack(found)
                    done += len(found)
                return done

            return sum(await asyncio.gather(*(one() for _ in range(callers))))

        return [
            await bench.measured("publish", batch, payload, publish),
            await bench.measured("receive and ack", batch, payload, consume),
        ]


def measure() -> Iterator[Cost]:
    with DevCluster(shards=1, nodes=2) as cluster:
        bench = Bench(cluster)
        time.sleep(3)
        bench.rest()
        for payload in PAYLOADS:
            for batch in BATCHES:
                yield from asyncio.run(cell(bench, batch, payload))


def _owner(bench: Bench, topic: str) -> str:
    """The node that delivers a topic."""
    sql = "select s.address from mqueue.vshards v join mqueue.sessions s on s.owner = v.owner where v.vshard = %s"
    for _ in range(200):
        rows = bench._database.execute(sql, (virtual_shard("default", topic),)).fetchall()
        if rows:
            return str(rows[0][0])
        time.sleep(0.1)
    raise SystemExit("nobody owns the topic")


def _difference(before: Counted, after: Counted) -> dict[str, float]:
    earlier = asdict(before)
    return {name: value - earlier[name] for name, value in asdict(after).items()}


def _gone(before: Counted, after: Counted) -> dict[str, float]:
    seconds = after.at - before.at
    return {name: value / seconds for name, value in _difference(before, after).items()}


def _metric(url: str, names: tuple[str, ...]) -> int:
    from urllib.request import urlopen

    with urlopen(f"{url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return int(sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(names)))


def _pid(server: Any) -> int:
    return int(server.pid)


def _cpu(pid: int) -> float:
    """Microseconds that a process and all that it started have worked."""
    found: dict[int, tuple[int, float]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            found[int(entry.name)] = int(fields[1]), sum(map(int, fields[11:15])) * 1e6 / _TICKS
    mine, grown = {pid}, True
    while grown:
        more = {one for one, (parent, _) in found.items() if parent in mine} - mine
        grown = bool(more)
        mine |= more
    return sum(found[one][1] for one in mine if one in found)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", action="store_true", help="measure nothing: what follows from the numbers kept")
    if parser.parse_args().model:
        print(scale_model.page(scale_model.kept()))
        return 0
    costs = []
    for cost in measure():
        print(cost, flush=True)
        costs.append(cost)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([asdict(cost) for cost in costs], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
