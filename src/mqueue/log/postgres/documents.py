"""Small documents that all nodes share, each read and written as a whole. Only the first shard keeps them.

Who writes says which version he has read: if somebody else was quicker nothing is written, and he reads again. Does not
know what stands in them.
"""

from __future__ import annotations

from mqueue.log.postgres.link import Link


def version(link: Link, name: str) -> int:
    """0: there is none."""
    rows = link.call("select version from mqueue.documents where name = %b::text", (name,))
    return int(rows[0][0]) if rows else 0


def read(link: Link, name: str) -> tuple[int, bytes] | None:
    """Version and text."""
    rows = link.call("select version, body from mqueue.documents where name = %b::text", (name,))
    return (int(rows[0][0]), bytes(rows[0][1])) if rows else None


def write(link: Link, name: str, expected: int, body: bytes) -> bool:
    """Take the place of a version, which becomes the next one; 0: of none. False: that is not the version any more."""
    if expected == 0:
        rows = link.call(
            "insert into mqueue.documents (name, version, body) values (%b::text, 1, %b) on conflict do nothing "
            "returning 1",
            (name, body),
        )
    else:
        rows = link.call(
            "update mqueue.documents set version = version + 1, body = %b where name = %b::text and version = %b "
            "returning 1",
            (body, name, expected),
        )
    return bool(rows)
