"""One connection to one PostgreSQL server, used by one thread: calls one statement at a time, each its own transaction.

Connects when it is first used, and again after the line broke; between two attempts that fail there is a pause, in
which calls fail at once. A call never takes much longer than the timeout: the server ends the statement, and where
the server itself stands still, the connection is given up.

A DSN may name several hosts that hold the same. Whichever is the primary is used; one that others have overtaken is
refused (`seen`). Once a link has found another primary, the others find it at once.

Knows settings of connections and what errors mean; no statement of ours.
"""

from __future__ import annotations

import random
import re
import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import conninfo
from psycopg.abc import PQGen
from psycopg.errors import Diagnostic
from psycopg.types.numeric import Int8BinaryDumper

from mqueue.log.postgres.arrays import Blobs, BlobsDumper, Longs, LongsDumper
from mqueue.log.postgres.pooler import check_pooler
from mqueue.log.postgres.problems import (
    Broken,
    Outdated,
    Standby,
    Stranger,
    again,
    lost,
    one_line,
    standby,
    translated,
    unreachable,
)
from mqueue.log.postgres.seen import Backend, Seen, Sight
from mqueue.model.errors import BadSetting, ShardDown

R = TypeVar("R")

_PORTS = re.compile(r"\d*(,\d*)*")
_PAUSE_SECONDS_MIN = 0.05
_PAUSE_SECONDS_MAX = 5.0
_PAUSE_SECONDS_SEVERAL = 1.0
"""The longest pause where there are several hosts: one of them may be promoted in any moment."""
_CONNECT_SECONDS_SEVERAL = 2
"""For each of several hosts: one that is gone without a word is not to hold up the search for the others."""
_GRACE_SECONDS = 2.0
"""The server ends a statement that takes too long; only if it does not within this do we end the connection."""

_MOMENT_SECONDS = 2

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
    # A machine of ours that is gone without a word: its connections are not to be kept for the hours that are usual.
    "tcp_keepalives_idle": "15",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "30000",
}


_WHO = (
    "select pg_backend_pid(), a.backend_start, pg_postmaster_start_time(), c.system_identifier,"
    " case when not pg_is_in_recovery() then pg_walfile_name(pg_current_wal_flush_lsn()) end,"
    " case when not pg_is_in_recovery() then (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint end"
    " from pg_control_system() c, pg_stat_activity a where a.pid = pg_backend_pid()"
)
"""The name of a file of the log begins with the timeline: that of now, also before the first checkpoint there."""

END_BACKEND: LiteralString = (
    "select pg_terminate_backend(pid, %b) from pg_stat_activity where pid = %b::int and backend_start = %b"
)
"""After how many milliseconds to give up waiting for its end, which process, and when that began."""


class Link:
    """`dsn`: as libpq takes it, a URL or key=value. `name`: who we are, to be seen in pg_stat_activity. `seen`: shared
    by all links to one shard. `greeting`: a statement that comes first on every connection."""

    def __init__(
        self,
        dsn: str,
        name: str,
        timeout_ms: int = 10_000,
        *,
        seen: Seen | None = None,
        greeting: LiteralString = "",
        monotonic: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._given = _parsed(dsn)
        self._places = _places(self._given)
        self.seen = seen or Seen()
        self._greeting: LiteralString = greeting
        self.server = _named(self._given)
        """Host, port and database: what messages call it."""
        self.name = name
        self.timeout_ms = timeout_ms
        self._monotonic = monotonic
        self._chance = chance
        self._connection: _Connection | None = None
        self._failures = 0
        self._rests_until = 0.0
        self._generation = 0
        """Of the servers, when the last attempt failed."""
        self._refusal = ShardDown("")
        """How it failed."""

    @property
    def connected(self) -> bool:
        return self._connection is not None

    @property
    def backend(self) -> Backend | None:
        """The process that served the last call, also if the connection to it is lost by now."""
        return self._backend

    _backend: Backend | None = None
    _left: Backend | None = None
    """One that we gave up while it was working for us."""
    _held = False
    """Whether calls go over this connection or none."""

    def reach(self) -> Backend:
        """Connect, unless we are; to whom."""
        return self._ready().backend

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

    @contextmanager
    def held(self) -> Iterator[None]:
        """All calls in here go over one connection: once that is gone they raise Broken. So whatever its session locks
        is ours for as long as they are answered. Closed at the end, whatever state it is in."""
        self.reach()
        self._held = True
        try:
            yield
        finally:
            self._held = False
            self.close()

    def close(self) -> None:
        """Nothing breaks if it is closed twice; a call after that connects again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _ready(self) -> _Connection:
        connection = self._connection or self._connect()
        if not connection.lost() and connection.backend.sight.timeline >= self.seen.timeline:
            return connection
        self.close()  # while nothing was running: so nothing can have been done
        return self._connect()

    def _connect(self) -> _Connection:
        if self._held:
            raise Broken(f"the connection to PostgreSQL at {self.server} broke", applied=False)
        left = self._rests_until - self._monotonic()
        if left > 0 and self._generation == self.seen.generation:
            raise again(self._refusal, left)
        self._generation = self.seen.generation
        problems: list[ShardDown] = []
        connection = self._at_home(problems) or self._search(problems)
        if connection is None:
            raise self._refused(problems)
        self._clear_away(connection)
        self._connection, self._backend = connection, connection.backend
        self._failures = 0
        return connection

    def _clear_away(self, connection: _Connection) -> None:
        """End whoever still works for us at the server: one that waits for a standby does not notice that we are gone,
        and there would be more and more of them."""
        left, self._left = self._left, None
        if left is not None and not left.outlived_by(connection.backend):
            with suppress(psycopg.Error):  # the first call tells what is wrong
                connection.execute(END_BACKEND, (0, left.pid, left.begun))

    def _at_home(self, problems: list[ShardDown]) -> _Connection | None:
        """Whoever was the primary a moment ago, if it has not started again meanwhile."""
        home = self.seen.home
        if home is None or len(self._places) == 1 or home.place >= len(self._places):
            return None
        connection = self._tried(home.place, problems)
        if connection is None or connection.backend.started == home.started:
            return connection
        connection.close()
        return None

    def _search(self, problems: list[ShardDown]) -> _Connection | None:
        """The primary. If several say that they are, the one on the highest timeline: all are asked, unless one was
        promoted since we last looked."""
        before, best = self.seen.timeline, None
        dead = self.seen.home.place if problems and self.seen.home is not None else -1
        for place in range(len(self._places)):
            found = None if place == dead else self._tried(place, problems)
            if found is None:
                continue
            if best is None or found.backend.sight.timeline > best.backend.sight.timeline:
                best, found = found, best
            if found is not None:
                found.close()
                if found.backend.sight.system != best.backend.sight.system:
                    problems.append(_strangers(self.server))
                    best.close()
                    return None
            if 0 < before < best.backend.sight.timeline:
                break
        return None if best is None else self._taken(best, problems)

    def _taken(self, best: _Connection, problems: list[ShardDown]) -> _Connection | None:
        """It is the primary, unless others have found a later one meanwhile."""
        try:
            self.seen.take(self._name_of(best.backend.place), best.backend)
        except (Outdated, Stranger) as problem:
            best.close()
            problems.append(problem)
            return None
        return best

    def _tried(self, place: int, problems: list[ShardDown]) -> _Connection | None:
        """A connection to a host, if it is the primary as far as we know; else why not is added to the problems."""
        name = self._name_of(place)
        try:
            return self._open(place)
        except (Outdated, Standby, Stranger) as problem:
            problems.append(problem)
        except psycopg.Error as error:
            problems.append(unreachable(name, self._clean(one_line(error)), 0.0))
        return None

    def _open(self, place: int) -> _Connection:
        connection = _Connection.connect(**self._parameters(place), autocommit=True)
        try:
            self._prepare(connection)
            check_pooler(connection, lambda: self._another(place), self._name_of(place))
            connection.backend = self._met(connection, place)
            if self._greeting:
                connection.execute(self._greeting)
        except BaseException:
            connection.close()
            raise
        return connection

    def _another(self, place: int) -> _Connection:
        """One more, for a moment: it has to be there soon."""
        soon = self._parameters(place) | {"connect_timeout": _MOMENT_SECONDS}
        connection = _Connection.connect(**soon, autocommit=True)
        connection.patience = _MOMENT_SECONDS
        return connection

    def _met(self, connection: _Connection, place: int) -> Backend:
        """Who that is. Raises if it must not be used."""
        name = self._name_of(place)
        ((pid, begun, started, system, file, position),) = connection.execute(_WHO).fetchall()
        if file is None:
            raise standby(name)
        found = Backend(pid, begun, started, Sight(system, int(file[:8], 16), position), place)
        self.seen.check(name, found.sight)
        return found

    def _name_of(self, place: int) -> str:
        return _named(self._given | self._places[place])

    def _parameters(self, place: int) -> dict[str, Any]:
        seconds = max(2, -(-self.timeout_ms // 1000))
        several = len(self._places) > 1
        ours = {
            "application_name": f"mqueue:{self.name}",
            "connect_timeout": _CONNECT_SECONDS_SEVERAL if several else seconds,
            "keepalives_idle": seconds,
            "keepalives_interval": seconds,
            "keepalives_count": 3,
            "tcp_user_timeout": self.timeout_ms + int(_GRACE_SECONDS * 1000),
            "client_encoding": "utf8",
        }
        if several:
            ours["target_session_attrs"] = "read-write"
        return ours | self._given | self._places[place]

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

    def _refused(self, problems: list[ShardDown]) -> ShardDown:
        """A connection could not be made: the next attempt has to wait, longer every time."""
        longest = _PAUSE_SECONDS_MAX if len(self._places) == 1 else _PAUSE_SECONDS_SEVERAL
        pause = min(longest, _PAUSE_SECONDS_MIN * 2 ** min(self._failures, 10))
        pause *= 0.5 + 0.5 * self._chance()
        self._failures += 1
        self._rests_until = self._monotonic() + pause
        # Of several the most telling: one that is up and must not be used.
        telling = [one for one in problems if isinstance(one, Outdated | Stranger)] or problems
        self._refusal = telling[0]
        self._refusal.message = "; ".join(one.message for one in telling)
        return again(self._refusal, pause)

    def _failed(self, error: psycopg.Error) -> Exception:
        state = error.sqlstate or "08000"
        if state.startswith(_ENDED) or (self._connection is not None and self._connection.closed):
            self._left = self._backend
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

    def __init__(self, dsn: str, name: str, seen: Seen | None = None, greeting: LiteralString = "") -> None:
        super().__init__(dsn, name, seen=seen, greeting=greeting)
        self._turn = threading.Lock()

    def call(self, sql: LiteralString, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._turn:
            return super().call(sql, params)


class _Connection(psycopg.Connection[tuple[Any, ...]]):
    """One that does not wait for ever."""

    patience: float | None = None
    backend: Backend

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


def _places(given: dict[str, Any]) -> list[dict[str, str]]:
    """What each of several hosts has of its own; of a single one nothing."""
    lists = {key: str(given[key]).split(",") for key in ("host", "hostaddr", "port") if given.get(key)}
    count = max((len(lists[key]) for key in ("host", "hostaddr") if key in lists), default=1)
    if count == 1:
        return [{}]
    for key, values in lists.items():
        if len(values) == 1:
            lists[key] = values * count
        elif len(values) != count:
            raise BadSetting(f"a database URL names {count} hosts, but {len(values)} values of {key}")
    lists["port"] = [port or "5432" for port in lists.get("port", [""] * count)]
    return [{key: values[number] for key, values in lists.items()} for number in range(count)]


def apart(dsn: str) -> list[str]:
    """The several hosts of a DSN, each by itself; of a single one nothing."""
    given = _parsed(dsn)
    places = _places(given)
    several = {"target_session_attrs", "load_balance_hosts"}  # they choose among hosts
    alone = {key: value for key, value in given.items() if key not in several}
    return [conninfo.make_conninfo("", **alone | place) for place in places] if len(places) > 1 else []


def _strangers(server: str) -> Stranger:
    return Stranger(
        f"the hosts of {server} are primaries of different PostgreSQL systems: a database URL names the servers of one"
        " shard, which replicate each other"
    )


def _named(given: dict[str, Any]) -> str:
    hosts = str(given.get("host") or given.get("hostaddr") or "localhost").split(",")
    ports = str(given.get("port") or "").split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    places = ",".join(f"{host}:{port or 5432}" for host, port in zip(hosts, ports, strict=False))
    return f"{places}/{given.get('dbname') or given.get('user') or 'postgres'}"
