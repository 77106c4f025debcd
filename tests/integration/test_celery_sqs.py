"""Celery over SQS, as it is released: kombu's transport for Amazon, pointed at a server of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from urllib.parse import quote

import pytest

import mqueue
from mqueue.config import Config
from mqueue.testing.server import RunningServer
from tests.integration.asking import Asking
from tests.integration.test_security_http import security, token

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 120
TASKS = "tests.integration.celery_tasks"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """One that knows its callers: Celery signs what it sends."""
    with RunningServer(Config(security=security())) as server:
        yield server


@pytest.fixture(scope="module")
def environment(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    admin = Asking(server.url, Authorization=f"Bearer {token('admin:*')}")
    made = admin("POST", "/v1/keys", {"name": "celery", "scopes": ["*:shop"]}).json
    place = server.url.removeprefix("http://")
    return {
        "CELERY_TEST_SQS": f"sqs://celery:{quote(made['secret_access_key'], safe='')}@{place}",
        "CELERY_TEST_RESULTS": f"file://{tmp_path_factory.mktemp('results')}",
    }


@pytest.fixture(scope="module")
def tasks(environment: dict[str, str]) -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        from tests.integration import celery_tasks

        yield celery_tasks


@contextmanager
def worker(environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A worker in a process of its own."""
    command = [sys.executable, "-m", "celery", "-A", TASKS, "worker", "--pool=solo", "--loglevel=ERROR"]
    running = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment}, start_new_session=True)
    try:
        yield running
    finally:
        running.kill()
        running.wait(PATIENCE_SECONDS)


@pytest.mark.filterwarnings("ignore")
def test_tasks_are_done_and_tried_again(
    server: RunningServer, environment: dict[str, str], tasks: ModuleType, tmp_path: Path
) -> None:
    sums = [tasks.add.delay(number, 1) for number in range(20)]
    retried = tasks.flaky.delay()
    later = tasks.add.apply_async((40, 2), countdown=2)
    with worker(environment):
        assert [one.get(timeout=PATIENCE_SECONDS) for one in sums] == list(range(1, 21))
        assert retried.get(timeout=PATIENCE_SECONDS) == 2
        assert later.get(timeout=PATIENCE_SECONDS) == 42
        killer = tasks.deadly.delay(str(tmp_path / "was here"))
        with worker(environment):  # one of the two dies of it, the other is given it when its time is over
            assert killer.get(timeout=PATIENCE_SECONDS) == "survived"
    with mqueue.Client(server.url, token=token("*:shop"), namespace="shop") as q:
        assert q.topics() == ["jobs"]
        assert q.stats("jobs").dead == 0
