"""What the dashboard stands on, over HTTP: its files, logins, the overview and its stream, leafing through topics."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.client import HTTPConnection
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

import pytest

import mqueue
from mqueue.config import Config, Dashboard
from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer
from tests.integration.asking import Asking

STATIC = files("mqueue.server.http.dashboard").joinpath("static")
DEADLINE_SECONDS = 120


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with RunningServer() as server:
        yield server


@pytest.fixture
def ask(server: RunningServer) -> Asking:
    return Asking(server.url)


# Files


def test_every_file_is_locked_in(ask: Asking) -> None:
    kinds = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
    for file in STATIC.iterdir():
        path = "/" if file.name == "index.html" else f"/dashboard/{file.name}"
        answer = ask("GET", path)
        assert (answer.status, answer.body) == (200, file.read_bytes())
        kind = kinds.get(file.name.rpartition(".")[2], "text/html")
        assert answer.headers["content-type"].startswith(kind)
        assert answer.headers["x-content-type-options"] == "nosniff"
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        again = ask("GET", path, If_None_Match=answer.headers["etag"])
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", answer.headers["etag"])
        assert ask("GET", path, If_None_Match='"other"').status == 200


@pytest.mark.parametrize("name", ["index.html", "nothing.js", "..", "%2e%2e%2fassets.py", "assets.py", "", "a/b.js"])
def test_nothing_else_is_given_away(ask: Asking, name: str) -> None:
    assert ask("GET", f"/dashboard/{name}").status == 404


def test_the_files_bring_nothing_from_elsewhere_and_make_no_markup() -> None:
    """The browser would refuse it; nobody is to write it in the first place."""
    for file in STATIC.iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "").replace("https?:", "")
        assert not re.search(r"https?://|@import|url\(", text), file.name
        if file.name.endswith(".js"):
            code = re.sub(r"^//.*|^ ?\*.*|/\*\*.*", "", text, flags=re.M)
            assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function", code), (
                file.name
            )
            assert not re.search(r"""setAttribute\(["']style|["']style["']?:""", code), file.name


def test_every_module_that_is_asked_for_is_there() -> None:
    there = {file.name for file in STATIC.iterdir()}
    for file in STATIC.iterdir():
        text = file.read_text(encoding="utf-8")
        asked = set(re.findall(r"""(?:from |import\()["']\./([\w.]+)["']""", text)) | set(
            re.findall(r"/dashboard/([\w.]+)", text)
        )
        assert asked <= there, file.name


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_text_can_be_read_in_both_themes() -> None:
    """As WCAG asks of text: 4.5 to 1 at least, on every ground that it stands on."""
    css = STATIC.joinpath("style.css").read_text(encoding="utf-8")
    themes = [
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
        for block in re.findall(r"color-scheme: \w+;(.*?)\}", css, re.S)
    ]
    assert len(themes) == 3
    assert themes[1] == themes[2], "dark by choice and dark by the system are the same"
    for theme in themes:
        for text in ("text", "muted", "faint", "accent", "in", "out", "ready", "leased", "waiting", "dead"):
            for ground in ("ground", "surface"):
                assert _contrast(theme[text], theme[ground]) >= 4.5, (text, ground, theme[text])
        soft = {
            "out": "good",
            "ready": "ready",
            "leased": "leased",
            "waiting": "waiting",
            "dead": "dead",
            "muted": "quiet",
        }
        for text, ground in soft.items():
            assert _contrast(theme[text], theme[f"{ground}-soft"]) >= 4.5, (text, ground)
        assert _contrast(theme["accent"], theme["accent-soft"]) >= 4.5
        assert _contrast(theme["on-accent"], theme["accent"]) >= 4.5


def test_it_can_be_off() -> None:
    with RunningServer(Config(dashboard=Dashboard(enabled=False))) as server:
        ask = Asking(server.url)
        assert (ask("GET", "/").status, ask("GET", "/").headers["location"]) == (303, "/docs")
        assert ask("GET", "/dashboard/main.js").status == 404
        ask.publish("t", "x")
        assert ask("GET", "/v1/overview").json["topics"] == 1
        assert next(events_of(server, "/v1/overview/stream"))[1]["topics"] == 1


# Logins


def test_a_server_that_asks_nobody_says_so(ask: Asking) -> None:
    told = ask("GET", "/v1/session").json
    assert (told["login"], told["via"], told["grants"]) == (False, "open", ["admin:*"])
    assert "csrf" not in told


@pytest.mark.parametrize("bad", ["", "a;b", "a\r\nb", "x" * 4000])
def test_bad_credentials_are_named(ask: Asking, bad: str) -> None:
    answer = ask("POST", "/v1/session", {"credential": bad})
    assert (answer.status, answer.error) == (400, "bad_credential")
    assert "set-cookie" not in answer.headers


# The overview


def events_of(server: RunningServer, path: str) -> Iterator[tuple[str, Any]]:
    connection = HTTPConnection(urlsplit(server.url).netloc, timeout=DEADLINE_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.getheader("content-type") == "text/event-stream"
        name = ""
        for line in answer:
            if line.startswith(b"event: "):
                name = line[7:].strip().decode()
            elif line.startswith(b"data: "):
                yield name, json.loads(line[6:])
    finally:
        connection.close()


def test_the_stream_tells_what_changes(server: RunningServer, ask: Asking) -> None:
    ask.publish("watched", "x", namespace="watching")
    stream = events_of(server, "/v1/overview/stream?namespace=watching&sort=name")
    name, view = next(stream)
    while not any(row["topic"] == "watched" for row in view["rows"]):
        name, view = next(stream)
    ask.publish("watched-too", "x", "y", namespace="watching")
    for name, change in stream:
        assert name == "change"
        if change.get("order") == ["watching/watched", "watching/watched-too"]:
            [row] = [row for row in change["rows"] if row["topic"] == "watched-too"]
            assert row["ready"] == 2
            assert change["totals"]["topics"] == 2
            break


@pytest.mark.parametrize(
    "query", ["sort=colour", "limit=0", "limit=201", "skip=-1", "limit=x", "nonzero=maybe", "namespace=a%2Fb"]
)
def test_bad_windows(ask: Asking, query: str) -> None:
    for path in ("/v1/overview", "/v1/overview/stream"):
        answer = ask("GET", f"{path}?{query}")
        assert answer.status == 400, answer
        assert answer.json["error"]["message"]


# Leafing through


@pytest.fixture
def q() -> Iterator[tuple[mqueue.Client, Asking, ManualClock]]:
    clock = ManualClock()
    with RunningServer(clock=clock) as server, mqueue.Client(server.url, name="worker-7") as client:
        yield client, Asking(server.url), clock


Q = tuple[mqueue.Client, Asking, ManualClock]


def browse(ask: Asking, topic: str, **query: object) -> Any:
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    answer = ask("GET", f"/v1/topics/{topic}/browse?{asked}")
    assert answer.status == 200, answer
    return answer.json


def test_each_message_has_its_state(q: Q) -> None:
    client, ask, clock = q
    client.configure("t", max_retries=5)
    acked, nacked, leased, ready = (client.publish("t", text).id for text in ("acked", "nacked", "leased", "ready"))
    later = client.publish("t", "later", delay="1h").id
    gone = client.publish("t", "gone", ttl="1s").id
    dropped = client.publish("t", "dropped", delay="2h").id
    client.cancel(dropped)
    one, two, three = client.receive("t", limit=3, group="g", visibility="10m")
    one.ack()
    two.nack(delay="5m", error="no")
    clock.advance("2s")
    client.peek("t")
    found = {int(each["id"]): each for each in browse(ask, "t", group="g")["messages"]}
    states = {id: each["state"] for id, each in found.items()}
    assert states == {
        acked: "settled", nacked: "waiting", leased: "leased", ready: "ready", later: "scheduled", gone: "expired",
        dropped: "cancelled",
    }  # fmt: skip
    assert (found[leased]["by"], found[leased]["attempt"], found[nacked]["attempt"]) == ("worker-7", 1, 1)
    assert found[leased]["until"] > found[nacked]["until"] > found[ready]["published_at"]
    for state, id in (("waiting", nacked), ("leased", leased), ("scheduled", later)):
        assert [int(each["id"]) for each in browse(ask, "t", group="g", state=state)["messages"]] == [id]
    assert [int(each["id"]) for each in browse(ask, "t", group="g", state="ready")["messages"]] == [ready]
    assert {each["state"] for each in browse(ask, "t", group="nobody")["messages"][4:]} == {"ready"}
    client.create_group("t", "late", start="latest")
    assert browse(ask, "t", group="late")["messages"][-1]["state"] == "before_start"
    three.ack()


def test_pages_go_back_from_the_newest(q: Q) -> None:
    client, ask, clock = q
    client.configure("t", partitions=3)
    ids = []
    for number in range(23):
        ids.append(str(client.publish("t", str(number), key=str(number)).id))
        clock.advance("1s")
    found, cursor = [], ""
    while cursor is not None:
        page = browse(ask, "t", limit=5, cursor=cursor)
        found += [each["id"] for each in page["messages"]]
        cursor = page["next"]
    assert found == ids[::-1]
    some = browse(ask, "t", partition=1, limit=200)["messages"]
    assert [each["offset"] for each in some] == list(range(len(some) - 1, -1, -1))


def test_pages_go_on_from_a_place(q: Q) -> None:
    client, ask, clock = q
    client.configure("t", partitions=2)
    client.publish_many("t", [mqueue.Draft(str(n), key=str(n)) for n in range(20)])
    clock.advance("1h")
    late = [str(receipt.id) for receipt in client.publish_many("t", ["late", "later"])]
    found, cursor = [], ""
    while cursor is not None:
        page = browse(ask, "t", start_offset=1, limit=3, cursor=cursor)
        found += [(each["partition"], each["offset"]) for each in page["messages"]]
        cursor = page["next"]
    assert found == sorted(found)
    assert len(found) == 20
    half = clock.now() - 1_800_000
    assert [each["id"] for each in browse(ask, "t", start_time=half)["messages"]] == late


def test_long_payloads_are_cut_and_letters_are_not(q: Q) -> None:
    client, ask, _ = q
    client.publish("t", "ä" * 300)
    client.publish("t", bytes(range(256)) * 4)
    client.publish("t", "short")
    short, binary, long = browse(ask, "t", preview=255)["messages"]
    assert (short["payload"], short["payload_bytes"], "cut" in short) == ("short", 5, False)
    assert (binary["payload_bytes"], binary["cut"], len(binary["payload_base64"])) == (1024, True, 340)
    assert (long["payload"], long["payload_bytes"], long["cut"]) == ("ä" * 127, 600, True)
    assert browse(ask, "t", preview=0)["messages"][0]["payload"] == ""


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("state=odd", "bad_query"),
        ("limit=0", "bad_limit"),
        ("limit=201", "bad_limit"),
        ("preview=65537", "bad_limit"),
        ("cursor=x", "bad_cursor"),
        ("cursor=0.1.2", "bad_cursor"),
        ("partition=7", "not_found"),
        ("group=a%20b", "bad_name"),
        ("start_offset=1&start_time=2026-01-01", "bad_query"),
        ("start_offset=-1", "bad_position"),
    ],
)
def test_bad_pages_are_refused(ask: Asking, query: str, code: str) -> None:
    ask.publish("leafed", "x")
    assert ask("GET", f"/v1/topics/leafed/browse?{query}").error == code


def test_priorities_of_a_group(q: Q) -> None:
    client, ask, _ = q
    client.publish_many("t", [mqueue.Draft("x", priority=priority) for priority in (0, 0, 50, 50, 50, 100)])
    first, second = client.receive("t", limit=2, group="g")
    first.nack(delay="1h")
    told = ask("GET", "/v1/topics/t/priorities?group=g").json["priorities"]
    assert told == [
        {"priority": 0, "ready": 0, "waiting": 1, "leased": 1},
        {"priority": 50, "ready": 3, "waiting": 0, "leased": 0},
        {"priority": 100, "ready": 1, "waiting": 0, "leased": 0},
    ]
    assert sum(one["ready"] for one in ask("GET", "/v1/topics/t/priorities").json["priorities"]) == 6
    second.ack()


# The dead


def test_of_the_dead_and_the_scheduled_the_beginning_will_do(q: Q) -> None:
    client, ask, _ = q
    client.publish("t", "x" * 1000)
    client.publish("t", "y" * 1000, delay="1h")
    client.receive("t")[0].reject("no")
    for path, letter in (("dlq", "x"), ("scheduled", "y")):
        [short] = ask("GET", f"/v1/topics/t/{path}?preview=10").json["messages"]
        assert (short["payload"], short["payload_bytes"], short["cut"]) == (letter * 10, 1000, True)
        [whole] = ask("GET", f"/v1/topics/t/{path}").json["messages"]
        assert (whole["payload"], "cut" in whole) == (letter * 1000, False)
        assert ask("GET", f"/v1/topics/t/{path}?preview=-1").error == "bad_limit"


def test_a_redrive_tells_how_far_it_is(q: Q) -> None:
    client, ask, _ = q
    client.publish_many("t", [b"x"] * 3)
    for message in client.receive("t", limit=3):
        message.reject("no")
    answer = ask("POST", "/v1/topics/t/dlq/redrive", {"rate": 1000}, Accept="text/event-stream")
    assert answer.headers["content-type"] == "text/event-stream"
    events = re.findall(rb"event: (\w+)\ndata: (.*)\n", answer.body)
    assert events[-2] == (b"done", b'{"matched":3,"redriven":3,"dry_run":false}')
    assert all(name == b"progress" for name, _ in events[:-2])
    assert len(client.receive("t", limit=10)) == 3
    assert ask("POST", "/v1/topics/t/dlq/redrive", {"rate": -1}, Accept="text/event-stream").error == "bad_rate"


def test_one_server_in_numbers(ask: Asking) -> None:
    [node] = ask("GET", "/v1/cluster").json["nodes"]
    assert (node["storage"], node["connections"] >= 1, "trouble" in node) == ("memory", True, False)
