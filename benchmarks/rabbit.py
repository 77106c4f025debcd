"""RabbitMQ as it comes with Debian, on free ports, with a directory of its own: to be measured beside mqueue.

`tools/setup-system.sh bench` installs it. Its daemon is not started by that: each run has a node of its own.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import time
from pathlib import Path

PROGRAM = "/usr/lib/rabbitmq/bin/rabbitmq-server"
START_SECONDS = 90


def missing() -> str:
    """Why it cannot be measured; empty if it can."""
    return "" if Path(PROGRAM).exists() else "RabbitMQ is not installed: tools/setup-system.sh bench"


class Rabbit:
    """Runs once it is made."""

    def __init__(self, directory: Path) -> None:
        self.port, distribution, self._mapper = _free_port(), _free_port(), _free_port()
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.default = 127.0.0.1:{self.port}\nlog.file.level = error\nloopback_users = none\n"
        )
        (directory / "enabled_plugins").write_text("[].\n")
        cookie = directory / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16))
        cookie.chmod(0o400)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._mapper),
        }
        self._environment = environment
        with (directory / "out").open("wb") as out:
            self._process = subprocess.Popen(
                [PROGRAM], env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def _wait(self) -> None:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            if self._process.poll() is not None:
                raise RuntimeError("RabbitMQ did not start")
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as found:
                    found.sendall(b"AMQP\x00\x00\x09\x01")
                    if found.recv(8):
                        return
            except OSError:
                pass
            time.sleep(0.2)
        raise TimeoutError(f"RabbitMQ did not start within {START_SECONDS} seconds")

    @property
    def cpu_seconds(self) -> float:
        """Of all its processes."""
        return sum(cpu_seconds(number) for number in _session(self._process.pid))

    def close(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait(10)
        # Erlang's port mapper, which it started, is a process of its own and would stay.
        stop = ["epmd", "-port", str(self._mapper), "-kill"]
        subprocess.run(stop, env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def _session(leader: int) -> list[int]:
    """The processes of a session."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                fields = (place / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == leader:
                found.append(int(place.name))
    return found


def cpu_seconds(number: int) -> float:
    """Processor time that a process has taken so far."""
    try:
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
