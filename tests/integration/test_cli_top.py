"""`mqueue top`: what it shows, in which order, what keys do; on a real terminal inside tmux."""

from __future__ import annotations

import os
import pty
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import mqueue
from mqueue.cli.keys import named
from mqueue.cli.overview import Choice, Control, Look, Sort
from mqueue.cli.verbs.top import age
from mqueue.config import Config, Jwt, Secret, Security
from mqueue.testing.server import RunningServer
from tests.cluster.patience import wait_until
from tests.integration.terminal import Terminal

TMUX = shutil.which("tmux")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: RunningServer) -> Terminal:
    made = Terminal(monkeypatch, tmp_path)
    made.set("MQUEUE_URL", server.url)
    made.set("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return made


def shown(terminal: Terminal, *words: object) -> list[str]:
    records = terminal.run("top", "--count", 1, *words, "-o", "ndjson").records
    return [f"{record['namespace']}/{record['topic']}" for record in records]


def test_topics_are_sorted_and_filtered(terminal: Terminal) -> None:
    for topic, count in (("orders", 3), ("orders.eu", 2), ("mail", 1)):
        terminal.run("produce", topic, *["x"] * count)
    orders, eu, mail = "default/orders", "default/orders.eu", "default/mail"
    assert shown(terminal) == [orders, eu, mail]
    assert shown(terminal, "--reverse") == [mail, eu, orders]
    assert shown(terminal, "--sort", "name") == [mail, orders, eu]
    assert shown(terminal, "--filter", "ORDER") == [orders, eu]
    assert shown(terminal, "--filter", "*.eu") == [eu]
    assert shown(terminal, "--filter", "default/m*") == [mail]
    assert terminal.run("top", "--sort", "colour").code == 2


def test_of_very_many_topics_those_are_looked_at_that_come_first(terminal: Terminal) -> None:
    with mqueue.connect() as queue:
        for first in range(0, 1200, 200):
            queue.publish_many(None, [mqueue.Draft(b"x", topic=f"topic-{first + more:04}") for more in range(200)])
        queue.publish_many("zzz-deep", [b"x"] * 50)
        queue.create_group("zzz-deep", "default", start="earliest")
    wait_until(lambda: shown(terminal, "--limit", 1) == ["default/zzz-deep"])  # it is counted now and then
    answer = terminal.run("top", "--count", 1, "--limit", 2, "-o", "ndjson")
    assert [(record["topic"], record["depth"]) for record in answer.records] == [("zzz-deep", 50), ("topic-0000", 1)]
    assert "201 more topics were not looked at" in answer.err
    assert shown(terminal, "--sort", "name", "--reverse", "--limit", 2) == ["default/zzz-deep", "default/topic-1199"]
    found = terminal.run("top", "--count", 1, "--filter", "*-119?", "-o", "ndjson")
    assert [record["topic"] for record in found.records] == [f"topic-{number}" for number in range(1190, 1200)]
    assert "looked at" not in found.err


def test_all_tenants_can_be_seen(terminal: Terminal) -> None:
    terminal.run("produce", "orders", "x")
    terminal.run("produce", "orders", "x", "y", "--namespace", "tenant-a")
    assert shown(terminal) == ["default/orders"]
    assert shown(terminal, "-A") == ["tenant-a/orders", "default/orders"]
    assert terminal.run("top", "-A", "--count", 1).lines[0].split()[:2] == ["namespace", "topic"]
    refused = terminal.run("top", "-A", "--count", 1, "--url", f"file:{terminal.home / 'data'}")
    assert "only a server lists its namespaces" in refused.err


def test_what_waits_fails_and_dies_is_shown(terminal: Terminal) -> None:
    terminal.run("produce", "orders", "a", "b", "c", "d")
    with mqueue.connect() as queue:
        queue.receive("orders")[0].reject()
        queue.receive("orders")[0].nack("1h")
        kept = queue.receive("orders")
        found = terminal.run("top", "--count", 1, "--filter", "default/orders", "-o", "json").json[0]
        assert kept
    assert {name: found[name] for name in ("depth", "ready", "leased", "waiting", "dead")} == {
        "depth": 3,
        "ready": 1,
        "leased": 1,
        "waiting": 1,
        "dead": 1,
    }
    assert found["oldest_ready_seconds"] >= 0


def test_rates_are_those_between_two_looks(terminal: Terminal) -> None:
    terminal.run("produce", "orders", "a")
    done = threading.Event()

    def publish() -> None:
        with mqueue.connect() as queue:
            while not done.is_set():
                queue.publish("orders", "x")

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        [row] = terminal.run("top", "--once", "-i", "500ms", "-o", "json").json
    finally:
        done.set()
        thread.join()
    assert row["in_per_second"] > 0
    assert row["out_per_second"] == 0


def test_a_caller_who_may_not_look_is_told(terminal: Terminal) -> None:
    jwt = Jwt(Secret("a secret of a test, long enough for HS256"), algorithms=("HS256",))
    with RunningServer(Config(security=Security(auth=("jwt",), jwt=jwt))) as guarded:
        refused = terminal.run("top", "--url", guarded.url, seated=True)
    assert refused.code != 0
    assert refused.err.startswith("mqueue: ")


@pytest.mark.parametrize(("seconds", "text"), [(4.24, "4.2s"), (192, "3m12s"), (18_190, "5h03m"), (792_000, "9d04h")])
def test_ages_are_short(seconds: float, text: str) -> None:
    assert age(seconds) == text


# Keys


def record(topic: str, **numbers: float) -> dict[str, object]:
    return {"namespace": "default", "topic": topic, "depth": 0, "dead": 0, **numbers}


def test_keys_sort_filter_scroll_pause_and_leave() -> None:
    control = Control(Choice())
    assert all(control.act(key) for key in "s")
    assert control.choice.sort is Sort.arriving
    assert control.act("left")
    assert control.act("left")
    assert control.choice.sort is Sort.name
    for key in ["r", "/", "q", "u", "i", "x", "backspace", "enter", "down", "down", "up", "p", "?", "nonsense"]:
        assert control.act(key)  # a q inside a filter is a letter
    assert (control.choice.reverse, control.choice.filter, control.first) == (True, "qui", 1)
    assert (control.paused, control.helped, control.typing) == (True, True, False)
    control.act("escape")
    assert (control.choice.filter, control.helped) == ("", False)
    assert not control.act("q")


def test_what_has_the_most_comes_first_and_names_break_ties() -> None:
    look = Look([record("b", dead=1), record("a", dead=1), record("c", dead=5)], {})
    assert [row["topic"] for row in Choice(Sort.dead).of(look)] == ["c", "a", "b"]


def test_bytes_are_keys() -> None:
    assert named("a\x1b[A\x1bOB\x1b[5~\r\x7f\x1b") == ["a", "up", "down", "pageup", "enter", "backspace", "escape"]


# On a terminal


def test_no_color_is_respected(terminal: Terminal) -> None:
    terminal.run("produce", "orders", "a")
    with mqueue.connect() as queue:
        queue.receive("orders")[0].reject()
    coloured = terminal.run("top", "--count", 1, "-i", "0s", seated=True).out
    terminal.set("NO_COLOR", "1")
    plain = terminal.run("top", "--count", 1, "-i", "0s", seated=True).out
    assert "\x1b[31m" in coloured  # red: somebody died
    assert "\x1b[31m" not in plain
    assert "2 topics, 1 messages to do" in plain


class Seat:
    """Somebody at a terminal of 100 columns: what he sees comes by `until`."""

    def __init__(self, *words: str) -> None:
        self._mine, theirs = pty.openpty()
        environ = {**os.environ, "COLUMNS": "100", "LINES": "20"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mqueue", *words], stdin=theirs, stdout=theirs, stderr=theirs, env=environ
        )
        os.close(theirs)
        self._seen = b""

    def until(self, text: str) -> None:
        while text.encode() not in self._seen:
            self._seen += os.read(self._mine, 65536)

    def press(self, keys: bytes) -> None:
        self._seen = b""
        os.write(self._mine, keys)

    def leave(self) -> int:
        return self._process.wait(120)

    def close(self) -> None:
        os.close(self._mine)
        self._process.kill()
        self._process.wait()


@pytest.fixture
def seat(terminal: Terminal) -> Iterator[Seat]:
    terminal.run("produce", "orders", "a", "b")
    terminal.run("produce", "mail", "a")
    made = Seat("top", "-i", "100ms")
    yield made
    made.close()


def test_a_page_hears_keys_and_lets_go_of_the_terminal(seat: Seat) -> None:
    seat.until("2 topics, 3 messages to do")
    seat.press(b"/mai\r")
    seat.until("1 topics")
    seat.until("filter mai")
    seat.press(b"\x1b")
    seat.until("2 topics")
    seat.press(b"?")
    seat.until("sort by another column")
    seat.press(b"q")
    seat.until("\x1b[?1049l")  # the screen is as it was
    assert seat.leave() == 0


def test_a_server_that_goes_away_is_said_and_waited_for(terminal: Terminal, server: RunningServer) -> None:
    with RunningServer(Config()) as other:
        with mqueue.Client(other.url) as queue:
            queue.publish("orders", "a")
        seat = Seat("top", "-i", "100ms", "--url", other.url)
        seat.until("1 topics, 1 messages to do")
    try:
        seat.until("unreachable")
        seat.press(b"q")
        assert seat.leave() == 0
    finally:
        seat.close()


@pytest.mark.system
@pytest.mark.skipif(TMUX is None, reason="needs tmux: make setup-system")
def test_it_fits_a_pane_of_tmux(terminal: Terminal, tmp_path: Path) -> None:
    for number in range(30):
        terminal.run("produce", f"topic-{number:02}", "x")
    socket = str(tmp_path / "tmux")

    def tmux(*words: str) -> str:
        assert TMUX is not None
        command = [TMUX, "-f", "/dev/null", "-S", socket, *words]
        # The size is that of the pane, whatever readline or somebody before us has put there.
        environ = {name: value for name, value in os.environ.items() if name not in ("LINES", "COLUMNS")}
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environ).stdout

    line = shlex.join([sys.executable, "-m", "mqueue", "top", "-i", "100ms", "--sort", "name"])
    tmux("new-session", "-d", "-x", "100", "-y", "15", line)
    try:

        def shows(*lines: tuple[int, str]) -> None:
            """Until these lines begin, or have, what they should; a screen may be seen while it is drawn."""

            def all_there() -> bool:
                seen = tmux("capture-pane", "-p").rstrip("\n").splitlines()
                return len(seen) > 4 and all(text in seen[number] for number, text in lines)

            try:
                wait_until(all_there)
            except AssertionError as error:
                raise AssertionError(tmux("capture-pane", "-p")) from error

        shows((0, "30 topics, 30 messages to do"), (1, "TOPIC"), (2, "topic-00"), (-2, "1–10 of 30"))
        tmux("send-keys", "PageDown")
        shows((2, "topic-10"), (-2, "11–20 of 30"))
        tmux("resize-window", "-x", "100", "-y", "25")
        shows((2, "topic-10"), (-2, "11–30 of 30"))
        tmux("send-keys", "q")
    finally:
        subprocess.run([str(TMUX), "-S", socket, "kill-server"], capture_output=True, check=False, timeout=60)
