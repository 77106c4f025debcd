"""The server as a process: it starts with one line, stops without losing anything, and says what keeps it from it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import mqueue
from mqueue.assembly.serve import FAILED, MISTOLD, POISONED, serve
from mqueue.assembly.server import Serving
from mqueue.config import Address, Config, Data, Server
from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer
from tests.integration.asking import Asking
from tests.integration.process import DEADLINE_SECONDS, Process

FREE = Server(http=Address("127.0.0.1", 0))


class Load:
    """Publishes as fast as it is answered, over some connections, until there is nobody who answers."""

    def __init__(self, url: str, connections: int = 4) -> None:
        self._place = urlsplit(url).netloc
        self.answered: set[int] = set()
        self.enough = threading.Event()
        self._threads = [threading.Thread(target=self._publish, daemon=True) for _ in range(connections)]
        for thread in self._threads:
            thread.start()

    def wait(self) -> set[int]:
        for thread in self._threads:
            thread.join(DEADLINE_SECONDS)
            assert not thread.is_alive()
        return self.answered

    def _publish(self) -> None:
        connection = http.client.HTTPConnection(self._place, timeout=DEADLINE_SECONDS)
        body = json.dumps({"messages": [{"payload": "x"}, {"payload": "y"}]})
        try:
            while True:
                connection.request("POST", "/v1/topics/load/messages", body)
                answer = connection.getresponse()
                found = json.loads(answer.read())
                if answer.status != 200:
                    return
                self.answered.update(int(receipt["id"]) for receipt in found["receipts"])
                if len(self.answered) > 200:
                    self.enough.set()
        except (OSError, http.client.HTTPException, ValueError):
            return
        finally:
            connection.close()


def kept(place: Path) -> set[int]:
    with mqueue.Broker(place / "data") as q:
        return {message.id for message in q.scan("load")}


def sentences(text: str) -> list[str]:
    """What the server itself has to say for its end."""
    return [line for line in text.splitlines() if line.startswith("mqueue: ")]


def test_told_to_stop_it_loses_nothing_and_leaves_leases_alone(tmp_path: Path) -> None:
    with Process(tmp_path, "--data-dir", "data", "--grpc", "127.0.0.1:0") as server:
        assert server.line == f"ready http={urlsplit(server.url).netloc} grpc={server.addresses['grpc']}\n"
        ask = Asking(server.url)
        ids = ask.publish("orders", "one", "two")
        lease = ask("POST", "/v1/topics/orders/receive", {"visibility": "1h"}).json["lease"]
        load = Load(server.url)
        assert load.enough.wait(DEADLINE_SECONDS)
        assert server.stop() == (0, "")
        answered = load.wait()
    assert len(answered) > 200
    with Process(tmp_path, "--data-dir", "data") as server:
        ask = Asking(server.url)
        settled = ask("POST", f"/v1/leases/{lease}/ack", {"ids": ids[:1]})
        assert (settled.status, settled.json["settled"]) == (200, 1)
        assert server.stop() == (0, "")
    assert answered <= kept(tmp_path)


def test_killed_it_has_what_it_answered(tmp_path: Path) -> None:
    with Process(tmp_path, "--data-dir", "data") as server:
        load = Load(server.url)
        assert load.enough.wait(DEADLINE_SECONDS)
        server.kill()
        answered = load.wait()
    with Process(tmp_path, "--data-dir", "data") as server:
        assert Asking(server.url)("GET", "/readyz").body == b"OK"
        assert server.stop()[0] == 0
    assert answered <= kept(tmp_path)


def test_whoever_waits_does_not_keep_it_from_stopping() -> None:
    """Time stands still, and there is a patience that would outlast the test: neither ends by itself."""
    patient = Server(drain_timeout_ms=3_600_000, idle_timeout_ms=3_600_000)
    with RunningServer(Config(server=patient), ManualClock()) as server:
        place = urlsplit(server.url).netloc
        stream = http.client.HTTPConnection(place, timeout=DEADLINE_SECONDS)
        stream.request("GET", "/v1/topics/orders/stream")
        assert stream.getresponse().status == 200
        poll = http.client.HTTPConnection(place, timeout=DEADLINE_SECONDS)
        poll.request("POST", "/v1/topics/orders/receive", json.dumps({"wait": "60s"}))
        until = time.monotonic() + DEADLINE_SECONDS
        while b"mqueue_http_requests_in_flight 2.0" not in Asking(server.url)("GET", "/metrics").body:
            assert time.monotonic() < until
        server.close()
        assert poll.getresponse().status in (200, 503)
        stream.close()
        poll.close()


def test_a_hangup_reads_the_configuration_again(tmp_path: Path) -> None:
    file = tmp_path / "mqueue.yaml"
    file.write_text("metrics: {interval: 0s}\n")
    with Process(tmp_path, "--memory", "--config", str(file)) as server:
        ask = Asking(server.url)

        def quotas() -> dict[str, int]:
            return {each["namespace"]: each["per_minute"] for each in ask("GET", "/v1/quotas").json["quotas"]}

        def hang_up_until(word: str) -> None:
            server.send(signal.SIGHUP)
            until = time.monotonic() + DEADLINE_SECONDS
            while word not in (tmp_path / "stderr").read_text():
                assert time.monotonic() < until

        assert quotas() == {}
        file.write_text("metrics: {interval: 0s}\nquotas: {namespaces: {tenant-a: 5}}\n")
        hang_up_until("was read again")
        assert quotas() == {"tenant-a": 5}
        file.write_text("quotas: {namespaces: nonsense}\n")
        hang_up_until("is refused")
        assert quotas() == {"tenant-a": 5}
        assert server.stop() == (0, "")


def test_a_directory_in_use_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with mqueue.Broker(tmp_path / "data"):
        assert serve(Config(server=FREE, data=Data(dir=str(tmp_path / "data")))) == FAILED
    out, err = capsys.readouterr()
    assert out == ""
    assert sentences(err) == [f"mqueue: {tmp_path / 'data'} is in use by process {os.getpid()}"]


def test_an_address_that_is_taken_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = Config(server=Server(http=Address("127.0.0.1", port)), data=Data(memory=True))
        assert serve(config) == FAILED
    out, err = capsys.readouterr()
    assert out == ""
    assert sentences(err) == [f"mqueue: 127.0.0.1:{port} cannot be listened on: Address already in use"]


def test_a_public_address_without_a_lock_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert serve(Config(server=Server(http=Address("0.0.0.0", 0)), data=Data(memory=True))) == MISTOLD
    assert len(sentences(capsys.readouterr().err)) == 1


def test_a_disk_that_failed_ends_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(Serving, "poison", property(lambda self: "the disk failed to sync"))
    assert serve(Config(server=FREE, data=Data(memory=True))) == POISONED
    out, err = capsys.readouterr()
    assert out.startswith("ready http=127.0.0.1:")
    assert sentences(err) == ["mqueue: the disk failed to sync"]
