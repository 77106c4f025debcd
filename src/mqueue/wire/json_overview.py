"""The JSON of `/v1/overview`: all topics at a glance, a window of them at a time, and what has changed since.

Numbers that are 0 are left out. Times go out as RFC 3339 text. Shared by the nodes of a cluster, which ask each other.
"""

from __future__ import annotations

from msgspec import Struct


class RowOut(Struct, omit_defaults=True, gc=False):
    """One topic. `ready` is of the group that is furthest behind; `waiting`, `leased` and `dead` of all together.

    `oldest_at`: since when the message that is ready longest is visible. `stuck`: a group has had something ready for a
    minute, and has acked nothing for as long.
    """

    namespace: str
    topic: str
    in_per_second: float = 0.0
    out_per_second: float = 0.0
    ready: int = 0
    waiting: int = 0
    leased: int = 0
    scheduled: int = 0
    dead: int = 0
    published: int = 0
    groups: int = 0
    cursors: int = 0
    oldest_at: str | None = None
    stuck: bool = False

    @property
    def depth(self) -> int:
        return self.ready + self.waiting + self.leased


class SumsOut(Struct, omit_defaults=True):
    """What topics add up to."""

    topics: int = 0
    in_per_second: float = 0.0
    out_per_second: float = 0.0
    ready: int = 0
    waiting: int = 0
    leased: int = 0
    scheduled: int = 0
    dead: int = 0
    stuck: int = 0
    oldest_at: str | None = None


class NamespaceSumsOut(SumsOut, omit_defaults=True, kw_only=True):
    namespace: str


class PointOut(Struct, array_like=True):
    """A moment of the past: [at in ms, in and out per second, ready, waiting, leased, scheduled, dead]."""

    at: int
    in_per_second: float
    out_per_second: float
    ready: int
    waiting: int
    leased: int
    scheduled: int
    dead: int


class OverviewOut(Struct, omit_defaults=True):
    """`topics`: how many there are in all that were asked for; `rows`: the window of them. `past`: oldest first.
    `missing`: the nodes of a cluster that did not answer. `away`: its servers that no node reaches: their topics are
    not among the rows."""

    at: str
    topics: int
    totals: SumsOut
    rows: list[RowOut]
    namespaces: list[NamespaceSumsOut] = []
    past: list[PointOut] = []
    missing: list[str] = []
    away: list[str] = []


class OverviewChangeOut(Struct, omit_defaults=True):
    """What is different from what was told before. `rows`: those that changed or came; `order`: all of the window, as
    `namespace/topic`, where that is another than before."""

    at: str
    topics: int
    totals: SumsOut
    rows: list[RowOut]
    order: list[str] | None = None
    namespaces: list[NamespaceSumsOut] = []
    missing: list[str] = []
    away: list[str] = []
