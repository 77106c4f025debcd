"""The Go example: Arrow's own module for Go, and nothing of ours, against a server."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mqueue.testing.server import RunningServer
from tests.integration.flying import with_flight

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/flight_go"


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_go_example_runs(tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("there is no Go compiler")
    program = tmp_path / "example"
    built = subprocess.run(["go", "build", "-o", str(program), "."], cwd=EXAMPLE, capture_output=True, timeout=1500)
    if b"dial tcp" in built.stderr or b"lookup " in built.stderr:
        pytest.skip("the modules it needs cannot be fetched")
    assert built.returncode == 0, built.stderr
    with RunningServer(with_flight()) as server:
        done = subprocess.run([program, str(server.addresses["grpc"])], capture_output=True, text=True, timeout=120)
    assert (done.stdout.splitlines(), done.returncode) == (
        ["published: 3", "received: tea rice", 'told: {"ack":{"settled":2,"lost":[]}}', "scanned: 3"],
        0,
    ), done.stderr
