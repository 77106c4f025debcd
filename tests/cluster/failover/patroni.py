"""A shard that Patroni manages, with etcd: who is the primary is decided by them, and by nobody here.

    with closing(Patroni()) as engine: …        a primary and two standbys, all commits wait for the standbys

The programs of PostgreSQL are those of the wheel, Patroni and etcd those of Debian (`tools/setup-system.sh long`).
A member is one process tree: Patroni, and the PostgreSQL server that it starts. Times are shorter than those that
Patroni comes with, so that a campaign ends; of a failover they are nearly all.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
from collections.abc import Mapping
from typing import Any
from urllib.request import urlopen

import msgspec
import psycopg

from mqueue.assembly.local import LocalServer
from mqueue.assembly.postgres import SETTINGS, SUPERUSER, _owner, _programs
from mqueue.assembly.process import ServerProcess, environment, free_port
from tests.cluster.patience import wait_until

ETCD, PATRONI = "/usr/bin/etcd", "/usr/bin/patroni"
MEMBERS = 3
# Patroni's own are 30, 10 and 10 seconds. A leader whose machine is gone is one until `ttl` is over.
TIMES = {"ttl": 8, "loop_wait": 1, "retry_timeout": 3}
_ASK_SECONDS = 2.0
_OF_PATRONI = "max_connections"
"""It keeps this with the cluster, since standbys must not have less than the primary."""


def missing() -> str:
    """What this machine lacks; "": nothing."""
    absent = [program for program in (ETCD, PATRONI) if shutil.which(program) is None]
    return f"no {' and no '.join(absent)}: tools/setup-system.sh long" if absent else ""


class EtcdServer(LocalServer):
    """One etcd: that is a majority of one."""

    kind = "etcd"
    port_taken = "address already in use"

    def __init__(self) -> None:
        super().__init__(None, free_port())
        self.start()

    def _command(self, port: int) -> list[str]:
        here, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
        return [
            *(ETCD, "--name", "e", "--data-dir", str(self.directory / "data")),
            *("--listen-client-urls", here, "--advertise-client-urls", here),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"e={peer}"),
        ]

    def _is_ready(self, process: ServerProcess, begin: int) -> bool:
        return b'"true"' in _asked(self.port, "/health")[1]


class Member(LocalServer):
    """A Patroni and its PostgreSQL. Ready when Patroni answers; what PostgreSQL does is asked for by `role`."""

    kind = "Patroni"
    port_taken = "Address already in use"

    def __init__(self, name: str, etcd: EtcdServer, password: str) -> None:
        super().__init__(None, free_port())
        self.name = name
        self.postgres = free_port()
        self._data = self.directory / "data"
        self._owner = _owner(self._data, _programs())
        if self._owner is not None:
            os.chown(self.directory, *self._owner)
        self._write(etcd, password)
        self.start()

    @property
    def role(self) -> str:
        """`leader`: it has the lock, and is the primary; `replica`: it follows; else ""."""
        if not self.runs:
            return ""
        return next((role for role in ("leader", "replica") if _asked(self.port, f"/{role}")[0] == 200), "")

    @property
    def synchronous(self) -> bool:
        return self.runs and _asked(self.port, "/synchronous")[0] == 200

    def halt(self) -> None:
        """Patroni stands still, its PostgreSQL does not: a primary that nobody watches."""
        assert self._process is not None
        self._process.send(signal.SIGSTOP)

    def _write(self, etcd: EtcdServer, password: str) -> None:
        """What Patroni reads. JSON is YAML, too."""
        place = self.directory / "patroni.json"
        place.write_bytes(msgspec.json.encode(self._told(etcd, password)))
        place.chmod(0o600)
        if self._owner is not None:
            os.chown(place, *self._owner)

    def _told(self, etcd: EtcdServer, password: str) -> dict[str, Any]:
        user = {"username": SUPERUSER, "password": password}
        settings = {name: value for name, value in SETTINGS.items() if name != _OF_PATRONI}
        return {
            "scope": "mqueue",
            "name": self.name,
            "restapi": {"listen": f"127.0.0.1:{self.port}", "connect_address": f"127.0.0.1:{self.port}"},
            "etcd3": {"host": f"127.0.0.1:{etcd.port}"},
            "bootstrap": {
                "dcs": {
                    **TIMES,
                    "maximum_lag_on_failover": 0,
                    "synchronous_mode": True,
                    "synchronous_mode_strict": True,
                    "synchronous_node_count": MEMBERS - 1,
                    "postgresql": {"use_pg_rewind": True, "parameters": {_OF_PATRONI: SETTINGS[_OF_PATRONI]}},
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, {"auth": "scram-sha-256"}, "no-sync"],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self.postgres}",
                "connect_address": f"127.0.0.1:{self.postgres}",
                "data_dir": str(self._data),
                "bin_dir": str(_programs()),
                "pgpass": str(self.directory / "pgpass"),
                "authentication": {"superuser": user, "replication": user, "rewind": user},
                "parameters": {**settings, "unix_socket_directories": ""},
                "pg_hba": [f"host {what} all 127.0.0.1/32 scram-sha-256" for what in ("all", "replication")],
                "remove_data_directory_on_diverged_timelines": True,
            },
        }

    def _command(self, port: int) -> list[str]:
        return [PATRONI, str(self.directory / "patroni.json")]

    def _environment(self) -> Mapping[str, str]:
        """It runs in the Python of the machine, not in ours."""
        return {name: value for name, value in environment().items() if not name.startswith("PYTHON")}

    def _is_ready(self, process: ServerProcess, begin: int) -> bool:
        return _asked(self.port, "/liveness")[0] == 200


class Patroni:
    """Two times in three the machine of the primary dies, with Patroni and all; the third time Patroni alone stands
    still, and the old primary goes on as one until it is over."""

    name = "patroni"
    durability = "quorum"

    def __init__(self) -> None:
        self.members: list[Member] = []
        self._etcd = EtcdServer()
        self._password = secrets.token_hex(16)
        self._failures = 0
        self._dead: Member | None = None
        try:
            for number in range(MEMBERS):
                self.members.append(Member(f"s{number}", self._etcd, self._password))
            wait_until(self._whole)
            with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
                connection.execute("create database mqueue")
            self.url = self._url("mqueue")
        except BaseException:
            self.close()
            raise

    @property
    def settings(self) -> dict[str, Any]:
        return {}

    def fail(self) -> None:
        dead = self._dead = self._leader()
        self._failures += 1
        if self._failures % 3:
            dead.kill()
        else:
            dead.halt()
        wait_until(lambda: any(one.role == "leader" for one in self.members if one is not dead))

    def haunt(self, number: int) -> None:
        """An old primary that nobody watches has been there all the time."""
        if self._dead is not None:
            self._dead.kill()

    def mend(self) -> None:
        for member in self.members:
            member.start()
        wait_until(self._whole)

    def close(self) -> None:
        for server in (*self.members, self._etcd):
            server.kill()
            server.close()

    def _leader(self) -> Member:
        return next(member for member in self.members if member.role == "leader")

    def _whole(self) -> bool:
        """Whether there is a primary, and all others confirm its commits."""
        roles = sorted(member.role for member in self.members)
        return roles == ["leader", *["replica"] * (MEMBERS - 1)] and (
            sum(member.synchronous for member in self.members) == MEMBERS - 1
        )

    def _url(self, database: str) -> str:
        places = ",".join(f"127.0.0.1:{member.postgres}" for member in self.members)
        return f"postgresql://{SUPERUSER}:{self._password}@{places}/{database}?target_session_attrs=read-write"


def _asked(port: int, path: str) -> tuple[int, bytes]:
    """What somebody of this machine answers; 0: nothing, or that it is not so."""
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=_ASK_SECONDS) as answer:
            return answer.status, answer.read()
    except OSError:
        return 0, b""
