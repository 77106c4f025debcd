"""A window onto all topics: which of them are asked for, in which order, from where to where.

The caller sees what he may read: of topics beyond that neither rows nor sums. Pure, but for the counts that it reads.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from mqueue.model.errors import Refused
from mqueue.model.times import rfc3339
from mqueue.server.overview.rows import Row, Sums, sums
from mqueue.server.overview.sampler import Past, Sampler
from mqueue.server.security.principal import Principal
from mqueue.wire.json_overview import NamespaceSumsOut, OverviewOut, PointOut, RowOut, SumsOut

SORTS = ("interest", "name", "in", "out", "depth", "ready", "leased", "waiting", "scheduled", "dead", "age", "cursors")
WINDOW_MAX = 200
SKIP_MAX = 100_000
SPACES_SHOWN_MAX = 50

_ROW_FIELDS = [name for name in RowOut.__struct_fields__ if name not in ("oldest_at", "namespace", "topic")]
_DESCENDING = {
    "in": attrgetter("in_per_second"),
    "out": attrgetter("out_per_second"),
    **{name: attrgetter(name) for name in ("depth", "ready", "leased", "waiting", "scheduled", "dead", "cursors")},
}


class Asked(Struct, frozen=True):
    """`namespace` None: all of them. `topic`: this one alone. `search`: a part of the topic's name, in any case.
    `nonzero`: only topics that have something of what they are sorted by."""

    namespace: str | None = None
    search: str = ""
    sort: str = "interest"
    skip: int = 0
    limit: int = 100
    nonzero: bool = False
    topic: str = ""

    def check(self) -> Asked:
        if self.sort not in SORTS:
            raise Refused(f"sort {self.sort!r:.80}; it is one of {', '.join(SORTS)}", code="bad_query")
        if not 1 <= self.limit <= WINDOW_MAX:
            raise Refused(f"limit {self.limit}; it takes 1 to {WINDOW_MAX}", code="bad_limit")
        if not 0 <= self.skip <= SKIP_MAX:
            raise Refused(f"skip {self.skip}; it takes 0 to {SKIP_MAX}", code="bad_limit")
        return self


class Seen(Struct):
    """What was found: the rows of the window, how many there are beside, and what all of them add up to."""

    rows: list[Row]
    topics: int
    sums: Sums
    spaces: dict[str, Sums]
    past: Past | None


def see(sampler: Sampler, asked: Asked, principal: Principal, skip: int) -> Seen:
    """`skip`: how many rows to leave out of those that are asked for; the end of the window stays where it is."""
    visible, spaces, past = _visible(sampler, asked, principal)
    rows = visible
    if asked.topic:
        rows = [row for row in rows if row.topic == asked.topic]
        past = sampler.by_topic.get((rows[0].namespace, rows[0].topic)) if len(rows) == 1 else None
    if asked.search:
        wanted = asked.search.lower()
        rows = [row for row in rows if wanted in row.topic.lower()]
    if asked.nonzero and asked.sort in _DESCENDING:
        rows = list(filter(_DESCENDING[asked.sort], rows))
    whole = spaces is not None
    added = (
        (sampler.sums if asked.namespace is None else sampler.by_space.get(asked.namespace, Sums()))
        if whole
        else sums(visible)
    )
    return Seen(_sorted(rows, asked.sort)[skip : asked.skip + asked.limit], len(rows), added, spaces or {}, past)


def _visible(
    sampler: Sampler, asked: Asked, principal: Principal
) -> tuple[list[Row], dict[str, Sums] | None, Past | None]:
    """The rows that somebody may read. Only who may read all of a place is told what it adds up to, and did."""
    space = asked.namespace
    if space is None and principal.allows("read", "*"):
        return sampler.rows.all, sampler.by_space, sampler.past[None]
    if space is not None and principal.allows("read", space):
        known = {space: sampler.by_space[space]} if space in sampler.by_space else {}
        return sampler.rows.spaces.get(space, []), known, sampler.past.get(space)
    rows = sampler.rows.all if space is None else sampler.rows.spaces.get(space, [])
    return [row for row in rows if principal.allows("read", row.namespace, row.topic)], None, None


def _sorted(rows: list[Row], sort: str) -> list[Row]:
    """They come in the order of their names, and equals stay so."""
    if sort == "name":
        return rows
    if sort == "interest":
        return sorted(rows, key=attrgetter("interest"))
    if sort == "age":
        return sorted(rows, key=lambda row: row.oldest_at or 1 << 62)
    return sorted(rows, key=_DESCENDING[sort], reverse=True)


def shown(sampler: Sampler, seen: Seen) -> OverviewOut:
    return OverviewOut(
        rfc3339(sampler.at),
        seen.topics,
        sums_out(seen.sums),
        [row_out(row) for row in seen.rows],
        spaces_out(seen.spaces),
        [] if seen.past is None else [point_out(at, added) for at, added in seen.past],
    )


def row_out(row: Row) -> RowOut:
    told = {name: getattr(row, name) for name in _ROW_FIELDS}
    return RowOut(row.namespace, row.topic, **told, oldest_at=_time(row.oldest_at))


def sums_out(added: Sums) -> SumsOut:
    return SumsOut(**_told(added))


def spaces_out(spaces: dict[str, Sums]) -> list[NamespaceSumsOut]:
    """Those with the most first, as many as are shown."""
    names = sorted(spaces, key=lambda name: (-spaces[name].stuck, -spaces[name].ready, -spaces[name].topics, name))
    return [NamespaceSumsOut(namespace=name, **_told(spaces[name])) for name in names[:SPACES_SHOWN_MAX]]


def point_out(at: int, added: Sums) -> PointOut:
    return PointOut(
        at,
        added.in_per_second,
        added.out_per_second,
        added.ready,
        added.waiting,
        added.leased,
        added.scheduled,
        added.dead,
    )


def _told(added: Sums) -> dict[str, Any]:
    return {**asdict(added), "oldest_at": _time(added.oldest_at)}


def _time(at: int) -> str | None:
    return rfc3339(at) if at else None
