"""The demo runs, quickly, and shows what it claims."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mqueue import demo

SRC = Path(__file__).resolve().parents[2] / "src"

SHOWN = [
    "priority  0: a heart for transplant\npriority 50: a parcel\npriority 75: a postcard\n",
    "now: []\n5 minutes later: ['call back']\n",
    'dead: {"to":"nowhere"} after 2 attempts: ValueError: no such address\n',
    "Redrive(matched=1, redriven=1, dry_run=False)\ndelivered again, attempt 1\n",
    "billing, anna: ['tea', 'rye']\nbilling, bob: ['oil', 'ink']\naudit: ['tea', 'rye', 'oil', 'ink']\n",
    "since new year: ['tea', 'rye', 'oil', 'ink']\nbilling, sent back to offset 2: ['oil', 'ink']\n",
    "it waits for its retry until",
    "REDELIVERED   to default, attempt 2",
    "'payload': b'20.4'}\n",
    "answered after: fsync\nfound: ['beta', 'gamma']\n",
    "messages a second, all acked\n",
]


@pytest.fixture(scope="module")
def output() -> str:
    command = [sys.executable, "-W", "error", "-m", "mqueue.demo"]
    env = {"PYTHONPATH": str(SRC), "PYTHONIOENCODING": "ascii"}  # the plainest of terminals
    return subprocess.run(command, env=env, capture_output=True, encoding="ascii", check=True, timeout=120).stdout


@pytest.mark.parametrize("text", SHOWN)
def test_it_shows_what_it_claims(output: str, text: str) -> None:
    assert text in output


def test_it_fits_a_terminal_and_says_that_the_clock_is_moved_by_hand(output: str) -> None:
    assert max(map(len, output.splitlines())) <= 100
    assert "The clock is moved by hand" in output
    assert "\033" not in output


def test_the_code_it_prints_is_the_code_it_runs() -> None:
    for chapter in demo.CHAPTERS:
        shown = demo.code(chapter)
        assert "def " not in shown
        assert chapter.__doc__ not in shown
        compile(shown, chapter.__name__, "exec")


def test_headings_are_bold_in_a_terminal_that_wants_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "CHAPTERS", (demo.not_before_its_time,))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    demo.main()
    assert "\033[1m1  A delayed message" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    demo.main()
    assert "\033" not in capsys.readouterr().out
