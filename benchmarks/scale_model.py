"""From what a message costs to what a cluster needs: arithmetic alone, so that whoever doubts it can change a number.

What a message costs was measured (`scale`), on one machine. What a machine can do is assumed, and says so. Nothing here
was run at these rates.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

from msgspec import Struct, convert

KEPT = Path(__file__).parent / "scale_costs.json"
RATES = {"1 M messages a second": 1e6, "a trillion messages a day": 1e12 / 86_400}
VIRTUAL_SHARDS = 1024
LINKS_PER_NODE = 6
"""Connections that a node has at each PostgreSQL server: read, scout, beat, commit, append, flush."""
LOOK_STATEMENTS = 6
"""That a node asks each server once a second, with nothing to do: beat, clock, owners, sessions, next end, news."""
CONNECTIONS_MAX = 5_000
"""More processes than this one PostgreSQL server does not bear, pooler or not: ours are sessions."""


class Cost(Struct, frozen=True):
    """Of one message. CPU is in microseconds."""

    verb: str
    batch: int
    payload: int
    messages: int
    per_second: float
    wal_bytes: float
    heap_bytes: float
    commits: float
    statements: float
    postgres_cpu: float
    node_cpu: float
    redis_cpu: float
    redis_in: float
    redis_out: float
    redis_ops: float
    redis_memory: float

    def __str__(self) -> str:
        return (
            f"{self.verb:16} {self.batch:5} × {self.payload:5} B: {self.per_second:8.0f}/s"
            f"  WAL {self.wal_bytes:7.0f} B, tables {self.heap_bytes:7.0f} B, {self.commits:7.4f} commits,"
            f" CPU: PostgreSQL {self.postgres_cpu:7.1f} µs, nodes {self.node_cpu:7.1f} µs,"
            f" Redis {self.redis_cpu:6.2f} µs;"
            f" Redis {self.redis_in:6.0f} B in, {self.redis_ops:6.3f} commands"
        )


class Machines(Struct, frozen=True):
    """What one of each can do. Assumed, none of it measured here."""

    postgres_cores: float = 16.0
    wal_bytes_per_second: float = 250e6
    commits_per_second: float = 20_000.0
    node_cores: float = 1.0
    """A node is one process, and Python lets one thread of it work at a time: more cores are more nodes."""
    redis_cores: float = 1.0
    busy: float = 0.6
    """So much of each is used: the rest is for peaks, and for what a machine that is gone leaves to others."""
    copies_seconds: float = 60.0
    """For how long Redis keeps copies."""


class Need(Struct, frozen=True):
    shards: int
    by: str
    """What the shards are needed for."""
    nodes: int
    redis: int
    redis_gib: float
    wal_gb_per_second: float
    tables_tb_per_day: float
    connections_per_shard: int
    idle_statements_per_shard: int
    breaks: tuple[str, ...]


def need(costs: list[Cost], rate: float, machines: Machines = Machines()) -> Need:  # noqa: B008 - it is frozen
    """For so many messages a second, each published, received and acked once. `costs`: of the verbs that it takes."""

    def spent(name: str) -> float:
        return rate * sum(float(getattr(cost, name)) for cost in costs)

    wanted = {
        "CPU": spent("postgres_cpu") / (machines.postgres_cores * 1e6 * machines.busy),
        "WAL": spent("wal_bytes") / (machines.wal_bytes_per_second * machines.busy),
        "commits": spent("commits") / (machines.commits_per_second * machines.busy),
    }
    by = max(wanted, key=lambda name: wanted[name])
    shards = math.ceil(wanted[by])
    nodes = math.ceil(spent("node_cpu") / (machines.node_cores * 1e6 * machines.busy))
    connections, idle = nodes * LINKS_PER_NODE, nodes * LOOK_STATEMENTS
    return Need(
        shards,
        by,
        nodes,
        math.ceil(spent("redis_cpu") / (machines.redis_cores * 1e6 * machines.busy)),
        spent("redis_in") * machines.copies_seconds / 2**30,
        spent("wal_bytes") / 1e9,
        spent("heap_bytes") * 86_400 / 1e12,
        connections,
        idle,
        tuple(_breaks(shards, nodes, connections, idle, machines)),
    )


def _breaks(shards: int, nodes: int, connections: int, idle: int, machines: Machines) -> list[str]:
    found = []
    if connections > CONNECTIONS_MAX:
        found.append("connections")
    if idle > machines.commits_per_second * machines.busy / 10:
        found.append("looks")
    if nodes > VIRTUAL_SHARDS:
        found.append("nodes > virtual shards")
    if shards > VIRTUAL_SHARDS:
        found.append("shards > virtual shards")
    return found


def kept() -> list[Cost]:
    """As measured; see docs/scale.md for where."""
    return convert(json.loads(KEPT.read_text()), list[Cost])


def chosen(costs: list[Cost], batch: int, payload: int) -> list[Cost]:
    return [cost for cost in costs if (cost.batch, cost.payload) == (batch, payload)]


def page(costs: list[Cost]) -> str:
    """The tables of docs/scale.md."""
    costs_head = ("what", "batch", "payload", "WAL B", "tables B", "commits", "PostgreSQL µs", "nodes µs", "Redis µs")
    lines = _table(
        (*costs_head, "Redis B in", "Redis commands"),
        [_cost_row(cost) for cost in costs],
    )
    needs_head = ("rate", "batch", "payload", "shards", "because of", "nodes", "Redis", "Redis GiB", "WAL GB/s")
    rows = []
    for name, rate in RATES.items():
        for batch, payload in sorted({(cost.batch, cost.payload) for cost in costs}):
            rows.append((name, batch, payload, *_need_row(need(chosen(costs, batch, payload), rate))))
    lines += ["", *_table((*needs_head, "tables TB/day", "connections of a shard", "breaks"), rows)]
    return "\n".join(lines)


def _cost_row(cost: Cost) -> tuple[object, ...]:
    return (
        *(cost.verb, cost.batch, cost.payload, f"{cost.wal_bytes:.0f}", f"{cost.heap_bytes:.0f}"),
        *(f"{cost.commits:.4f}", f"{cost.postgres_cpu:.1f}", f"{cost.node_cpu:.1f}", f"{cost.redis_cpu:.2f}"),
        *(f"{cost.redis_in:.0f}", f"{cost.redis_ops:.3f}"),
    )


def _need_row(needed: Need) -> tuple[object, ...]:
    return (
        *(needed.shards, needed.by, needed.nodes, needed.redis, f"{needed.redis_gib:.0f}"),
        *(f"{needed.wal_gb_per_second:.2f}", f"{needed.tables_tb_per_day:.0f}", needed.connections_per_shard),
        ", ".join(needed.breaks) or "–",
    )


def _table(head: tuple[str, ...], rows: list[tuple[object, ...]]) -> list[str]:
    cells = [head, ("---",) * len(head), *rows]
    return [f"| {' | '.join(map(str, row))} |" for row in cells]
