"""Celery, as released, with real workers: tasks, retries, times, priorities, remote control, workers that die."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from mqueue.testing.server import RunningServer
from tests.cluster.patience import wait_until
from tests.integration.rabbits import PATIENCE_SECONDS, port_of, serving

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with serving(tmp_path_factory.mktemp("data")) as server:
        yield server


class Workers:
    """A vhost with workers in it, and the app as clients use it."""

    def __init__(self, port: int, vhost: str, place: Path) -> None:
        self.url = f"amqp://guest:guest@127.0.0.1:{port}/{vhost}"
        self.place = place
        self.app = Celery("tests", broker=self.url, backend="rpc://")
        self.app.conf.update(task_queue_max_priority=10, task_default_priority=0)
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, *words: str, name: str = "w") -> subprocess.Popen[bytes]:
        celery = [sys.executable, "-m", "celery", "-A", "tests.integration.celery_app", "worker"]
        with (self.place / f"{name}.log").open("ab") as log:
            worker = subprocess.Popen(
                [*celery, "-n", f"{name}@test", "--loglevel", "WARNING", "--concurrency", "1", *words],
                cwd=ROOT,
                env={**os.environ, "TEST_AMQP_URL": self.url, "TEST_AMQP_PLACE": str(self.place)},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(worker)
        return worker

    def send(self, name: str, *args: Any, **options: Any) -> Any:
        return self.app.send_task(f"tests.integration.celery_app.{name}", args, **options)

    def story(self) -> list[str]:
        try:
            return (self.place / "story").read_text().splitlines()
        except FileNotFoundError:
            return []

    def close(self) -> None:
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE_SECONDS)
        with suppress(AttributeError):  # nothing was ever asked for
            self.app.backend.result_consumer.stop()
        self.app.pool.force_close_all()
        self.app.close()
        del self.app
        gc.collect()  # Celery leaves connections to the collector, which tells of that


@contextmanager
def workers(server: RunningServer, vhost: str, place: Path) -> Iterator[Workers]:
    found = Workers(port_of(server), vhost, place)
    try:
        yield found
    finally:
        found.close()


@pytest.mark.filterwarnings("ignore")
def test_tasks_retries_and_remote_control(server: RunningServer, tmp_path: Path) -> None:
    with workers(server, "tasks", tmp_path) as crew:
        crew.start("--pool", "solo")
        assert crew.send("add", 2, 3).get(timeout=PATIENCE_SECONDS) == 5
        assert crew.send("twice", "t").get(timeout=PATIENCE_SECONDS) == "t"
        assert crew.story() == ["t 0", "t 1", "t 2"]
        begun = time.time()
        crew.send("say", "later", countdown=1).get(timeout=PATIENCE_SECONDS)
        assert float(crew.story()[-1].split()[1]) >= begun + 0.99
        wait_until(lambda: crew.app.control.ping() == [{"w@test": {"ok": "pong"}}])
        wait_until(lambda: list(crew.app.control.inspect().active_queues() or ()) == ["w@test"])


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_priorities_and_times(server: RunningServer, tmp_path: Path) -> None:
    with workers(server, "priorities", tmp_path) as crew:
        crew.start("--pool", "solo")
        os.mkfifo(tmp_path / "open")
        crew.send("gate", "open")
        wait_until(lambda: crew.story() == ["open waits"])
        low = [crew.send("say", f"low{number}", priority=1) for number in range(5)]
        high = [crew.send("say", f"high{number}", priority=9) for number in range(5)]
        (tmp_path / "open").write_text("now")
        for result in low + high:
            result.get(timeout=PATIENCE_SECONDS)
        said = [line.split()[0] for line in crew.story()[1:]]
        assert [name for name in said if name.startswith("high")] == [f"high{number}" for number in range(5)]
        assert sum(name.startswith("high") for name in said[:6]) == 5  # one low may have been on its way


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_what_a_killed_child_had_is_done_again(server: RunningServer, tmp_path: Path) -> None:
    """acks_late: the pool's process is killed in the middle of a task."""
    with workers(server, "children", tmp_path) as crew:
        crew.start("--pool", "prefork")
        assert crew.send("die_once", "a").get(timeout=PATIENCE_SECONDS) == "a"
        assert crew.story() == ["a first", "a again"]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_what_a_killed_worker_had_is_done_by_another(server: RunningServer, tmp_path: Path) -> None:
    """kill -9 of the whole worker, its pool with it: the connection ends, the task comes back at once."""
    with workers(server, "killed", tmp_path) as crew:
        first = crew.start("--pool", "prefork", name="first")
        os.mkfifo(tmp_path / "open")
        result = crew.send("gate", "open")
        wait_until(lambda: crew.story() == ["open waits"])
        os.killpg(first.pid, signal.SIGKILL)
        crew.start("--pool", "prefork", name="second")
        wait_until(lambda: crew.story() == ["open waits", "open waits"])
        (tmp_path / "open").write_text("now")
        result.get(timeout=PATIENCE_SECONDS)
