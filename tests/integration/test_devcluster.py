"""A whole cluster on one machine: a class with its verbs, and `mqueue dev-cluster`, of which nothing is left over."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import mqueue
from mqueue.assembly.guard import family
from mqueue.model.errors import BadSetting, Unavailable
from mqueue.testing import DevCluster, NodeServer

DEADLINE_SECONDS = 120


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(DEADLINE_SECONDS * 10):
        if condition():
            return
        threading.Event().wait(0.1)
    raise AssertionError("it did not come to pass")


def test_nodes_are_stopped_killed_and_held_still_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URLS", "postgresql://nobody/nowhere")  # what sets us does not set the nodes
    monkeypatch.setenv("MQUEUE_HTTP", "nonsense")
    with DevCluster(shards=1, nodes=2, redis=False, settings={"defaults.topic.partitions": 3}) as cluster:
        first, second = cluster.nodes
        with mqueue.Client(first.url) as client:
            client.publish("orders", b"1")
            assert client.settings("orders")["partitions"] == 3
        first.stop()
        assert not first.runs
        with mqueue.Client(second.url) as client:
            assert [message.payload for message in client.receive("orders", wait="60s")] == [b"1"]
        url = first.url
        first.start()
        assert first.url == url
        second.pause()
        second.resume()
        second.kill()
        third = cluster.add({"defaults.topic.partitions": 5})
        with mqueue.Client(third.url) as client:
            client.publish("others", b"2")
            assert client.settings("others")["partitions"] == 5
        places = [server.directory for server in (*cluster.nodes, *cluster.shards)]
    assert not any(place.exists() for place in places)


def test_a_node_that_does_not_start_says_why() -> None:
    with pytest.raises(Unavailable, match="a node did not start: mqueue: the configuration is refused"):
        NodeServer({"cluster.databaseUrls": ["nonsense"]})
    with pytest.raises(BadSetting, match="shards is 0; it takes 1 to 64"):
        DevCluster(shards=0)


LINE = re.compile(
    r"ready http=127\.0\.0\.1:\d+,127\.0\.0\.1:\d+ postgres=127\.0\.0\.1:\d+/mqueue"
    r" redis=127\.0\.0\.1:\d+ config=(\S+)\n"
)


class Running:
    """`mqueue dev-cluster` as a process."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mqueue", "dev-cluster", "--port", "0", "--shards", "1", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        self.below = family(self.process.pid)

    def end(self, number: signal.Signals) -> tuple[int, str]:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=DEADLINE_SECONDS)
        return self.process.returncode, errors

    def nobody_is_left(self) -> bool:
        """A number may be given to somebody else; not to somebody who does the same within this minute."""
        return not any(_runs(pid) for pid in self.below)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_nothing_is_left_of_a_cluster_whose_owner_is_killed() -> None:
    running = Running()
    match = LINE.fullmatch(running.line)
    assert match is not None, (running.line, running.end(signal.SIGTERM))
    config = Path(match[1])
    assert "password" not in running.line
    assert config.stat().st_mode & 0o077 == 0
    running.end(signal.SIGKILL)
    wait_until(running.nobody_is_left)
    wait_until(lambda: not config.parent.exists())


def test_a_directory_keeps_it_and_both_signals_are_an_ordinary_end() -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        for depth, number in enumerate((signal.SIGTERM, signal.SIGINT), 1):
            running = Running("--nodes", "1", "--no-redis", "--dir", f"{place}/kept")
            assert running.line.startswith("ready http="), (running.line, running.end(signal.SIGTERM))
            assert "redis=" not in running.line
            with mqueue.Client("http://" + running.line.split()[1].removeprefix("http=")) as client:
                client.publish("orders", b"1")
                assert client.stats("orders").depth == depth
            assert running.end(number) == (0, "")
            wait_until(running.nobody_is_left)


def test_what_is_wrong_is_one_line() -> None:
    running = Running("--nodes", "0")
    assert running.end(signal.SIGTERM) == (4, "mqueue: nodes is 0; it takes 1 to 64\n")
