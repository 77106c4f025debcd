"""Which versions of mqueue can live with which version of the schema, and which are at work at a server.

A file of SQL says in a line of its own which nodes it leaves at work:

    -- nodes: 5        those that know version 5 of the schema, or a later one

One that says nothing leaves none but those that know it. What is said holds for what comes later too, unless a later
file asks for more. A node tells which version it knows by the name of the connection that renews its session:
`mqueue:<shard>:beat:v<version>:<address>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from mqueue.log.postgres import owning
from mqueue.log.postgres.link import Link

_NODES = re.compile(r"^-- nodes: (\d+)$", re.MULTILINE)
_BEAT = re.compile(r":beat:v(\d+):(.*)$")


class Running(Struct, frozen=True):
    """A node at work. `knows`: the version of the schema; 0: it does not tell."""

    address: str
    knows: int

    def __str__(self) -> str:
        told = f"knows version {self.knows}" if self.knows else "does not tell what it knows"
        return f"node {self.address or 'without an address'}, which {told}"


def beat_name(shard: str, knows: int, address: str) -> str:
    return f"{shard}:beat:v{knows}:{address}"


def needed(scripts: Mapping[int, str], version: int) -> int:
    """What nodes have to know to live with a version of the schema."""
    found = 0
    for number in range(1, version + 1):
        told = _NODES.search(scripts[number])
        found = max(found, min(number, int(told[1])) if told else number)
    return found


def running(link: Link) -> list[Running]:
    """All nodes at work at a server. One whose connection cannot be seen, behind a pooler for one, does not tell."""
    rows = link.call(
        "select application_name from pg_stat_activity"
        " where datname = current_database() and application_name like 'mqueue:%%:beat:%%'"
    )
    told = [Running(found[2], int(found[1])) for (name,) in rows if (found := _BEAT.search(name))]
    known = [node.address for node in told]
    silent = {address for _, _, address in owning.alive(link) if not any(_is(address, one) for one in known)}
    return sorted([*told, *(Running(address, 0) for address in silent)], key=lambda node: (node.address, node.knows))


def too_old(nodes: Iterable[Running], least: int) -> list[Running]:
    return [node for node in nodes if node.knows < least]


def _is(address: str, shown: str) -> bool:
    """PostgreSQL cuts long names off, and shows a question mark for what is not ASCII."""
    return address == shown or (len(shown) > 20 and address.startswith(shown))
