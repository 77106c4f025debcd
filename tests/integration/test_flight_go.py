"""The Go example: Arrow's own module for Go, and nothing of ours, against a server.

To compile Arrow and gRPC takes 45 seconds of a core. What was fetched and compiled is kept in a temporary directory:
the next run takes one second.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from mqueue.testing.server import RunningServer
from tests.integration.flying import with_flight

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/flight_go"
KEPT = Path(tempfile.gettempdir(), f"mqueue-go-{os.getuid()}")
FETCH_SECONDS = 300
BUILD_SECONDS = 1200
"""For a machine that has twenty times more to do than it can."""
RUN_SECONDS = 120


def go(*words: str, seconds: int, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {"GOMODCACHE": str(KEPT / "modules"), "GOCACHE": str(KEPT / "compiled")}
    return subprocess.run(
        ["go", *words],
        cwd=EXAMPLE,
        env={**os.environ, **kept, **environment},
        capture_output=True,
        text=True,
        timeout=seconds,
    )


def fetch() -> None:
    """Apart from the build, so that a network that stands still is told from a machine that is slow."""
    try:
        fetched = go("mod", "download", "-modcacherw", seconds=FETCH_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.skip(f"the modules it needs were not fetched within {FETCH_SECONDS} s")
    if "dial tcp" in fetched.stderr or "lookup " in fetched.stderr:
        pytest.skip("the modules it needs cannot be fetched")
    assert fetched.returncode == 0, fetched.stderr


def build(program: Path) -> None:
    built = go("build", "-o", str(program), ".", seconds=BUILD_SECONDS, GOPROXY="off")
    assert built.returncode == 0, built.stderr


@pytest.mark.long
@pytest.mark.timeout(FETCH_SECONDS + BUILD_SECONDS + RUN_SECONDS + 60)
def test_the_go_example_runs(tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("there is no Go compiler")
    KEPT.mkdir(mode=0o700, exist_ok=True)
    fetch()
    build(tmp_path / "example")
    with RunningServer(with_flight()) as server:
        done = subprocess.run(
            [tmp_path / "example", str(server.addresses["grpc"])], capture_output=True, text=True, timeout=RUN_SECONDS
        )
    assert (done.stdout.splitlines(), done.returncode) == (
        ["published: 3", "received: tea rice", 'told: {"ack":{"settled":2,"lost":[]}}', "scanned: 3"],
        0,
    ), done.stderr
