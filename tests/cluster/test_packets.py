"""A network that really drops packets. More of it: `make cluster-faults ARGS="--only netns"`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.network.packets import missing

ROOT = Path(__file__).parents[2]
FAULTS = ("vanish", "shard: black hole", "shard: lossy", "peer: no answers")

pytestmark = [
    pytest.mark.long,
    pytest.mark.system,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FAULTS)
def test_a_cluster_gets_over_packets_that_are_lost(name: str, tmp_path: Path) -> None:
    """What took too long is told by the command, too; here it may be the machine."""
    told = ("--seeds", "1", "--messages", "1500", "--only", f"netns: {name}", "--keep", str(tmp_path))
    command = [sys.executable, "-m", "tests.cluster.faults", *told]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=540)
    assert "1 runs," in done.stdout, done.stdout + done.stderr
    assert "WRONG" not in done.stdout, done.stdout
