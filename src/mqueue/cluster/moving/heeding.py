"""Whether another server was promoted in the place of one that something is moved from, or to.

One that was overtaken does not say so, and whoever is connected to it notices nothing: nodes leave it, and what they
answer from then on it does not have. They note with the other servers of the cluster what they have seen; and the other
hosts of a server are asked.
"""

from __future__ import annotations

from msgspec import Struct

from mqueue.log.postgres.link import Link
from mqueue.log.postgres.witness import sightings
from mqueue.model.errors import Error

_ASK_MS = 2_000


class Server(Struct, frozen=True):
    """`hosts`: if it has several, the DSN of each by itself, in their order."""

    place: int
    link: Link
    hosts: tuple[str, ...] = ()


def heed(*servers: Server) -> None:
    """Learn which timeline each has reached. A link to one that was overtaken goes elsewhere; if it is held this raises
    Broken."""
    by_place = {server.place: server for server in servers}
    for witness in servers:
        for place, sight in sightings(witness.link):
            if place in by_place and place != witness.place:
                by_place[place].link.seen.learn(sight)
    for server in servers:
        home = server.link.seen.home
        for number, host in enumerate(server.hosts):
            if home is not None and number != home.place:
                _ask(server, host)
        server.link.reach()


def _ask(server: Server, host: str) -> None:
    link = Link(host, "heed", _ASK_MS)
    try:
        server.link.seen.learn(link.reach().sight)
    except Error:  # it follows, as it should, or is away
        pass
    finally:
        link.close()
