"""One connection to one PostgreSQL server, used by one thread: calls one statement at a time, each its own transaction.

Connects when it is first used, and again after the line broke; between two attempts that fail there is a pause, in
which calls fail at once. A call never takes much longer than the timeout: the server ends the statement, and where
the server itself stands still, the connection is given up.

Knows settings of connections and what errors mean; no statement of ours.
"""

from __future__ import annotations

import random
import re
import select
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import conninfo
from psycopg.abc import PQGen
from psycopg.errors import Diagnostic
from psycopg.types.numeric import Int8BinaryDumper

from mqueue.log.postgres.arrays import Blobs, BlobsDumper, Longs, LongsDumper
from mqueue.log.postgres.problems import lost, one_line, translated, unreachable
from mqueue.model.errors import BadSetting, ShardDown

R = TypeVar("R")

_PORTS = re.compile(r"\d*(,\d*)*")
_PAUSE_SECONDS_MIN = 0.05
_PAUSE_SECONDS_MAX = 5.0
_GRACE_SECONDS = 2.0
"""The server ends a statement that takes too long; only if it does not within this do we end the connection."""

_ENDED = ("08", "57P")
"""Errors after which there is no connection: broken, or ended by the server."""

# Plans must not depend on what was counted of a table when it was small: every statement of ours has its index. Nor are
# they to be made anew for each call: that took a third of the time of an append.
_SETTINGS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
    "default_transaction_isolation": "read committed",  # whoever waited for a lock sees what was done before he got it
    "datestyle": "ISO",
    "client_min_messages": "warning",
}


class Link:
    """`dsn`: as libpq takes it, a URL or key=value. `name`: who we are, to be seen in pg_stat_activity."""

    def __init__(
        self,
        dsn: str,
        name: str,
        timeout_ms: int = 10_000,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._given = _parsed(dsn)
        self.server = _named(self._given)
        """Host, port and database: what messages call it."""
        self.name = name
        self.timeout_ms = timeout_ms
        self._monotonic = monotonic
        self._chance = chance
        self._connection: _Connection | None = None
        self._failures = 0
        self._rests_until = 0.0
        self._why = ""

    @property
    def connected(self) -> bool:
        return self._connection is not None

    def call(self, sql: LiteralString, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, as a transaction of its own; its rows."""
        connection = self._ready()
        try:
            cursor = connection.execute(sql, params, prepare=True, binary=True)
            rows = cursor.fetchall() if cursor.description is not None else []
        except psycopg.Error as error:
            raise self._failed(error) from None
        self._check_warnings(connection)
        return rows

    def script(self, sql: str) -> None:
        """Run several statements as one transaction, for as long as it takes."""
        connection = self._ready()
        patience, connection.patience = connection.patience, None
        try:
            connection.execute(b"select set_config('statement_timeout', '0', true);\n" + sql.encode())
        except psycopg.Error as error:
            raise self._failed(error) from None
        finally:
            connection.patience = patience

    def close(self) -> None:
        """Nothing breaks if it is closed twice; a call after that connects again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _ready(self) -> _Connection:
        connection = self._connection or self._connect()
        if not connection.lost():
            return connection
        self.close()  # while nothing was running: so nothing can have been done
        return self._connect()

    def _connect(self) -> _Connection:
        left = self._rests_until - self._monotonic()
        if left > 0:
            raise unreachable(self.server, self._why, left)
        try:
            connection = _Connection.connect(**self._parameters(), autocommit=True)
        except psycopg.Error as error:
            raise self._refused(one_line(error)) from None
        try:
            self._prepare(connection)
        except BaseException as error:
            connection.close()
            if isinstance(error, psycopg.Error):
                raise self._refused(one_line(error)) from None
            raise
        self._connection = connection
        self._failures = 0
        return connection

    def _parameters(self) -> dict[str, Any]:
        seconds = max(2, -(-self.timeout_ms // 1000))
        ours = {
            "application_name": f"mqueue:{self.name}",
            "connect_timeout": seconds,
            "keepalives_idle": seconds,
            "keepalives_interval": seconds,
            "keepalives_count": 3,
            "tcp_user_timeout": self.timeout_ms + int(_GRACE_SECONDS * 1000),
            "client_encoding": "utf8",
        }
        return ours | self._given

    def _prepare(self, connection: _Connection) -> None:
        connection.patience = self.timeout_ms / 1000 + _GRACE_SECONDS
        connection.add_notice_handler(connection.notice)
        for kind, dumper in ((int, Int8BinaryDumper), (Longs, LongsDumper), (Blobs, BlobsDumper)):
            connection.adapters.register_dumper(kind, dumper)
        settings = _SETTINGS | {
            "statement_timeout": str(self.timeout_ms),
            "idle_in_transaction_session_timeout": str(self.timeout_ms),
        }
        pairs = [text for pair in settings.items() for text in pair]
        connection.execute(
            "select set_config(k, v, false) from unnest(%s::text[], %s::text[]) u(k, v)", (pairs[::2], pairs[1::2])
        )
        # Whatever the role or the database says: an answer means that it is on disk.
        connection.execute(
            "select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'"
        )

    def _refused(self, why: str) -> ShardDown:
        """A connection could not be made: the next attempt has to wait, longer every time."""
        pause = min(_PAUSE_SECONDS_MAX, _PAUSE_SECONDS_MIN * 2 ** min(self._failures, 10))
        pause *= 0.5 + 0.5 * self._chance()
        self._failures += 1
        self._rests_until = self._monotonic() + pause
        self._why = self._clean(why)
        return unreachable(self.server, self._why, pause)

    def _failed(self, error: psycopg.Error) -> Exception:
        state = error.sqlstate or "08000"
        if state.startswith(_ENDED) or (self._connection is not None and self._connection.closed):
            self.close()
        found = translated(error, self.server)
        if isinstance(found, ShardDown):
            found.message = self._clean(found.message)
            found.args = (found.message,)
        return found

    def _check_warnings(self, connection: _Connection) -> None:
        """A commit that no standby has confirmed comes with a warning only."""
        if connection.warnings:
            why = "; ".join(connection.warnings)
            connection.warnings.clear()
            self.close()
            raise lost(self.server, why)

    def _clean(self, why: str) -> str:
        password = str(self._given.get("password") or "")
        return why.replace(password, "***") if password else why


class SharedLink(Link):
    """One that several threads may use, one at a time."""

    def __init__(self, dsn: str, name: str) -> None:
        super().__init__(dsn, name)
        self._turn = threading.Lock()

    def call(self, sql: LiteralString, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._turn:
            return super().call(sql, params)


class _Connection(psycopg.Connection[tuple[Any, ...]]):
    """One that does not wait for ever."""

    patience: float | None = None

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.warnings: list[str] = []
        self._mail = select.poll()
        self._mail.register(self.pgconn.socket, select.POLLIN)

    def wait(self, gen: PQGen[R], interval: float = 0.1, timeout: float | None = None) -> R:
        return super().wait(gen, interval, self.patience if timeout is None else timeout)

    def lost(self) -> bool:
        """Whether the server has closed the connection meanwhile. Asking takes 1 µs."""
        try:
            while self._mail.poll(0):  # its last words, and then the end
                self.pgconn.consume_input()
        except psycopg.OperationalError:
            return True
        return False

    def notice(self, said: Diagnostic) -> None:
        if said.severity_nonlocalized == "WARNING":
            self.warnings.append(said.message_primary or "")


def _parsed(dsn: str) -> dict[str, Any]:
    try:
        given = {key: value for key, value in conninfo.conninfo_to_dict(dsn).items() if value is not None}
    except psycopg.Error:  # its message would quote the text, and the password with it
        given = {"port": "?"}
    # A password that is not encoded may be cut in two, and its end be taken for a host.
    if not _PORTS.fullmatch(str(given.get("port", ""))) or "@" in f"{given.get('host')}{given.get('dbname')}":
        raise BadSetting(
            "a database URL cannot be read; it looks like postgresql://user:password@host:5432/database, "
            "with / : @ and the like in a password written as %2F %3A %40"
        )
    return given


def _named(given: dict[str, Any]) -> str:
    host = given.get("host") or given.get("hostaddr") or "localhost"
    return f"{host}:{given.get('port') or 5432}/{given.get('dbname') or given.get('user') or 'postgres'}"
