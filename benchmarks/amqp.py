"""AMQP: mqueue on disk beside RabbitMQ, with the same load from the same clients, in turns, in one run.

Persistent messages of 200 bytes: published with confirms, then consumed with an ack for each. The clients (`amqp_load`)
are bare sockets in a process of their own. A rate is the median of its rounds, a ratio the median of the ratios of the
rounds: both servers meet whatever else the machine has to do. Beside it stands how much processor time a server took.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from time import sleep
from typing import Any, Protocol

from benchmarks.amqp_load import Line
from benchmarks.disk import scratch
from benchmarks.harness import Profile, Result, short
from benchmarks.rabbit import Rabbit, cpu_seconds, missing

SIZE = 200
IDLE = 1_000
IDLE_BYTES_MAX = 64 * 1024
HEARTBEAT_SECONDS = 4
BEATS = 5
QUEUES: dict[str, dict[str, Any]] = {"classic": {}, "quorum": {"x-queue-type": "quorum"}}
TARGETS = {"classic": 1.0, "quorum": 1.5}


class Server(Protocol):
    port: int

    @property
    def cpu_seconds(self) -> float: ...


class Ours:
    """`mqueue serve` on disk."""

    def __init__(self, directory: Path) -> None:
        words = ["serve", "--data-dir", str(directory), "--http", "127.0.0.1:0", "--grpc", "off"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mqueue", *words, "--amqp", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        told = dict(word.split("=") for word in self._process.stdout.readline().split()[1:])
        self.port = int(told["amqp"].rpartition(":")[2])

    @property
    def cpu_seconds(self) -> float:
        return cpu_seconds(self._process.pid)

    @property
    def memory(self) -> int:
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def close(self) -> None:
        with self._process:  # which waits for its end, and closes what it said
            self._process.terminate()


class Round:
    """What one server did with one load: messages a second, and processor time for each."""

    def __init__(self, server: Server, arguments: dict[str, Any], connections: int, count: int, queue: str) -> None:
        about = {"port": server.port, "queue": queue, "arguments": arguments}
        about |= {"connections": connections, "count": count // connections, "size": SIZE}
        total = count // connections * connections
        self.rates: dict[str, float] = {}
        self.costs: dict[str, float] = {}
        for verb in ("publish", "consume"):
            with _load({**about, "verb": verb}) as client:
                before = server.cpu_seconds
                seconds = client()
                self.costs[verb] = (server.cpu_seconds - before) / total
                self.rates[verb] = total / seconds


@contextmanager
def _load(about: dict[str, Any]) -> Iterator[Any]:
    """Clients that stand ready; called, they go, and say how long it took."""
    client = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.amqp_load", json.dumps(about)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert client.stdin is not None
    assert client.stdout is not None
    try:
        assert client.stdout.readline() == "ready\n"

        def go() -> float:
            assert client.stdin is not None
            assert client.stdout is not None
            client.stdin.write("\n")
            client.stdin.flush()
            seconds: float = json.loads(client.stdout.readline())["seconds"]
            return seconds

        yield go
    finally:
        client.stdin.close()
        client.wait(60)
        client.stdout.close()


def beside(profile: Profile) -> Iterator[Result]:
    """Rates, beside RabbitMQ where it is installed."""
    why = "quick: without RabbitMQ" if profile.name == "quick" else missing()
    count, rounds = 10 * profile.singles, min(profile.rounds, 3)
    with scratch() as place:
        ours = Ours(place / "mqueue")
        theirs = None if why else Rabbit(place / "rabbit")
        try:
            for connections in (1, 10):
                yield from _race(ours, theirs, connections, count, rounds, why)
        finally:
            ours.close()
            if theirs is not None:
                theirs.close()


def _race(ours: Ours, theirs: Rabbit | None, connections: int, count: int, rounds: int, why: str) -> Iterator[Result]:
    made: dict[str, list[Round]] = {}
    for number in range(rounds + 1):  # the first warms up
        for name in ["mqueue", *([] if theirs is None else QUEUES)]:
            server: Server = ours if theirs is None or name == "mqueue" else theirs
            queue = f"bench-{name}-{connections}-{number}"
            made.setdefault(name, []).append(Round(server, QUEUES.get(name, {}), connections, count, queue))
    for verb in ("publish", "consume"):
        for name, loads in made.items():
            counted = loads[1:]
            rate = median(load.rates[verb] for load in counted)
            cost = median(load.costs[verb] for load in counted)
            note = f"{1e6 * cost:.1f} µs of the server for each{why and f'; {why}'}"
            yield Result(f"{verb}, {connections} connections, {name}", rate, "msg/s", note=note)
        for name in list(made)[1:]:
            ratios = [us.rates[verb] / them.rates[verb] for us, them in zip(made["mqueue"], made[name], strict=True)][
                1:
            ]
            costs = [median(load.costs[verb] for load in made[whose][1:]) for whose in (name, "mqueue")]
            note = f"it takes {short(costs[0] / max(costs[1], 1e-9))} × our processor time"
            yield Result(
                f"{verb}, {connections} connections, × {name}", median(ratios), "×", ">=", TARGETS[name], note=note
            )


def idle(profile: Profile) -> Iterator[Result]:
    """What connections cost that only beat, and that they stay while they do."""
    with scratch() as place:
        ours = Ours(place / "mqueue")
        lines: list[Line] = []
        try:
            before = ours.memory
            count = IDLE if profile.name == "full" else IDLE // 10
            lines += [Line(ours.port, HEARTBEAT_SECONDS) for _ in range(count)]
            for _ in range(BEATS):
                for line in lines:
                    line.beat()
                sleep(HEARTBEAT_SECONDS / 2)
            each = (ours.memory - before) / count
            for line in lines:
                line.check()
            yield Result(f"{count} connections that beat, each", each, "B", "<=", IDLE_BYTES_MAX)
        finally:
            for line in lines:
                with suppress(OSError):
                    line.socket.close()
            ours.close()
