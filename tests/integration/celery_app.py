"""What Celery workers of the tests run: `celery -A tests.integration.celery_app worker`, told where by variables."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from celery import Celery

URL = os.environ.get("TEST_AMQP_URL", "amqp://")
PLACE = Path(os.environ.get("TEST_AMQP_PLACE", "."))

app = Celery("tests", broker=URL, backend="rpc://")
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    task_queue_max_priority=10,
    task_default_priority=0,
    worker_hijack_root_logger=False,
    worker_cancel_long_running_tasks_on_connection_loss=True,
)


def note(line: str) -> None:
    """Where the test reads what happened."""
    with (PLACE / "story").open("a") as story:
        story.write(f"{line}\n")


@app.task
def add(a: int, b: int) -> int:
    return a + b


@app.task(bind=True, max_retries=3, default_retry_delay=0)
def twice(self, name: str) -> str:  # type: ignore[no-untyped-def]
    note(f"{name} {self.request.retries}")
    if self.request.retries < 2:
        raise self.retry()
    return name


@app.task
def say(name: str) -> None:
    note(f"{name} {time.time()}")


@app.task
def die_once(name: str) -> str:
    """Kills its process, the first time."""
    first = not (PLACE / name).exists()
    (PLACE / name).touch()
    note(f"{name} {'first' if first else 'again'}")
    if first:
        os.kill(os.getpid(), signal.SIGKILL)
    return name


@app.task
def gate(name: str) -> None:
    """Waits until the test opens it: a pipe, made there."""
    note(f"{name} waits")
    (PLACE / name).read_text()
