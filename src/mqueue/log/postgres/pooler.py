"""Finds out whether a pooler (pgbouncer and the like) lends one connection of a server to several of ours in turn.

Settings and prepared statements of ours are those of a connection: on another one they would be missing, or those of
somebody else, and nothing would say so. A pooler that lends a connection until we close ours does no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

from mqueue.log.postgres.problems import Rejected

_ROUNDS = 25
"""Others use the pooler, too: what one of us has just given back may be theirs when the other asks. In each round that
is as likely as not, at most."""
_PID = "select pg_backend_pid()"

Connection = psycopg.Connection[tuple[Any, ...]]


def check_pooler(connection: Connection, connect: Callable[[], Connection], server: str) -> None:
    """Raise Rejected if the server process that serves this connection also serves another one, which `connect` makes.

    A server names the process that serves a connection when it is made. A pooler makes up a number.
    """
    if _pid(connection) == connection.info.backend_pid:
        return
    if _shared(connection, connect):
        raise Rejected(
            f"PostgreSQL at {server} is behind a pooler that lends its connections for a transaction at a time;"
            " mqueue needs pool_mode = session there",
            code="transaction_pooling",
            applied=False,
        )


def _shared(connection: Connection, connect: Callable[[], Connection]) -> bool:
    """Whether one of two was ever served by the other's process, or by several."""
    try:
        other = connect()
    except psycopg.Error:  # there is no room: whoever has a connection keeps it
        return False
    try:
        mine, its = _pid(connection), _pid(other)
        return mine == its or any((_pid(connection), _pid(other)) != (mine, its) for _ in range(_ROUNDS))
    except psycopg.Error:
        return False
    finally:
        other.close()


def _pid(connection: Connection) -> int:
    row = connection.execute(_PID, prepare=False).fetchone()  # what is prepared would be missing elsewhere
    assert row is not None
    return int(row[0])
