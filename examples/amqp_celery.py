"""Celery, as it comes, with mqueue for a broker: a task, one that is retried, and one for later."""

from typing import Any

from celery import Celery
from celery.contrib.testing.worker import start_worker

from mqueue.config import Address, Config, Server
from mqueue.testing.server import RunningServer

app = Celery("shop", backend="rpc://")
app.conf.update(task_acks_late=True, worker_prefetch_multiplier=1)


@app.task
def add(a: int, b: int) -> int:
    return a + b


@app.task(bind=True, max_retries=5)
def stubborn(self: Any, name: str) -> str:
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    return f"{name}, at the {self.request.retries + 1}rd try"


def main() -> None:
    with RunningServer(Config(server=Server(amqp=Address("127.0.0.1", 0)))) as server:  # else: mqueue serve
        app.conf.broker_url = f"amqp://guest:guest@{server.addresses['amqp']}//"
        # elsewhere: celery -A shop worker
        with start_worker(app, pool="solo", perform_ping_check=False, loglevel="ERROR", shutdown_timeout=60):
            print("2 + 3 =", add.delay(2, 3).get(timeout=60))
            print(stubborn.delay("done").get(timeout=60))
            print("later:", add.apply_async((1, 1), countdown=1).get(timeout=60))
        app.close()


if __name__ == "__main__":
    main()
# → 2 + 3 = 5
# → done, at the 3rd try
# → later: 2
