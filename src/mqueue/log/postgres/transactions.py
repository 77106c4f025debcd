"""Where transactions are staged: the virtual shard that the first of those who stage something has chosen."""

from __future__ import annotations

from mqueue.log.postgres.link import Link


def home(link: Link, namespace: str, transaction: str) -> int | None:
    """None: nobody has said."""
    rows = link.call(
        "select vshard from mqueue.transactions where namespace = %b::text and name = %b::text",
        (namespace, transaction),
    )
    return int(rows[0][0]) if rows else None


def settle_home(link: Link, namespace: str, transaction: str, vshard: int, now: int) -> int:
    """This one, unless somebody was faster: then his. Raises Moved."""
    params = (namespace, transaction, vshard, now)
    return int(link.call("select mqueue.settle_home(%b::text, %b::text, %b, %b)", params)[0][0])


def forget_homes(link: Link, before: int) -> None:
    """Of those that were begun before a time. A transaction that is still there is found where it lies."""
    link.call("delete from mqueue.transactions where at < %b", (before,))
