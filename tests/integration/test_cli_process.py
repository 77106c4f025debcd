"""The command line as a process of its own: pipes, signals, and how little it loads to say what it can do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import mqueue
from tests.integration.terminal import Terminal

PATIENCE_SECONDS = 120


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MQUEUE_")}
    kept |= {"XDG_CONFIG_HOME": str(tmp_path), "PYTHONUNBUFFERED": "", "MQUEUE_URL": f"file:{tmp_path}/data"}
    return kept | {"MQUEUE_GRPC": "off", "MQUEUE_AMQP": "off"}


@contextmanager
def running(environ: dict[str, str], *words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "mqueue", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environ, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_help_loads_nothing_heavy(environ: dict[str, str]) -> None:
    heavy = "{'pyarrow', 'numpy', 'aiohttp', 'rich', 'yaml', 'cryptography', 'uvicorn', 'mqueue.broker.broker'}"
    code = f"import sys; from mqueue.cli.main import main; main(['--help']); sys.exit(str({heavy} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert done.stderr.strip() == "set()"
    assert "produce" in done.stdout


def test_lines_are_published_as_they_come_and_not_when_a_batch_is_full(environ: dict[str, str]) -> None:
    with running(environ, "produce", "orders", "-o", "ndjson") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(3):
            print(number, file=process.stdin, flush=True)
            assert f'"offset":{number}' in process.stdout.readline()
        process.stdin.close()
        assert process.wait(PATIENCE_SECONDS) == 0


def test_an_interrupt_ends_waiting_for_lines(environ: dict[str, str], tmp_path: Path) -> None:
    with running(environ, "produce", "orders", "-o", "ndjson") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        print("a", file=process.stdin, flush=True)
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 130
    with mqueue.Broker(tmp_path / "data") as q:
        assert q.stats("orders").published == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_following_in_good_order(environ: dict[str, str], tmp_path: Path, number: signal.Signals) -> None:
    with mqueue.Broker(tmp_path / "data") as q:
        q.publish_many("orders", [b"a", b"b"])
    with running(environ, "consume", "orders", "--follow") as process:
        assert process.stdout is not None
        assert [process.stdout.readline(), process.stdout.readline()] == ["a\n", "b\n"]
        process.send_signal(number)
        assert process.wait(PATIENCE_SECONDS) == 130
    with mqueue.Broker(tmp_path / "data") as q:
        assert q.stats("orders").leased == 0


def test_a_reader_who_leaves_is_no_error_and_nothing_is_lost(environ: dict[str, str], tmp_path: Path) -> None:
    with mqueue.Broker(tmp_path / "data") as q:
        q.publish_many("orders", [b"x" * 10_000] * 200)
    with running(environ, "consume", "orders") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(PATIENCE_SECONDS) == 0
    with mqueue.Broker(tmp_path / "data") as q:
        assert q.stats("orders").ready == 200


def test_a_server_is_started_used_and_stopped(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["serve", "--data-dir", str(tmp_path / "served"), "--http", "127.0.0.1:0", "--amqp", "off"]
    with running(environ, *words) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert ready.startswith("ready http=127.0.0.1:")
        terminal = Terminal(monkeypatch, tmp_path)
        terminal.set("MQUEUE_URL", ready.strip().replace("ready http=", "http://"))
        assert terminal.run("produce", "orders", "a", "b").code == 0
        assert terminal.run("consume", "orders", "--limit", 1).lines == ["a"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
    assert terminal.run("consume", "orders", "--url", f"file:{tmp_path}/served").lines == ["b"]
