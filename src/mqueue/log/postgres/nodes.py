"""Node numbers: part of every id, so no two nodes may have the same at the same time. Only the first shard gives them.

A number is lent for a day and renewed every hour. Who could not renew it in time must not make ids any more.
"""

from __future__ import annotations

from uuid import UUID

from mqueue.log.postgres.link import Link
from mqueue.model.errors import Unavailable
from mqueue.model.ident import NODES


def take_node(link: Link, holder: UUID, hours: float = 24) -> tuple[int, int]:
    """(number, epoch). A holder that has one gets it again. Number 0 is never given: it is that of a lone broker."""
    rows = link.call("select node, e from mqueue.take_node(%b, %b, %b)", (holder, float(hours), NODES))
    if not rows:
        raise Unavailable(f"all {NODES - 1} node numbers of {link.server} are taken; the first one is free in a day")
    return int(rows[0][0]), int(rows[0][1])


def renew_node(link: Link, holder: UUID, node: int, epoch: int, hours: float = 24) -> bool:
    """False: it has ended."""
    rows = link.call(
        "update mqueue.nodes set until = clock_timestamp() + %b * interval '1 hour' "
        "where node_id = %b and holder = %b and epoch = %b and until > clock_timestamp() returning 1",
        (float(hours), node, holder, epoch),
    )
    return bool(rows)


def drop_node(link: Link, holder: UUID, node: int, epoch: int) -> None:
    """Give it back."""
    link.call(
        "update mqueue.nodes set until = clock_timestamp() where node_id = %b and holder = %b and epoch = %b "
        "and until > clock_timestamp()",
        (node, holder, epoch),
    )
