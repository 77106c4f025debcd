"""Reading a segment back: which commits are whole, and what the rest is: a torn tail, or damage.

A tail that nobody was ever told is durable may be cut. What was durable is never cut: it is a hole, and what lies
behind it is read on. To tell one from the other each commit says how far the log was durable when it was written.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from mqueue.log.segments.commit import MAGIC, Commit, Link, follows, read
from mqueue.log.segments.segment import Hole


class Scan(Struct):
    """What a segment holds. `torn`: the position where its tail is to be cut, if it is."""

    commits: list[Commit]
    link: Link
    holes: list[Hole]
    torn: bool = False
    missing: bool = False
    """The file ends before what was durable."""


def scan(
    data: bytes, origin: int, start: int, link: Link, proven: int, stop: int | None, good: int | None = None
) -> Scan:
    """Read a segment from `link` on. `data[0]` stands for the position `origin`; the segment begins at `start`.

    `proven`: everything before this position was durable once. `stop`: where the next segment starts; None for the
    last one. `good`: after a failed sync nothing behind this position counts, even if it can be read.
    """
    view = memoryview(data)
    written = origin + len(data)
    found = Scan([], link, [])
    while True:
        found.link = _walk(view, origin, start, found, good)
        here = found.link.position
        if here == stop or (stop is None and here >= written and here >= proven):
            return found
        later = list(_ahead(view, origin, start, here)) if good is None or here < good else []
        known = max([proven, *(commit.synced for commit in found.commits[-1:]), *(commit.synced for commit in later)])
        if stop is None and here >= known:
            found.torn = True
            return found
        if not later:
            found.missing = here >= written
            end = stop if stop is not None else -(-max(known, written) // 8) * 8
            found.holes.append(Hole(here, end, _END))
            found.link = found.link._replace(position=end)
            return found
        resumed = later[0]
        found.holes.append(Hole(here, resumed.position, _MIDDLE))
        found.link = Link(resumed.position, resumed.previous, found.link.epoch, found.link.at)


_MIDDLE = "a commit is damaged"
_END = "what was durable here is damaged or missing"


def _walk(view: memoryview, origin: int, start: int, found: Scan, good: int | None) -> Link:
    """Read commits as long as each follows from the one before."""
    link = found.link
    while True:
        commit = read(view, link.position - origin, start, link.position)
        if commit is None or not follows(commit, link) or (good is not None and commit.end > good):
            return link
        found.commits.append(commit)
        link = Link(commit.end, commit.crc, commit.epoch, commit.at)


def _ahead(view: memoryview, origin: int, start: int, position: int) -> Iterator[Commit]:
    """The whole commits behind a position, wherever they begin."""
    data = view.obj
    assert isinstance(data, bytes)
    place = data.find(MAGIC, position - origin + 8)
    while place >= 0:
        commit = read(view, place, start, origin + place) if place % 8 == 0 else None
        if commit is not None:
            yield commit
        place = data.find(MAGIC, place + (commit.length if commit else 4))
