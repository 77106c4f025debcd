"""Finds out whether a pooler (pgbouncer and the like) lends one connection of a server to several of ours in turn.

Settings and prepared statements of ours are those of a connection: on another one they would be missing, or those of
somebody else, and nothing would say so. A pooler that lends a connection until we close ours does no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

from mqueue.log.postgres.problems import Rejected

_TRIES = 3
"""Others use the pooler, too: what we have just given back may be theirs when we ask."""
_PID = "select pg_backend_pid()"

Connection = psycopg.Connection[tuple[Any, ...]]


def check_pooler(connection: Connection, connect: Callable[[], Connection], server: str) -> None:
    """Raise Rejected if the server process that serves this connection also serves another one, which `connect` makes.

    A server names the process that serves a connection when it is made. A pooler makes up a number.
    """
    if _pid(connection) == connection.info.backend_pid:
        return
    for _ in range(_TRIES):
        if _shared(connection, connect):
            raise Rejected(
                f"PostgreSQL at {server} is behind a pooler that lends its connections for a transaction at a time;"
                " mqueue needs pool_mode = session there",
                code="transaction_pooling",
                applied=False,
            )


def _shared(connection: Connection, connect: Callable[[], Connection]) -> bool:
    mine = _pid(connection)
    try:
        other = connect()
    except psycopg.Error:  # there is no room: whoever has a connection keeps it
        return False
    try:
        return _pid(other) == mine or _pid(connection) == _pid(other)
    except psycopg.Error:
        return False
    finally:
        other.close()


def _pid(connection: Connection) -> int:
    row = connection.execute(_PID).fetchone()
    assert row is not None
    return int(row[0])
