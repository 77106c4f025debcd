"""`mqueue schedule`: messages that repeat, from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.terminal import Terminal


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Terminal:
    terminal = Terminal(monkeypatch, tmp_path)
    terminal.set("MQUEUE_URL", f"file:{tmp_path / 'data'}")
    return terminal


def test_a_schedule_from_add_to_delete(terminal: Terminal) -> None:
    options = ("--tz", "Europe/Berlin", "--name", "n", "--key", "k", "-p", "high", "-H", "a=b", "--ttl", "1h")
    made = terminal.run("schedule", "add", "0 9 * * 1-5", "reports", "hello", *options, "-o", "json").json
    assert (made["cron"], made["tz"], made["payload"], made["priority"]) == (
        "0 9 * * 1-5",
        "Europe/Berlin",
        "hello",
        25,
    )
    assert made["next_at"].endswith(":00:00.000Z")
    assert terminal.run("schedule", "add", "15m", "reports", "x", "-o", "json").json["every"] == 900
    assert len(terminal.run("schedule", "-o", "json").json) == 2
    [receipt] = terminal.run("schedule", "run-now", "reports", "n", "-o", "json").json
    assert terminal.run("consume", "reports").lines == ["hello"]
    assert terminal.run("schedule", "show", "reports", "n", "-o", "json").json["last_id"] == receipt["id"]
    assert terminal.run("schedule", "pause", "reports", "n", "-o", "json").json["paused"] is True
    assert terminal.run("schedule", "resume", "reports", "n", "-o", "json").json["paused"] is False
    change = ("schedule", "change", "reports", "n", "-o", "json")
    changed = terminal.run(*change, "--when", "30 9 * * *", "--misfire", "skip").json
    told = [changed[field] for field in ("cron", "tz", "misfire", "count")]
    assert told == ["30 9 * * *", "Europe/Berlin", "skip", 1]
    assert terminal.run(*change, "--when", "2h").json["every"] == 7200
    assert "--when" in terminal.run(*change).err
    assert terminal.run(*change, "--when", "@daily").json["cron"] == "@daily"
    assert terminal.run("schedule", "delete", "reports", "n", "--yes").code == 0
    assert len(terminal.run("schedule", "list", "reports", "-o", "json").json) == 1


@pytest.mark.parametrize(
    ("when", "said"),
    [("0 0 30 2 *", "would never come"), ("61 * * * *", "it takes 0 to 59"), ("10ms", "too often"), ("often", "every")],
)
def test_what_is_wrong_is_said_and_nothing_is_stored(terminal: Terminal, when: str, said: str) -> None:
    done = terminal.run("schedule", "add", when, "reports", "x")
    assert done.code != 0
    assert said in done.err
    assert terminal.run("schedule", "-o", "json").json == []


def test_a_window_of_times_ends_where_it_is_told_to(terminal: Terminal) -> None:
    terminal.run("produce", "t", "old")
    [message] = terminal.run("consume", "t", "--from-offset", 0, "-o", "ndjson").records
    at = message["published_at"]
    assert terminal.run("consume", "t", "--from-time", at, "--to-time", "2999-01-01").lines == ["old"]
    assert terminal.run("consume", "t", "--from-time", "2000-01-01", "--to-time", at).lines == []
    done = terminal.run("consume", "t", "--from-time", "2001-01-01", "--to-time", "2000-01-01")
    assert done.code != 0
    assert "begins before it ends" in done.err


def test_a_group_that_reads_to_an_offset_behind_the_end_stands_at_the_end(terminal: Terminal) -> None:
    for text in ("a", "b", "c"):
        terminal.run("produce", "t", text)
    done = terminal.run("consume", "t", "-g", "new", "--from-offset", 0, "--to-offset", 10)
    assert (done.code, done.lines) == (0, ["a", "b", "c"])
    terminal.run("produce", "t", "d")
    assert terminal.run("consume", "t", "-g", "new").lines == ["d"]
