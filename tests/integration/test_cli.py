"""Every verb of the command line that talks to a queue: what it does, and what it says when that cannot be done."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mqueue
from mqueue.cli import lines, shapes, taking
from mqueue.cli.main import main
from mqueue.testing import ManualClock
from tests.integration.terminal import Terminal

PLACES = ["file", "http"]


@pytest.fixture(params=PLACES)
def terminal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(monkeypatch, tmp_path)
    if request.param == "file":
        terminal.set("MQUEUE_URL", f"file:{tmp_path / 'data'}")
        yield terminal
    else:
        server = request.getfixturevalue("server")
        terminal.set("MQUEUE_URL", server.url)
        yield terminal


def ids(terminal: Terminal, topic: str) -> list[str]:
    return [m["id"] for m in terminal.run("consume", topic, "--from-offset", 0, "-o", "ndjson").records]


# Produce


def test_arguments_are_published_and_their_receipts_shown(terminal: Terminal) -> None:
    done = terminal.run("produce", "orders", "a", "b", "-o", "json")
    assert done.code == 0
    assert [(r["topic"], r["offset"], r["duplicate"]) for r in done.json] == [
        ("orders", 0, False),
        ("orders", 1, False),
    ]
    assert all(isinstance(r["id"], str) for r in done.json)
    table = terminal.run("produce", "orders", "c").lines
    assert table[0].split() == ["id", "topic", "partition", "offset", "duplicate", "durability"]
    assert len(table) == 2


def test_lines_of_a_pipe_are_messages(terminal: Terminal) -> None:
    done = terminal.run("produce", "orders", "--batch", 2, stdin="one\ntwo\r\n\nthree\nfour, without an end")
    assert (done.code, done.out) == (0, "published 4 messages to orders\n")
    assert terminal.run("consume", "orders").lines == ["one", "two", "three", "four, without an end"]


def test_a_file_can_be_one_message_byte_by_byte(terminal: Terminal) -> None:
    (terminal.home / "picture").write_bytes(b"\x00\xff\n\r\n\x1b[2J")
    assert terminal.run("produce", "pictures", "-f", "picture", "-i", "whole").code == 0
    assert terminal.run("consume", "pictures").raw == b"\x00\xff\n\r\n\x1b[2J\n"


def test_options_are_those_of_publish(terminal: Terminal) -> None:
    options = ["-k", "o-1", "-H", "a=b=c", "-p", "high", "--ttl", "1h", "--idempotency-key", "i-1"]
    options += ["--fairness-key", "f-1", "--durability", "memory"]
    terminal.run("produce", "orders", "x", *options)
    again = terminal.run("produce", "orders", "x", *options, "-o", "ndjson")
    assert again.records[0]["duplicate"] is True
    [m] = terminal.run("consume", "orders", "-o", "json").json
    assert (m["key"], m["headers"], m["priority"], m["payload"]) == ("o-1", {"a": "b=c"}, 25, "x")
    assert (m["idempotency_key"], m["fairness_key"]) == ("i-1", "f-1")
    assert m["expires_at"] > m["published_at"]


def test_what_was_consumed_as_json_can_be_produced_again(terminal: Terminal) -> None:
    terminal.run("produce", "orders", "text", "-k", "k", "-H", "a=b", "-p", "7")
    (terminal.home / "bytes").write_bytes(b"\xff\x00")
    terminal.run("produce", "orders", "-f", "bytes", "-i", "whole")
    copied = terminal.run("consume", "orders", "-o", "ndjson").raw
    assert terminal.run("produce", "copies", "-i", "ndjson", stdin=copied).code == 0
    first, second = terminal.run("consume", "copies", "-o", "ndjson").records
    assert (first["payload"], first["key"], first["headers"], first["priority"]) == ("text", "k", {"a": "b"}, 7)
    assert second["payload_base64"] == "/wA="


def test_lines_of_json_say_what_the_options_leave_open(terminal: Terminal) -> None:
    given = '{"payload_json": {"n": [1]}, "key_base64": "/w==", "headers_base64": {"h": "/w=="}}\n{"payload": "p"}\n'
    terminal.run("produce", "orders", "-i", "ndjson", "-k", "mine", "-H", "all=1", "-p", "low", stdin=given)
    first, second = terminal.run("consume", "orders", "-o", "ndjson").records
    assert json.loads(first["payload"]) == {"n": [1]}
    assert (first["key_base64"], first["headers_base64"], first["headers"]) == ("/w==", {"h": "/w=="}, {"all": "1"})
    assert (second["key"], second["priority"]) == ("mine", 75)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("nonsense", "malformed"),
        ('{"key": "k"}', "one of payload"),
        ('{"payload": "a", "payload_json": 1}', "one of payload"),
        ('{"payload_base64": "%"}', "message 2 of the input"),
        ('{"payload": 7}', "Expected"),
    ],
)
def test_a_bad_line_is_named_and_those_before_it_are_counted(terminal: Terminal, line: str, why: str) -> None:
    done = terminal.run("produce", "orders", "-i", "ndjson", "--batch", 1, stdin=f'{{"payload": "ok"}}\n{line}\n')
    assert done.code == 4
    assert "1 messages were published before" in done.err
    assert why in done.err
    assert len(ids(terminal, "orders")) == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["orders", "x", "-p", "urgent"], 4),
        (["orders", "x", "--delay", "soon"], 4),
        (["orders", "x", "-H", "nameless"], 4),
        (["no/such/name", "x"], 4),
        (["orders", "x", "--file", "y"], 2),
        (["orders", "--file", "not-there"], 1),
        (["orders", "--batch", "0"], 2),
        ([], 2),
    ],
)
def test_what_cannot_be_produced(terminal: Terminal, words: list[str], code: int) -> None:
    done = terminal.run("produce", *words)
    assert done.code == code
    assert done.out == ""
    assert done.err.startswith("Usage:" if code == 2 else "mqueue: ")
    assert terminal.run("topics").out == ""


def test_a_message_without_end_is_refused_before_memory_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINE_BYTES_MAX", 10)
    monkeypatch.setattr(lines, "READ_BYTES", 4)
    assert list(lines.batches(io.BytesIO(b"0123456789\nabc\n"), 1)) == [[b"0123456789"], [b"abc"]]
    with pytest.raises(mqueue.TooLarge):
        list(lines.batches(io.BytesIO(b"0123456789abcdef\n"), 1))
    with pytest.raises(mqueue.TooLarge):
        lines.whole(io.BytesIO(b"0123456789a"))


# Consume


def test_what_is_printed_is_acked_and_no_more(terminal: Terminal) -> None:
    terminal.run("produce", "orders", "a", "b", "c")
    assert terminal.run("consume", "orders", "-l", 2).lines == ["a", "b"]
    assert terminal.run("consume", "orders").lines == ["c"]
    nothing = terminal.run("consume", "orders")
    assert (nothing.code, nothing.out, nothing.err) == (3, "", "")
    assert terminal.run("consume", "orders", "-o", "json").json == []
    assert terminal.run("consume", "orders", "-g", "other").lines == ["a", "b", "c"]


def test_no_ack_gives_all_back(terminal: Terminal) -> None:
    terminal.run("produce", "orders", "a", "b")
    for _ in range(2):
        assert terminal.run("consume", "orders", "--no-ack").lines == ["a", "b"]
    assert terminal.run("consume", "orders", "-v").lines[0].endswith("attempt=1 " + _published_at(terminal, "orders"))


def _published_at(terminal: Terminal, topic: str) -> str:
    return str(terminal.run("consume", topic, "--from-offset", 0, "-l", 1, "-o", "json").json[0]["published_at"])


def test_the_log_is_read_without_touching_a_group(terminal: Terminal) -> None:
    terminal.run("produce", "orders", "a", "b", "c")
    assert terminal.run("consume", "orders", "--from-offset", 1).lines == ["b", "c"]
    assert terminal.run("consume", "orders", "--from-offset", 1, "--to-offset", 2).lines == ["b"]
    assert terminal.run("consume", "orders", "--from-time", "2020-01-01", "-l", 2).lines == ["a", "b"]
    assert terminal.run("consume", "orders", "--from-time", "2999-01-01").code == 3
    assert terminal.run("consume", "orders", "--partition", 0).lines == ["a", "b", "c"]
    assert terminal.run("groups", "orders", "-o", "json").json == []


def test_a_group_replays_from_a_time_on(terminal: Terminal) -> None:
    terminal.run("produce", "orders", "a", "b")
    replay = ["consume", "orders", "--group", "replay-test", "--from-time", "2020-01-01"]
    assert terminal.run(*replay).lines == ["a", "b"]
    assert terminal.run("consume", "orders", "--group", "replay-test").code == 3
    assert terminal.run(*replay).lines == ["a", "b"]  # it is sent back


def test_a_group_that_replays_up_to_a_place_stands_there_afterwards(terminal: Terminal) -> None:
    terminal.run("produce", "orders", "a", "b", "c")
    span = ["--from-offset", 0, "--to-offset", 2]
    assert terminal.run("consume", "orders", "-g", "audit", *span).lines == ["a", "b"]
    assert terminal.run("consume", "orders", "-g", "audit").lines == ["c"]
    to_time = ["--from-time", "2020-01-01", "--to-time", "2999-01-01"]
    assert terminal.run("consume", "orders", "-g", "audit", *to_time).lines == ["a", "b", "c"]


@pytest.mark.parametrize(
    "words",
    [
        ["--from-time", "2020-01-01", "--from-offset", 1],
        ["--to-time", "2020-01-01", "--to-offset", 1],
        ["--follow", "--to-offset", 1],
        ["--follow", "--no-ack"],
        ["--no-ack", "--from-offset", 1],
        ["--partition", 0, "--group", "g"],
    ],
)
def test_wishes_that_exclude_each_other_are_a_usage_error(terminal: Terminal, words: list[object]) -> None:
    terminal.run("produce", "orders", "a")
    done = terminal.run("consume", "orders", *words)
    assert done.code == 2
    assert "Error:" in done.err


def test_what_cannot_be_consumed(terminal: Terminal) -> None:
    assert terminal.run("consume", "orders", "--from-offset", 0).code == 3
    terminal.run("produce", "orders", "a")
    for words in (["--from-time", "yesterday"], ["--visibility", "0s"], ["--wait", "long"]):
        done = terminal.run("consume", "orders", *words)
        assert done.code == 4
        assert done.err.startswith("mqueue: ")


def test_following_goes_on_until_it_is_stopped(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal.run("produce", "orders", *"abc")
    seen: list[bytes] = []

    def put(m: mqueue.Message) -> None:
        seen.append(m.payload)
        if len(seen) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(taking, "_write_payload", put)
    done = terminal.run("consume", "orders", "--follow")
    assert (done.code, done.err, seen) == (130, "", [b"a", b"b", b"c"])
    monkeypatch.undo()


def test_an_interrupt_acks_what_was_printed_and_releases_the_rest(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.run("produce", "orders", *"abc")
    write = taking._write_payload

    def put(m: mqueue.Message) -> None:
        if m.payload == b"b":
            raise KeyboardInterrupt
        write(m)

    with monkeypatch.context() as patch:
        patch.setattr(taking, "_write_payload", put)
        done = terminal.run("consume", "orders")
    assert (done.code, done.lines) == (130, ["a"])
    again = terminal.run("consume", "orders", "-o", "ndjson").records
    assert [(m["payload"], m["attempt"]) for m in again] == [("b", 1), ("c", 1)]


def test_a_reader_who_has_had_enough_is_no_error_and_loses_nothing(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.run("produce", "orders", *"ab")

    def put(m: mqueue.Message) -> None:
        raise BrokenPipeError

    with monkeypatch.context() as patch:
        patch.setattr(taking, "_write_payload", put)
        done = terminal.run("consume", "orders")
    assert (done.code, done.err) == (0, "")
    assert terminal.run("consume", "orders").lines == ["a", "b"]


def test_an_array_is_closed_whatever_happens(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal.run("produce", "orders", *"abc")
    shown = shapes.message

    def shape(m: mqueue.Message) -> dict[str, Any]:
        if m.payload == b"b":
            raise KeyboardInterrupt
        return shown(m)

    with monkeypatch.context() as patch:
        patch.setattr(shapes, "message", shape)
        done = terminal.run("consume", "orders", "-o", "json")
    assert done.code == 130
    assert [m["payload"] for m in done.json] == ["a"]


def test_what_was_held_for_too_long_is_told(
    broker: mqueue.Broker, manual_clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.publish_many("orders", ["a", "b"])
    early = broker.receive("orders", visibility="1s")
    manual_clock.advance("2s")
    taking.settle(broker.ack, [*early, *broker.receive("orders", limit=1)], "acked")
    assert "1 messages were held for longer than their lease: they are not acked" in capsys.readouterr().err
    taking.settle(broker.release, early, "given back")
    assert "1 messages were held" in capsys.readouterr().err
    taking.settle(broker.ack, [], "acked")
    assert capsys.readouterr().err == ""


def test_a_log_is_followed(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal.run("produce", "orders", "a", "b")
    seen: list[bytes] = []

    def put(m: mqueue.Message) -> None:
        seen.append(m.payload)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(taking, "_write_payload", put)
        assert terminal.run("consume", "orders", "--from-offset", 0, "-f").code == 130
    assert seen == [b"a", b"b"]


# Look


def test_peek_takes_nothing(terminal: Terminal) -> None:
    terminal.run("produce", "orders", "later", "-p", "low")
    terminal.run("produce", "orders", "soon", "-p", "critical")
    for _ in range(2):
        peeked = terminal.run("peek", "orders", "-o", "json").json
        assert [m["payload"] for m in peeked] == ["soon", "later"]
    assert terminal.run("peek", "orders").lines[1].endswith("soon")
    terminal.run("consume", "orders")
    assert terminal.run("peek", "orders").code == 3
    assert terminal.run("peek", "nowhere").code == 3


def test_a_table_plays_no_tricks_with_a_terminal(terminal: Terminal) -> None:
    terminal.run("produce", "orders", "\x1b[2Jcleared?\nnew line [bold]")
    shown = terminal.run("peek", "orders").out
    assert "\x1b" not in shown
    assert "\\x1b[2Jcleared?\\nnew line [bold]" in shown


def test_a_trace_is_a_timeline(terminal: Terminal) -> None:
    terminal.run("produce", "orders", "a")
    terminal.run("consume", "orders")
    [id] = ids(terminal, "orders")
    shown = terminal.run("trace", id).lines
    assert shown[:6] == [f"Message: {id}", "Topic: orders", "Partition: 0", "Offset: 0", "", "Timeline:"]
    assert [line.split()[0] for line in shown[6:10]] == ["├─", "├─", "├─", "└─"]
    assert [line.split()[2] for line in shown[6:10]] == ["PUBLISHED", "DELIVERED", "ACKNOWLEDGED", "RETAINED"]
    assert shown[10:12] == ["", "Delivery Attempts: 1"]
    assert shown[12].startswith("Total Latency: ")
    assert shown[12].endswith("s (publish to final ack)")
    told = terminal.run("trace", id, "-o", "json").json
    assert [event["kind"] for event in told["events"]] == ["PUBLISHED", "DELIVERED", "ACKNOWLEDGED"]
    assert (told["id"], told["attempts"]) == (id, 1)


def test_a_trace_is_coloured_for_people_who_want_that(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal.set("TERM", "xterm-256color")
    terminal.run("produce", "orders", "a")
    [id] = ids(terminal, "orders")
    terminal.run("consume", "orders")
    plain = terminal.run("trace", id)
    assert "\x1b" not in plain.out
    last = plain.lines[-4].split()
    assert (last[0], last[2]) == ("└─", "RETAINED")
    until = terminal.run("trace", id, "-o", "json").json["retained_until"]
    assert last[3] == f"expires={until}"
    coloured = terminal.run("trace", id, seated=True).out
    assert "\x1b[32mACKNOWLEDGED" in coloured
    assert "\x1b[32m" in terminal.run("explain", id, seated=True).out
    terminal.set("NO_COLOR", "1")
    assert "\x1b[32m" not in terminal.run("trace", id, seated=True).out


def test_explain_is_a_sentence(terminal: Terminal) -> None:
    terminal.run("produce", "orders", "a", "--deliver-at", "2999-01-01")
    id = terminal.run("scheduled", "orders", "-o", "json").json[0]["id"]
    assert terminal.run("explain", id).out == "it is scheduled for 2999-01-01T00:00:00.000Z\n"
    assert terminal.run("explain", id, "-o", "json").json["code"] == "scheduled"


@pytest.mark.parametrize("verb", ["trace", "explain"])
def test_a_message_that_is_not_there(terminal: Terminal, verb: str) -> None:
    done = terminal.run(verb, 12)
    assert done.code == 3
    assert done.err.startswith("mqueue: message 12 is not there")
    assert terminal.run(verb, "x").code == 2


def test_stats_count_topics_and_groups(terminal: Terminal) -> None:
    terminal.run("produce", "orders", "a", "b")
    terminal.run("produce", "mail", "a")
    terminal.run("consume", "orders", "-l", 1)
    assert [line.split()[:4] for line in terminal.run("stats").lines] == [
        ["topic", "depth", "ready", "waiting"],
        ["mail", "1", "1", "0"],
        ["orders", "1", "1", "0"],
    ]
    [told] = terminal.run("stats", "orders", "-o", "json").json
    assert (told["published"], told["acked"], told["groups"]["default"]["acked"]) == (2, 1, 1)
    one = terminal.run("stats", "orders").lines
    assert one[0].split() == ["topic", "orders"]
    assert one[-1].split()[0] == "default"
    assert terminal.run("stats", "nowhere").code == 3


def test_top_shows_the_busiest_first(terminal: Terminal) -> None:
    terminal.run("produce", "quiet", "a")
    terminal.run("produce", "busy", "a", "b")
    once = terminal.run("top", "--once", "-i", "0s")
    assert once.code == 0
    assert [line.split()[0] for line in once.lines] == ["topic", "busy", "quiet"]
    assert once.lines[1].split()[1:3] == ["0.0", "0.0"]
    assert terminal.run("top", "-i", "0s").lines[0] == once.lines[0]
    twice = terminal.run("top", "--count", 2, "-i", "0s", "-o", "ndjson").records
    assert [row["in_per_second"] for row in twice] == [None, None, 0.0, 0.0]
    assert len(terminal.run("top", "-i", "0s", "-l", 1).lines) == 2
    assert terminal.run("top", "-i", "often").code == 4


# On a terminal


def test_on_a_terminal_there_are_colours_and_the_same_words(terminal: Terminal) -> None:
    terminal.set("TERM", "xterm-256color")
    terminal.run("produce", "orders", "[bold]a\x1b[2J", "-p", "high")
    plain, seated = terminal.run("peek", "orders"), terminal.run("peek", "orders", seated=True)
    assert "\x1b" not in plain.out
    assert "\x1b[1m" in seated.out
    assert "[bold]a\\x1b[2J" in seated.out
    assert terminal.run("consume", "orders", seated=True).out == "[bold]a\\x1b[2J\n"


def test_top_is_a_page_that_renews_itself(terminal: Terminal) -> None:
    terminal.run("produce", "orders", "a", "b")
    done = terminal.run("top", "--count", 2, "-i", "0s", seated=True)
    assert done.code == 0
    assert "orders" in done.out
    assert "1 topics, 2 messages to do" in done.out


def test_long_work_tells_how_far_it_is(terminal: Terminal) -> None:
    done = terminal.run("bench", "-m", 10, "-b", 5, seated=True)
    assert done.code == 0
    assert "publish" in done.err
    typed = terminal.run("produce", "orders", stdin="a\nb\n", seated=True)
    assert (typed.out, typed.err) == ("published 2 messages to orders\n", "a message a line; Ctrl-D ends\n")


# Manage


def test_topics_are_listed(terminal: Terminal) -> None:
    assert (terminal.run("topics").code, terminal.run("topics").out) == (0, "")
    terminal.run("produce", "orders", "a")
    terminal.run("produce", "mail", "a")
    assert terminal.run("topics").lines == ["mail", "orders"]
    assert terminal.run("topics", "-o", "json").json == [{"topic": "mail"}, {"topic": "orders"}]


def test_namespaces_are_apart(terminal: Terminal) -> None:
    terminal.run("produce", "orders", "a", "-n", "tenant-a")
    assert terminal.run("topics").out == ""
    assert terminal.run("topics", "-n", "tenant-a").lines == ["orders"]
    terminal.set("MQUEUE_NAMESPACE", "tenant-a")
    assert terminal.run("topics").lines == ["orders"]
    assert terminal.run("topics", "-n", "not/one").code == 4


def test_describe_shows_settings_and_numbers(terminal: Terminal) -> None:
    terminal.run("produce", "orders", "a")
    told = terminal.run("describe", "orders", "-o", "json").json
    assert (told["topic"], told["settings"]["max_retries"], told["stats"]["ready"]) == ("orders", 3, 1)
    assert "max_retries" in terminal.run("describe", "orders").out
    assert terminal.run("describe", "nowhere").code == 3


def test_configure_changes_what_is_named(terminal: Terminal) -> None:
    told = terminal.run("configure", "orders", "partitions=2", "backoff=5s", "default_ttl=1h", "-o", "json").json
    assert (told["partitions"], told["backoff"], told["default_ttl"], told["max_retries"]) == (2, 5, 3600, 3)
    told = terminal.run("configure", "orders", "retention.bytes=1000", "default_ttl=none", "-o", "json").json
    assert (told["retention"]["hours"], told["retention"]["bytes"], told["default_ttl"]) == (168, 1000, None)
    told = terminal.run("configure", "orders", 'retention={"hours": 1}', "dlq=false", "-o", "json").json
    assert (told["retention"]["hours"], told["dlq"]) == (1, False)
    told = terminal.run("configure", "fresh", "retention.on_ack=true", "-o", "json").json
    assert (told["retention"]["hours"], told["retention"]["on_ack"]) == (168, True)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["colour=red"], 4),
        (["max_retries=often"], 4),
        (["max_retries"], 2),
        (["retention=none", "retention.hours=1"], 2),
        ([], 2),
    ],
)
def test_what_cannot_be_configured(terminal: Terminal, words: list[str], code: int) -> None:
    assert terminal.run("configure", "orders", *words).code == code
    assert terminal.run("topics").out == ""


def test_purge_and_delete_ask_first(terminal: Terminal) -> None:
    terminal.run("produce", "orders", "a", "b")
    for verb in ("purge", "delete"):
        refused = terminal.run(verb, "orders")
        assert refused.code == 2
        assert "--yes" in refused.err
    assert terminal.run("stats", "orders", "-o", "json").json[0]["ready"] == 2
    assert terminal.run("purge", "orders", "-y").out == "purged 2 messages of orders\n"
    assert terminal.run("purge", "orders", "-y", "-o", "json").json == {"topic": "orders", "purged": 0}
    assert terminal.run("delete", "orders", "-y").out == "deleted orders\n"
    assert terminal.run("delete", "orders", "-y").code == 3
    assert terminal.run("purge", "orders", "-y").code == 3


def test_whoever_is_asked_may_say_no(terminal: Terminal) -> None:
    terminal.run("produce", "orders", "a")
    assert terminal.run("delete", "orders", stdin="n\n", seated=True).code == 1
    assert terminal.run("purge", "orders", stdin="y\n", seated=True).code == 0
    assert terminal.run("topics").lines == ["orders"]


def test_groups_are_made_listed_moved_and_deleted(terminal: Terminal) -> None:
    terminal.run("produce", "orders", "a", "b")
    assert terminal.run("groups", "create", "orders", "g", "--start", "latest").code == 0
    assert terminal.run("groups", "create", "orders", "g").code == 1  # it is there
    assert terminal.run("consume", "orders", "-g", "g").code == 3
    for to, found in (("earliest", ["a", "b"]), ("1", ["b"]), ("2020-01-01", ["a", "b"])):
        assert terminal.run("seek", "orders", to, "-g", "g").code == 0
        assert terminal.run("consume", "orders", "-g", "g").lines == found
    assert [g["group"] for g in terminal.run("groups", "orders", "-o", "json").json] == ["g"]
    assert terminal.run("groups", "list", "orders").lines[1].split()[:2] == ["g", "0"]
    assert terminal.run("groups", "delete", "orders", "g").code == 2
    assert terminal.run("groups", "delete", "orders", "g", "-y").code == 0
    for words in (["groups", "delete", "orders", "g", "-y"], ["seek", "orders", "0", "-g", "g"], ["groups", "nowhere"]):
        assert terminal.run(*words).code == 3
    assert terminal.run("seek", "orders", "tomorrow").code in (3, 4)


def test_an_assigned_group_is_shown(terminal: Terminal) -> None:
    terminal.run("configure", "orders", "partitions=2")
    terminal.run("produce", "orders", "a", "b")
    assert terminal.run("groups", "create", "orders", "g", "--assigned").code == 0
    assert terminal.run("groups", "members", "orders", "g", "-o", "json").json == []
    lags = terminal.run("groups", "offsets", "orders", "g", "-o", "json").json
    assert [lag["partition"] for lag in lags] == [0, 1]
    assert sum(lag["lag"] for lag in lags) == 2
    told = terminal.run("groups", "describe", "orders", "g", "-o", "json").json
    assert (told["group"], told["assigned"], told["depth"], told["rebalances"]) == ("g", True, 2, 0)
    assert "partitions" in terminal.run("groups", "describe", "orders", "g").lines
    assert "assigned" in terminal.run("consume", "orders", "-g", "g").err  # only members receive
    assert terminal.run("groups", "reset", "orders", "g", "--to", "latest").code == 2  # it asks
    assert terminal.run("groups", "reset", "orders", "g", "--to", "latest", "-y").code == 0
    assert sum(lag["lag"] for lag in terminal.run("groups", "offsets", "orders", "g", "-o", "json").json) == 0
    for verb in ("describe", "members", "offsets"):
        assert terminal.run("groups", verb, "orders", "nobody").code == 3


def test_what_is_scheduled_is_listed_moved_and_cancelled(terminal: Terminal) -> None:
    terminal.run("produce", "orders", "a", "--delay", "1h")
    [m] = terminal.run("scheduled", "orders", "-o", "json").json
    assert terminal.run("scheduled", "move", m["id"], "--deliver-at", "2999-01-01").code == 0
    assert "2999-01-01T00:00:00.000Z" in terminal.run("scheduled", "orders").out
    assert terminal.run("scheduled", "move", m["id"]).code == 4
    assert terminal.run("scheduled", "cancel", m["id"]).code == 0
    assert terminal.run("scheduled", "orders", "-o", "json").json == []
    assert terminal.run("scheduled", "cancel", m["id"]).code == 1
    assert terminal.run("scheduled", "cancel", 12).code == 3


def test_the_dead_are_listed_and_redriven(terminal: Terminal) -> None:
    terminal.run("produce", "mail", "bad address", "timeout")
    with mqueue.connect() as q:
        for m in q.receive("mail", limit=2):
            m.reject(error=m.text())
    assert len(terminal.run("dlq", "mail").lines) == 3
    chosen = ["-F", 'error ~ "time"']
    [dead] = terminal.run("dlq", "list", "mail", *chosen, "-o", "json").json
    assert (dead["payload"], dead["group"], dead["attempts"], dead["error"]) == ("timeout", "default", 1, "timeout")
    assert terminal.run("dlq", "redrive", "mail", *chosen, "--dry-run").out == "1 would be redriven\n"
    assert terminal.run("consume", "mail").code == 3
    assert terminal.run("dlq", "redrive", "mail", *chosen, "--rate", 100).out == "redriven 1 of 1\n"
    assert terminal.run("consume", "mail").lines == ["timeout"]
    done = terminal.run("dlq", "redrive", "mail", "-l", 5, "-o", "json").json
    assert (done["matched"], done["redriven"], done["dry_run"]) == (1, 1, False)
    assert terminal.run("dlq", "mail", "-o", "json").json == []


def test_the_dead_are_sorted_and_deleted(terminal: Terminal) -> None:
    terminal.run("produce", "mail", "order 1 timed out", "order 2 timed out", "bad address")
    with mqueue.connect() as q:
        for m in q.receive("mail", limit=3):
            m.reject(error=m.text())
    often, once = terminal.run("dlq", "errors", "mail", "-o", "json").json
    assert (often["count"], often["error"], once["count"]) == (2, "order <n> timed out", 1)
    assert len(terminal.run("dlq", "errors", "mail").lines) == 3
    chosen = ["-F", f"fingerprint = {often['fingerprint']}"]
    assert terminal.run("dlq", "delete", "mail", *chosen, "--dry-run").out == "2 would be deleted\n"
    assert terminal.run("dlq", "delete", "mail", *chosen, "-l", 1).out == "deleted 1 of 1\n"
    done = terminal.run("dlq", "delete", "mail", "-o", "json").json
    assert (done["matched"], done["deleted"], done["dry_run"]) == (2, 2, False)
    assert terminal.run("dlq", "mail", "-o", "json").json == []
    assert terminal.run("dlq", "delete", "nowhere").code == 3


def test_dead_that_cannot_be_found(terminal: Terminal) -> None:
    assert terminal.run("dlq", "nowhere").code == 3
    assert terminal.run("dlq", "redrive", "nowhere").code == 3
    terminal.run("produce", "mail", "a")
    assert terminal.run("dlq", "mail", "-F", "((").code == 4
    assert terminal.run("dlq", "redrive", "mail", "--rate", -1).code == 4
    assert terminal.run("dlq").code == 2


def test_cursors_are_set_listed_and_deleted(terminal: Terminal) -> None:
    terminal.run("produce", "orders", "a", "b")
    made = terminal.run("cursors", "set", "orders", "archive", "--offset", "0:1", "--ttl", "1h", "-o", "json").json
    assert (made["name"], made["topic"], made["offsets"]) == ("archive", "orders", {"0": 1})
    assert terminal.run("cursors", "orders", "-o", "json").json[0]["offsets"] == {"0": 1}
    assert terminal.run("cursors", "orders").lines[1].split()[0] == "archive"
    assert terminal.run("cursors", "set", "orders", "archive", "--offset", "0").code == 2
    assert terminal.run("cursors", "delete", "orders", "archive").code == 0
    assert terminal.run("cursors", "delete", "orders", "archive").code == 3
    assert terminal.run("cursors", "nowhere").code == 3


def test_bench_cleans_up_after_itself(terminal: Terminal) -> None:
    done = terminal.run("bench", "-m", 30, "-b", 20, "-s", 10, "-o", "ndjson")
    assert [(row["what"], row["messages"]) for row in done.records] == [("publish", 30), ("receive and ack", 30)]
    assert terminal.run("topics").out == ""
    assert terminal.run("bench", "-m", 0).code == 2


@pytest.mark.parametrize("verb", ["keys", "quotas"])
def test_keys_and_quotas_belong_to_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    terminal = Terminal(monkeypatch, tmp_path)
    done = terminal.run(verb, "--url", "memory:")
    assert done.code == 4
    assert "server" in done.err


def test_main_takes_the_words_of_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["mqueue", "version"])
    assert main() == 0
    assert capsys.readouterr().out.startswith("mqueue ")
