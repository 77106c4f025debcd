"""The lines of README for a shell: each is run as it stands there, against a server that was just started."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import mqueue
from mqueue.testing.server import RunningServer

ROOT = Path(__file__).resolve().parents[2]
PRINTED_URL = "http://127.0.0.1:8080"
DEADLINE_SECONDS = 120

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is missing: make setup-system"),
]


def lines() -> list[str]:
    blocks = re.findall(r"^```bash\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if not line.startswith("source ")]


def wait_until_all_are_due(url: str) -> None:
    """Whoever types these lines is slower than the delay in one of them; a test is not."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    with mqueue.Client(url) as q:
        while any(q.stats(topic).scheduled for topic in q.topics()):
            assert time.monotonic() < deadline, "it is never due"
            threading.Event().wait(0.02)


def test_the_lines_of_readme_work_in_their_order(server: RunningServer) -> None:
    binaries = str(Path(sys.executable).parent)  # what `source .venv/bin/activate` is for
    environ = {**os.environ, "MQUEUE_URL": server.url, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
    printed = {}
    assert len(lines()) >= 5
    for line in lines():
        if "consume" in line:
            wait_until_all_are_due(server.url)
        command = ["bash", "-ec", line.replace(PRINTED_URL, server.url).replace("curl ", "curl --fail --silent ")]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
        assert done.returncode == 0, (line, done.stderr)
        printed[line.split()[0] if "|" not in line else "produce"] = done.stdout
        if "consume" in line:
            assert done.stdout.splitlines() == ["a heart", "a parcel", '{"order_id": 123}']
    assert '"a heart"' in printed["curl"]
    assert "processors" in printed["mqueue"]
