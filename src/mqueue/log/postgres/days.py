"""The tables of a day: frames and the journal have one each, so that old days go as a whole.

Whoever writes into a day that has none makes it, and writes again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any, LiteralString

from mqueue.log.postgres.link import Link
from mqueue.log.postgres.problems import NoDay

_ATTEMPTS = 8
"""Frames of one call may lie in several days, if partitions have a time ahead of the clock: each may be missing."""


def make_days(link: Link, first: date, last: date) -> None:
    """Make what is missing of these days. Several may do it at once."""
    link.call("select mqueue.make_days(%b::date, %b::date)", (first, last))


def days(link: Link) -> list[date]:
    """The days that have tables for frames, oldest first."""
    return _days(link, "mqueue.frames")


def journal_days(link: Link) -> list[date]:
    return _days(link, "mqueue.journal")


def dated(link: Link, sql: LiteralString, params: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Call a statement that writes into days; where one is missing, it is made."""
    for _ in range(_ATTEMPTS):
        try:
            return link.call(sql, params)
        except NoDay as missing:
            make_days(link, missing.day, missing.day)
    return link.call(sql, params)


def _days(link: Link, parent: LiteralString) -> list[date]:
    rows = link.call(
        "select to_date(substring(c.relname from '_([0-9]+)$'), 'YYYYMMDD') from pg_inherits i "
        "join pg_class c on c.oid = i.inhrelid where i.inhparent = to_regclass(%b::text) order by 1",
        (parent,),
    )
    return [day for (day,) in rows]
