"""pgbouncer in front of a PostgreSQL server, as a process of ours. The program is that of the system."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from mqueue.assembly.local import LocalServer, write_secret
from mqueue.assembly.postgres import SUPERUSER, _owner
from mqueue.assembly.process import ServerProcess, tail
from mqueue.testing import PostgresServer

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


class Bouncer(LocalServer):
    """Runs once it is made. `mode`: session, transaction or statement. `settings`: lines of its configuration."""

    kind = "pgbouncer"
    port_taken = "Address already in use"

    def __init__(self, server: PostgresServer, mode: str, settings: tuple[str, ...] = ()) -> None:
        super().__init__(None, None)
        self._server = server
        self._lines = [f"pool_mode = {mode}", *settings]
        try:
            self._owner = _owner(self.directory / "data", Path("/"))
            self.start()
        except BaseException:
            self.close()
            raise

    def url(self, database: str) -> str:
        return self._server.url(database).replace(f":{self._server.port}/", f":{self.port}/")

    def _command(self, port: int) -> list[str]:
        assert PROGRAM is not None
        users, place = self.directory / "users", self.directory / "pgbouncer.ini"
        write_secret(users, f'"{SUPERUSER}" "{self._server.password}"\n')
        lines = [
            "[databases]",
            f"* = host=127.0.0.1 port={self._server.port}",
            "[pgbouncer]",
            "listen_addr = 127.0.0.1",
            f"listen_port = {port}",
            "unix_socket_dir =",
            "auth_type = scram-sha-256",
            f"auth_file = {users}",
            *self._lines,
        ]
        write_secret(place, "".join(f"{line}\n" for line in lines))
        if self._owner is not None:
            for file in (users, place):
                os.chown(file, *self._owner)
        return [PROGRAM, str(place)]

    def _is_ready(self, process: ServerProcess, begin: int) -> bool:
        return "process up" in tail(self.log, begin)
