"""The dashboard at work, in a real browser against a real server: what people do with it, from end to end."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import mqueue
from mqueue.testing.server import RunningServer
from tests.cluster.network.proxy import Weather
from tests.cluster.network.wires import Wires

Visit = Callable[..., Any]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with RunningServer() as server:
        yield server


@pytest.fixture
def q(server: RunningServer) -> Iterator[mqueue.Client]:
    with mqueue.Client(server.url, name="worker-7") as q:
        yield q


def row_of(page: Any, topic: str) -> Any:
    return page.locator("tr", has=page.get_by_role("link", name=re.compile(rf"\b{topic}$")))


def quiet(page: Any) -> None:
    """Until all that was asked for is there."""
    page.locator("main [aria-busy]").first.wait_for(state="detached")


def settled(q: mqueue.Client, topic: str, error: str) -> None:
    """The next message of a topic dies."""
    [message] = q.receive(topic, wait="30s")
    message.reject(error)


def test_publish_and_watch_it_arrive(server: RunningServer, q: mqueue.Client, visit: Visit) -> None:
    q.publish("parcels", "first")
    page = visit(server.url)
    page.get_by_role("heading", name="Overview", level=1).wait_for()
    row_of(page, "parcels").get_by_role("link").first.click()
    page.get_by_role("button", name="Publish a message").click()
    page.get_by_label("Payload").fill('{"n": 2}')
    page.get_by_label("Key").fill("customer-7")
    page.get_by_role("button", name="Publish", exact=True).click()
    page.get_by_text(re.compile("Published to partition 0, offset 1")).wait_for()
    page.get_by_role("img", name=re.compile("^Backlog, now: ready 2,")).wait_for()
    line = page.locator("path.line.ready")
    drawn = line.get_attribute("d")
    q.publish_many("parcels", [b"x"] * 40)
    page.get_by_role("img", name=re.compile("^Backlog, now: ready 42")).wait_for()
    assert line.get_attribute("d") != drawn
    page.get_by_role("img", name=re.compile("^Messages per second, now: in [1-9]")).wait_for()
    page.locator(".notice a").click()
    page.get_by_role("heading", name=re.compile(r"^\d+$")).wait_for()
    page.get_by_text("PUBLISHED", exact=True).wait_for()
    assert page.locator("pre").inner_text() == '{\n  "n": 2\n}'


def test_a_message_is_found_by_its_id_from_anywhere(server: RunningServer, q: mqueue.Client, visit: Visit) -> None:
    far = q.namespace("far-away")
    receipt = far.publish("letters", "hello", key="k-1", headers={"colour": "red"})
    [message] = far.receive("letters", group="post")
    message.nack(error="no such street", delay="1h")
    page = visit(f"{server.url}/#/cluster")
    page.get_by_role("heading", name="Cluster").wait_for()
    page.keyboard.press("/")
    page.keyboard.type(str(receipt.id))
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=str(receipt.id)).wait_for()
    events = page.locator(".timeline li")
    assert events.locator("b").all_inner_texts() == ["PUBLISHED", "DELIVERED", "NACKED"]
    assert "no such street" in events.nth(2).inner_text()
    page.get_by_text("attempt 1 failed; it waits for its retry").wait_for()
    assert page.get_by_text("k-1").is_visible()
    assert page.get_by_text("red", exact=True).is_visible()


def test_the_dead_come_back_and_some_do_not(server: RunningServer, q: mqueue.Client, visit: Visit) -> None:
    q.publish_many("mail", [f"letter {n}" for n in range(12)])
    for n in range(12):
        settled(q, "mail", f"timed out after {n} ms" if n < 8 else "no such address")
    page = visit(f"{server.url}/#/t/default/mail/dead")
    page.get_by_role("button", name="timed out after <n> ms").click()
    page.get_by_text("8 of 8").wait_for()
    page.get_by_role("button", name="Dry run").click()
    page.get_by_text("8 messages would be redriven. Nothing was changed.").wait_for()
    page.get_by_label("Rate, messages per second").fill("5")
    page.get_by_role("button", name="Redrive", exact=True).first.click()
    page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    page.get_by_text(re.compile("[1-7] of 8 are ready again")).wait_for()
    assert 0 < page.get_by_role("progressbar").evaluate("bar => bar.value") < 1
    page.get_by_text("8 messages are ready again.").wait_for()
    page.get_by_text("None match.").wait_for()
    assert len(q.receive("mail", limit=100)) == 8

    page.get_by_role("button", name="All").click()
    page.get_by_text("4 of 4").wait_for()
    page.get_by_role("button", name="Edit…").first.click()
    page.get_by_label("Payload").fill("letter, with an address")
    page.get_by_role("button", name="Republish").click()
    page.get_by_text("3 of 3").wait_for()
    assert [m.text() for m in q.receive("mail", limit=100)] == ["letter, with an address"]
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    page.get_by_text("3 messages are deleted.").wait_for()
    page.get_by_text("Nobody died here.").wait_for()
    assert len(q.dlq("mail")) == 0


def test_a_redrive_is_stopped(server: RunningServer, q: mqueue.Client, visit: Visit) -> None:
    q.publish_many("slow", [b"x"] * 5)
    for _ in range(5):
        settled(q, "slow", "no")
    page = visit(f"{server.url}/#/t/default/slow/dead")
    page.get_by_text("5 of 5").wait_for()
    page.get_by_label("Rate, messages per second").fill("0.02")
    page.get_by_role("button", name="Redrive", exact=True).first.click()
    page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    page.get_by_text("1 of 5 are ready again").wait_for()
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("Stopped: 1 are ready again").wait_for()
    page.get_by_text("4 of 4").wait_for()


def test_who_leaves_a_redrive_is_told_that_it_stops(server: RunningServer, q: mqueue.Client, visit: Visit) -> None:
    q.publish_many("left", [b"x"] * 3)
    for _ in range(3):
        settled(q, "left", "no")
    page = visit(f"{server.url}/#/t/default/left/dead")
    page.get_by_text("3 of 3").wait_for()
    page.get_by_label("Rate, messages per second").fill("0.02")
    page.get_by_role("button", name="Redrive", exact=True).first.click()
    page.get_by_role("dialog").get_by_text("Who leaves this page stops it.").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    page.get_by_text("1 of 3 are ready again").wait_for()
    page.goto(f"{server.url}/#/cluster")
    page.get_by_text("The redrive of left: Stopped: 1 are ready again, the rest are where they were.").wait_for()
    assert len(q.dlq("left")) == 2


def test_only_the_dead_that_were_shown_go(server: RunningServer, q: mqueue.Client, visit: Visit) -> None:
    """Who has read a number and said yes to it means that many, whatever died since."""

    def die(number: int) -> None:
        q.publish_many("grows", [b"x"] * number)
        for _ in range(number):
            settled(q, "grows", "no")

    die(3)
    page = visit(f"{server.url}/#/t/default/grows/dead")
    page.get_by_text("3 of 3").wait_for()
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("heading", name="Delete 3 dead messages?").wait_for()
    die(4)
    page.get_by_text("7 of 7").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    page.get_by_text("3 messages are deleted.").wait_for()
    page.get_by_text("4 of 4").wait_for()
    page.get_by_role("button", name="Redrive", exact=True).first.click()
    page.get_by_role("heading", name="Redrive 4 messages?").wait_for()
    die(1)
    page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    page.get_by_text("4 messages are ready again.").wait_for()
    page.get_by_text("1 of 1").wait_for()
    assert len(q.dlq("grows")) == 1


def test_an_edited_message_that_somebody_brought_back(server: RunningServer, q: mqueue.Client, visit: Visit) -> None:
    q.publish("twice", "original")
    settled(q, "twice", "no")
    page = visit(f"{server.url}/#/t/default/twice/dead")
    page.get_by_role("button", name="Edit…").click()
    page.get_by_label("Payload").fill("copy")
    q.dlq("twice").redrive()
    page.get_by_role("button", name="Republish").click()
    page.get_by_text("The copy is published, but the dead message was there no more").wait_for()
    assert sorted(m.text() for m in q.receive("twice", limit=10)) == ["copy", "original"]


def test_what_is_scheduled_is_moved_and_cancelled(server: RunningServer, q: mqueue.Client, visit: Visit) -> None:
    soon, late = (q.publish("reminders", text, delay="1h") for text in ("soon", "late"))
    page = visit(f"{server.url}/#/scheduled")
    page.get_by_role("link", name=re.compile("reminders")).click()
    row = page.locator("tr", has_text=str(late.id))
    row.get_by_role("button", name="Move…").click()
    page.get_by_label("New time").fill("3h")
    page.get_by_role("dialog").get_by_role("button", name="Move").click()
    row.get_by_text(re.compile("^in (2h 59m|3h)")).wait_for()
    page.locator("tr", has_text=str(soon.id)).get_by_role("button", name="Cancel…").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel it").click()
    page.get_by_text(f"Message {soon.id} is cancelled.").wait_for()
    page.locator("tbody tr", has_text=str(soon.id)).wait_for(state="detached")
    assert [m.id for m in q.scheduled("reminders")] == [late.id]


def test_settings_are_changed_and_bad_ones_refused(server: RunningServer, q: mqueue.Client, visit: Visit) -> None:
    q.publish("tuned", "x")
    page = visit(f"{server.url}/#/t/default/tuned/settings")
    page.get_by_label("max_retries").fill("-4")
    page.get_by_role("button", name="Change…").click()
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    page.get_by_role("dialog").get_by_text(re.compile("max_retries is -4")).wait_for()
    page.keyboard.press("Escape")
    page.get_by_label("max_retries").fill("7")
    page.get_by_label("default_ttl").fill("2h")
    page.get_by_role("button", name="Change…").click()
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    page.get_by_text("The settings are changed.").wait_for()
    assert {"max_retries": 7, "default_ttl": 7200.0}.items() <= q.settings("tuned").items()


def test_a_label_that_is_taken_out_goes(server: RunningServer, q: mqueue.Client, visit: Visit) -> None:
    q.configure("labelled", labels={"team": "a", "tier": "gold"})
    page = visit(f"{server.url}/#/t/default/labelled/settings")
    page.get_by_label("labels").fill('{"team": "b"}')
    page.get_by_role("button", name="Change…").click()
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    page.get_by_text("The settings are changed.").wait_for()
    assert q.settings("labelled")["labels"] == {"team": "b"}


def test_schedules_of_all_namespaces(server: RunningServer, q: mqueue.Client, visit: Visit) -> None:
    q.namespace("by-the-hour").schedules("reports").add(b"x", every="1h", name="hourly")
    page = visit(f"{server.url}/#/schedules")
    page.get_by_role("link", name="by-the-hour / reports").wait_for()
    page.get_by_role("button", name="Pause").click()
    page.get_by_text("hourly is paused.").wait_for()
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    page.get_by_text(re.compile("No schedules in namespace default, nor in any other")).wait_for()


def test_schedules_are_added_paused_run_and_deleted(server: RunningServer, q: mqueue.Client, visit: Visit) -> None:
    page = visit(f"{server.url}/#/schedules")
    page.get_by_role("button", name="Add a schedule").click()
    page.get_by_label("Name", exact=True).fill("daily")
    page.get_by_label("Topic", exact=True).fill("reports")
    page.get_by_label("Cron").fill("0 25 * * *")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_role("dialog").get_by_text(re.compile("25")).first.wait_for()
    page.get_by_label("Cron").fill("0 9 * * 1-5")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_role("button", name="Pause").click()
    page.get_by_text("daily is paused.").wait_for()
    page.get_by_role("button", name="Run now").click()
    page.get_by_text("It is published.").wait_for()
    assert len(q.receive("reports")) == 1
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    page.get_by_text(re.compile("No schedules in namespace default")).wait_for()


def test_groups_members_and_jobs_are_shown(server: RunningServer, q: mqueue.Client, visit: Visit) -> None:
    q.configure("shared-out", partitions=2)
    q.publish_many("shared-out", [mqueue.Draft(b"x", key=str(n)) for n in range(9)])
    q.create_group("shared-out", "crew", assigned=True)
    q.join("shared-out", group="crew", member="worker-1")
    q.set_cursor("shared-out", "archive", {0: 1})
    page = visit(f"{server.url}/#/t/default/shared-out")
    page.get_by_role("link", name="crew").click()
    page.get_by_role("cell", name="0, 1").wait_for()
    page.get_by_role("region", name="Rebalances").get_by_text(re.compile("worker-1")).first.wait_for()
    page.goto(f"{server.url}/#/jobs")
    page.get_by_role("rowheader", name="archive").wait_for()


def test_tiles_and_charts_of_a_topic_say_the_same(server: RunningServer, q: mqueue.Client, visit: Visit) -> None:
    q.publish_many("orders", [b"x"] * 5)
    q.nack(q.receive("orders", group="billing", limit=2, visibility="1h")[:1], delay="1h")
    q.receive("orders", group="mail", limit=3, visibility="1h")
    page = visit(f"{server.url}/#/t/default/orders")
    page.get_by_role("img", name=re.compile("^Backlog, now: ready 3, in flight 4, retrying 1$")).wait_for()
    assert [page.locator(f".tile.{kind} strong").inner_text() for kind in ("ready", "leased", "waiting")] == list("341")


def test_unknown_and_broken_places_are_told(server: RunningServer, visit: Visit) -> None:
    page = visit(f"{server.url}/#/m/default/123456789012")
    page.get_by_role("alert").get_by_text("message 123456789012 is not there").wait_for()
    for place, told in {
        "?sort=colour": "sort 'colour'",
        "?skip=abc": "skip",
        "m/default/not-a-number": "not-a-number",
        "t/default/nowhere/messages": "nowhere",
        "t/default/nowhere/settings": "nowhere",
        "t/default/nowhere/dead": "nowhere",
        "t/bad%2Fname/x/scheduled": "bad/name",
        "no/such/page": "There is no page",
        "t/default/x/no-such-part": "no page",
        "%E0%A4%A": "There is no page",
    }.items():
        page.goto(f"{server.url}/#/{place}")
        page.get_by_role("alert").get_by_text(re.compile(re.escape(told))).first.wait_for()


def test_payloads_that_are_no_text_and_very_long_ones(server: RunningServer, q: mqueue.Client, visit: Visit) -> None:
    binary = q.publish("blobs", bytes(range(256)))
    long = q.publish("blobs", "ä" * (1 << 19))
    page = visit(f"{server.url}/#/t/default/blobs/messages")
    page.get_by_text("1 MiB").wait_for()
    page.get_by_text("00 01 02 03").wait_for()
    page.goto(f"{server.url}/#/m/default/{binary.id}")
    page.locator("pre.hex").wait_for()
    assert page.locator("pre.hex").inner_text().splitlines()[4] == ("00000020  20 21 22 23 24 25 26 27   !\"#$%&'")
    page.goto(f"{server.url}/#/m/default/{long.id}")
    page.get_by_role("button", name="Show all of it").click()
    assert len(page.locator("pre").inner_text()) == 1 << 19


def test_what_is_binary_survives_an_edit(server: RunningServer, q: mqueue.Client, visit: Visit) -> None:
    q.publish("coded", "old", key=b"\xff\x00", headers={"sign": b"\xfe\xed", "plain": "p"}, fairness_key="f")
    settled(q, "coded", "no")
    page = visit(f"{server.url}/#/t/default/coded/dead")
    page.get_by_role("button", name="Edit…").click()
    page.get_by_label("Payload").fill("new")
    page.get_by_role("button", name="Republish").click()
    page.get_by_text("The copy is published").wait_for()
    [copy] = q.receive("coded", wait="30s")
    assert (copy.text(), copy.key, copy.fairness_key) == ("new", b"\xff\x00", "f")
    assert (copy.headers["sign"], copy.headers["plain"]) == (b"\xfe\xed", "p")


def test_what_is_new_disturbs_nobody(server: RunningServer, q: mqueue.Client, visit: Visit) -> None:
    """Neither who goes by the keys, nor who has scrolled aside, nor who is marking text."""
    busy = q.namespace("busy")
    busy.publish("restless", "x")
    page = visit(server.url, viewport={"width": 250, "height": 800})
    page.get_by_label("Namespace", exact=True).select_option("busy")
    name, ready = page.get_by_role("link", name="restless"), page.locator(".tile.ready strong")
    name.focus()
    page.get_by_role("region", name="Topics").evaluate("box => { box.scrollLeft = 30; }")
    busy.publish_many("restless", [b"x"] * 6)
    page.get_by_role("cell", name="7", exact=True).wait_for()
    assert name.evaluate("link => link === document.activeElement")
    assert page.get_by_role("region", name="Topics").evaluate("box => box.scrollLeft") == 30
    page.evaluate("getSelection().selectAllChildren(document.querySelector('tbody th'))")
    busy.publish_many("restless", [b"x"] * 3)
    ready.get_by_text("10", exact=True).wait_for()
    assert "restless" in page.evaluate("getSelection().toString()")


def test_times_that_have_passed_are_never_in_the_future(server: RunningServer, visit: Visit) -> None:
    page = visit(server.url)
    told = page.evaluate("""async () => {
        const { ago, relative, setServerTime, took } = await import("/dashboard/format.js");
        const at = (ms) => new Date(Date.now() + ms).toISOString();
        setServerTime(at(-5000));
        return [ago(at(60_000)), relative(at(3_660_500)), ago(at(-3_540_500)), took(0.0024), took(0), took(75)];
    }""")
    assert told == ["0s ago", "in 1h", "1h ago", "2ms", "0s", "1m 15s"]


def test_json_is_set_out_and_nothing_else(server: RunningServer, q: mqueue.Client, visit: Visit) -> None:
    page = visit(server.url)
    good = ["{}", "[ ]", "[[],{}]", '"x"', ' {"a":[1,{"b":"{,:}\\\\\\""},null],"c":{"d":true}}\n']
    bad = ["", "{", "[1,]", "[" * 5000 + "]" * 5000]
    told = page.evaluate(
        'async (texts) => texts.map((await import("/dashboard/format.js")).pretty)',
        [*good, *bad],
    )
    assert told == [*(json.dumps(json.loads(text), indent=2) for text in good), *(None for _ in bad)]
    lines = [
        '  "id": 9007199254740993,',
        '  "id": 123456789012345678,',
        '  "total": 1.0,',
        '  "far": 1e400,',
        '  "sign": "\\u0041"',
    ]
    exact = q.publish("exact", "{" + "".join(lines) + "}")
    page.goto(f"{server.url}/#/m/default/{exact.id}")
    page.locator("pre.json").wait_for()
    assert page.locator("pre").inner_text().splitlines() == ["{", *lines, "}"]


def test_where_one_is_can_be_seen_and_heard(server: RunningServer, q: mqueue.Client, visit: Visit) -> None:
    q.publish("somewhere", "x")
    page = visit(f"{server.url}/#/t/default/somewhere/settings", viewport={"width": 390, "height": 800})
    quiet(page)
    current = page.locator("nav [aria-current=page]")
    assert current.all_inner_texts() == ["Overview", "Settings"]
    page.goto(f"{server.url}/#/cluster")
    page.locator("nav [aria-current=page]", has_text="Cluster").wait_for()
    for box in (one.bounding_box() for one in current.all()):
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390


def test_nothing_is_wider_than_a_phone(server: RunningServer, q: mqueue.Client, visit: Visit) -> None:
    topic, word = "w" * 240, "x" * 300
    q.publish(topic, word, key=word, headers={word[:200]: word})
    settled(q, topic, word)
    later = q.publish(topic, word, delay="1h", key=word, headers={word[:200]: word})
    q.set_cursor(topic, "c" * 200, {0: 0})
    q.schedules(topic).add(word, every="1h", name="s" * 200)
    page = visit(server.url, viewport={"width": 390, "height": 800})
    places = ["", "messages", "dead", "scheduled", "schedules", "jobs", "cluster", f"m/default/{later.id}"]
    places += [f"t/default/{topic}/{part}" for part in ("", "messages", "dead", "scheduled", "settings", "g/default")]
    for place in places:
        page.goto(f"{server.url}/#/{place}")
        page.get_by_role("heading", level=1).wait_for()
        quiet(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, place


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"away": ["shard2"]}, "shard2 cannot be reached: topics there stand still, and are not shown."),
        ({"missing": ["http://10.0.0.7:80"]}, "http://10.0.0.7:80 did not answer: topics there are not shown."),
        ({"totals": {"topics": 3, "dead": 2}}, "Nothing is stuck; 2 dead to look at"),
        ({}, "Nothing was published yet"),
    ],
)
def test_the_sentence_above_all_numbers(server: RunningServer, visit: Visit, told: dict[str, Any], said: str) -> None:
    page = visit(f"{server.url}/#/jobs")
    view = {"at": "2026-01-01T00:00:00.000Z", "topics": 0, "totals": {}, "rows": [], **told}
    body = f"event: view\ndata: {json.dumps(view)}\n\n"
    page.route("**/v1/overview/stream*", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
    page.goto(f"{server.url}/#/")
    page.get_by_text(said).wait_for()


def test_a_line_that_breaks_is_told_and_taken_up_again(server: RunningServer, q: mqueue.Client, visit: Visit) -> None:
    q.publish("before", "x")
    with Wires() as wires:
        wire = wires.open(int(server.url.rpartition(":")[2]))
        page = visit(f"http://127.0.0.1:{wire.port}/")
        row_of(page, "before").first.wait_for()
        wire.set(Weather(cut=True))
        page.get_by_text("The connection to the server is lost.").wait_for()
        assert row_of(page, "before").first.is_visible()
        q.publish("behind", "x")
        wire.heal()
        row_of(page, "behind").first.wait_for()
        page.get_by_text("The connection to the server is lost.").wait_for(state="hidden")


def test_tabs_that_nobody_sees_are_in_nobodys_way(server: RunningServer, q: mqueue.Client, visit: Visit) -> None:
    """A browser opens six connections to a server, and each stream takes one."""
    q.publish("before", "x")
    turn = """(hidden) => {
        Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    first = page = visit(server.url)
    for _ in range(7):
        row_of(page, "before").first.wait_for()
        page.evaluate(turn, True)
        page = page.context.new_page()
        page.goto(server.url)
    row_of(page, "before").first.wait_for()
    q.publish("meanwhile", "x")
    row_of(page, "meanwhile").first.wait_for()
    assert row_of(first, "meanwhile").count() == 0
    first.evaluate(turn, False)
    row_of(first, "meanwhile").first.wait_for()


@pytest.mark.long
def test_ten_thousand_topics(visit: Visit) -> None:
    with RunningServer() as server, mqueue.Client(server.url) as q:
        for first in range(0, 10_000, 250):
            q.publish_many(None, [mqueue.Draft(b"x", topic=f"topic-{first + more:05}") for more in range(250)])
        page = visit(server.url)
        page.get_by_text("1–100 of 10,000").wait_for()
        assert page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") < 60_000
        page.get_by_role("button", name="Next").click()
        page.get_by_text("101–200 of 10,000").wait_for()
        page.get_by_label("Filter topics by name").fill("topic-0999")
        page.get_by_text("1–10 of 10", exact=True).wait_for()
        q.publish_many("topic-09991", [b"x"] * 50)
        row_of(page, "topic-09991").get_by_text("51").wait_for()
        page.get_by_role("button", name="Ready").click()
        page.locator("tbody tr").nth(0).get_by_text("topic-09991").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_scrolls_one_way_only(server: RunningServer, q: mqueue.Client, visit: Visit, scheme: str) -> None:
    q.publish("a.topic.with-a-rather-long-name.that-does-not-end-soon.v2", "x" * 400, key="k" * 200)
    page = visit(server.url, viewport={"width": 390, "height": 844}, color_scheme=scheme)
    topic = "t/default/a.topic.with-a-rather-long-name.that-does-not-end-soon.v2"
    places = ("", topic, f"{topic}/messages", f"{topic}/settings", "dead", "scheduled", "schedules", "jobs", "cluster")
    for place in places:
        page.goto(f"{server.url}/#/{place}")
        page.get_by_role("heading", level=1).wait_for()
        quiet(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, place


def test_everything_has_a_name(server: RunningServer, q: mqueue.Client, visit: Visit) -> None:
    """What a screen reader says of buttons, fields and links is never nothing; every page has one first heading."""
    q.publish("named", "x", delay="1h")
    page = visit(server.url)
    parts = ("", "/messages", "/dead", "/scheduled", "/settings")
    for place in ("", *(f"t/default/named{part}" for part in parts), "schedules", "cluster"):
        page.goto(f"{server.url}/#/{place}")
        page.get_by_role("heading", level=1).wait_for()
        quiet(page)
        nameless = page.evaluate(
            """() => [...document.querySelectorAll("a, button, input, select, textarea, [role=img]")].filter((one) =>
              !(one.labels?.length || one.ariaLabel || one.textContent.trim() || one.closest("[hidden]"))
            ).map((one) => one.outerHTML)"""
        )
        assert nameless == [], place
        assert page.locator("h1").count() == 1
        assert page.locator("main").count() == 1
        assert " · mqueue" in page.title()
