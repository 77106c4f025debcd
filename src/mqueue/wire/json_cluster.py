"""The JSON of `/v1/cluster`: the nodes there are, and how each of them and its servers are."""

from __future__ import annotations

from msgspec import Struct


class StandbyOut(Struct, omit_defaults=True):
    """A standby of a PostgreSQL server. What the server does not tell us is missing."""

    name: str
    state: str = ""
    sync: str = ""
    lag_bytes: int | None = None
    lag_seconds: float | None = None


class ShardOut(Struct, omit_defaults=True):
    """A PostgreSQL server as one node sees it. `owned`: virtual shards that the node delivers from; `unowned`: those
    that nobody does. `buffered_messages` wait there to be written; `timeline` rises with every promotion."""

    name: str
    up: bool
    breaker: str
    owned: int = 0
    unowned: int = 0
    beat_age_seconds: float | None = None
    buffered_messages: int = 0
    buffered_bytes: int = 0
    flush_lag_seconds: float = 0.0
    timeline: int = 0
    commit_failures: int = 0
    append_failures: int = 0
    standbys: list[StandbyOut] = []


class RedisOut(Struct):
    """`away`: it cannot be reached, and the cluster does without."""

    away: bool
    copies_sent: int
    copies_dropped: int


class DiskOut(Struct):
    bytes: int
    free_bytes: int
    segments: int
    damage: int


class NodeOut(Struct, omit_defaults=True):
    """`trouble`: why it takes no messages now. `missing`: it did not answer, and nothing else is known of it."""

    address: str
    missing: bool = False
    version: str = ""
    started_at: str | None = None
    trouble: str = ""
    connections: int = 0
    leases: int = 0
    storage: str = ""
    disk: DiskOut | None = None
    shards: list[ShardOut] = []
    redis: RedisOut | None = None


class ClusterOut(Struct, omit_defaults=True):
    """The nodes, the one that answers first. `moving`: virtual shards on their way to another server; `conflicts`:
    those about which servers contradict each other."""

    nodes: list[NodeOut]
    moving: int = 0
    conflicts: int = 0
