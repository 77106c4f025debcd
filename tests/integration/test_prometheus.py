"""A real Prometheus, with the configuration and rules of deploy/, scrapes a real server."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

import pytest
import yaml

import mqueue
from mqueue.config import Config, Data, Metrics
from mqueue.testing.server import RunningServer
from tests.cluster.patience import wait_until

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "prometheus"
PROMETHEUS = shutil.which("prometheus")

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(PROMETHEUS is None, reason="needs prometheus: make setup-system"),
]


def configured(place: Path, target: str) -> Path:
    """Ours, with another target, once a second; alarms that wait for minutes do not wait here."""
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
    rules = place / "rules"
    rules.mkdir()
    for file in (DEPLOY / "rules").glob("*.yml"):
        told = yaml.safe_load(file.read_text(encoding="utf-8"))
        for group in told["groups"]:
            for rule in group["rules"]:
                rule.pop("for", None)
        (rules / file.name).write_text(yaml.safe_dump(told), encoding="utf-8")
    path = place / "prometheus.yml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


@contextmanager
def prometheus(place: Path, target: str) -> Iterator[Callable[[str], Any]]:
    """Gives what answers questions about its API."""
    assert PROMETHEUS is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    words = [
        f"--config.file={configured(place, target)}",
        f"--storage.tsdb.path={place / 'tsdb'}",
        f"--web.listen-address={address}",
    ]
    with (place / "log").open("wb") as log:
        process = subprocess.Popen([PROMETHEUS, *words], stdout=log, stderr=log)

    def ask(path: str) -> Any:
        with urlopen(f"http://{address}/api/v1/{path}", timeout=60) as answer:
            return json.load(answer)["data"]

    try:
        yield ask
    finally:
        process.terminate()
        process.wait(60)


def until(holds: Callable[[], Any]) -> Any:
    """What it gives, once that is something."""
    found: list[Any] = []

    def tried() -> bool:
        with suppress(URLError, ConnectionError):  # it is not up yet
            found.append(holds())
        return bool(found and found[-1])

    wait_until(tried)
    return found[-1]


@pytest.mark.long
def test_prometheus_scrapes_a_server_and_its_rules_see_what_happens(tmp_path: Path) -> None:
    config = Config(data=Data(dir=str(tmp_path / "data")), metrics=Metrics(interval_ms=0))
    with (
        RunningServer(config, memory=False) as server,
        mqueue.Client(server.url) as q,
        prometheus(tmp_path, server.url.removeprefix("http://")) as ask,
    ):

        def value(expression: str) -> float | None:
            found = ask(f"query?query={quote(expression)}")["result"]
            return float(found[0]["value"][1]) if found else None

        until(lambda: value('up{job="mqueue"}') == 1.0)
        q.publish_many("orders", ["a"] * 10)
        until(lambda: value('mqueue:topic_depth:max{namespace="default", topic="orders"}') == 10.0)
        until(lambda: value('mqueue_topic_dead_total{topic="orders"}') == 0.0)  # from which on it can rise
        q.reject(q.receive("orders", limit=3))
        until(lambda: (value('mqueue:topic_dead:rate5m{topic="orders"}') or 0) > 0)
        firing = until(
            lambda: [one for one in ask("alerts")["alerts"] if one["labels"]["alertname"] == "MqueueDeadLetters"]
        )
        assert firing[0]["annotations"]["runbook"] == "docs/runbook.md#dead-letters"
        assert firing[0]["labels"]["topic"] == "orders"
        until(lambda: value("mqueue:publish_seconds:p99") is not None)
        groups = until(lambda: [g for g in ask("rules")["groups"] if all(r["lastEvaluation"] for r in g["rules"])])
        rules = [rule for group in groups for rule in group["rules"]]
        assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] == "err"] == []
        assert len(rules) > 40
