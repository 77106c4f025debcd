"""A Celery application as its users write them; `CELERY_TEST_SQS` says where the server is."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from celery import Celery

app = Celery("shop", broker=os.environ.get("CELERY_TEST_SQS", "sqs://"))
app.conf.update(
    broker_transport_options={
        "is_secure": False,
        "region": "eu-central-1",
        "visibility_timeout": 5,
        "wait_time_seconds": 1,
        "polling_interval": 0.1,
    },
    result_backend=os.environ.get("CELERY_TEST_RESULTS"),
    task_default_queue="jobs",
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    worker_enable_remote_control=False,
)


@app.task
def add(a: int, b: int) -> int:
    return a + b


@app.task(bind=True, max_retries=2)
def flaky(self: Any) -> int:
    """Fails twice, and is tried again after a second."""
    if self.request.retries < 2:
        raise self.retry(countdown=1)
    return int(self.request.retries)


@app.task
def deadly(note: str) -> str:
    """Kills the worker that gets it first: the whole of it, as an out-of-memory killer would."""
    path = Path(note)
    if not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"
