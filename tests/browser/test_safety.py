"""Who gets in, and what a message can do to whoever looks at it: nothing."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mqueue
from mqueue.config import Config, Jwt, Secret, Security, Tls
from mqueue.server.security.certificates import write_pair
from mqueue.server.security.tokens import issue
from mqueue.testing.server import RunningServer
from tests.integration.asking import Asking
from tests.unit.test_security_tls import SERVER

Visit = Callable[..., Any]

SECRET = "a secret of a test, long enough for HS256"
PEPPER = "pepper of a test, long enough for BLAKE2b"

EVIL = (
    "<script>window.hit=1</script>",
    "<img src=x onerror=window.hit=1>",
    '"><svg/onload=window.hit=1>',
    "javascript:window.hit=1",
    "';window.hit=1;//",
    "{{constructor.constructor('window.hit=1')()}}",
    "<a href=javascript:alert(1)>x</a>",
    "</textarea></pre></title><script>alert(1)</script>",
    "<iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
    "\u202ecod.exe\u2066<b onmouseover=alert(1)>",
    "\x00\x1b[31m<details open ontoggle=alert(1)>",
)


def security(**more: Any) -> Security:
    return Security(auth=("jwt", "keys"), jwt=Jwt(secret=Secret(SECRET), algorithms=("HS256",)),
                    keys_pepper=Secret(PEPPER), **more)  # fmt: skip


def token(*scopes: str) -> str:
    now = int(time.time() * 1000)
    return issue(SECRET, "HS256", subject="ann", scopes=scopes, issuer="mqueue", audience="mqueue", now=now)


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningServer]:
    with RunningServer(Config(security=security())) as server:
        ask = Asking(server.url, Authorization=f"Bearer {token('admin:*')}")
        for space, topic in (("team", "orders"), ("other", "secrets")):
            path = f"/v1/topics/{topic}/messages?namespace={space}"
            assert ask("POST", path, {"messages": [{"payload": "x"}]}).status == 200
        yield server


def enter(page: Any, credential: str) -> None:
    page.get_by_label("API key or token").fill(credential)
    page.get_by_role("button", name="Log in").click()


def test_log_in_and_out(guarded: RunningServer, visit: Visit) -> None:
    page = visit(guarded.url)
    enter(page, "mq_nonsense")
    page.get_by_role("alert").get_by_text("was not accepted").wait_for()
    enter(page, token("admin:*"))
    page.get_by_role("link", name="team / orders").wait_for()
    [cookie] = page.context.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"], cookie["secure"]) == (
        "mqueue",
        True,
        "Strict",
        False,
    )
    assert cookie["expires"] == -1
    page.reload()
    page.get_by_role("link", name="team / orders").wait_for()
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Log out").click()
    page.get_by_text("You are logged out.").wait_for()
    assert page.context.cookies() == []


def test_a_key_that_is_revoked_ends_the_login(guarded: RunningServer, visit: Visit) -> None:
    admin = Asking(guarded.url, Authorization=f"Bearer {token('admin:*')}")
    key = admin("POST", "/v1/keys", {"name": "short-lived", "scopes": ["read:team"]}).json["key"]
    page = visit(guarded.url)
    enter(page, key)
    page.get_by_role("link", name="team / orders").wait_for()
    assert admin("DELETE", "/v1/keys/short-lived").status == 204
    page.get_by_text("Your login has ended").wait_for()
    enter(page, token("admin:*"))
    page.get_by_role("link", name="team / orders").wait_for()


def test_who_may_little_sees_little(guarded: RunningServer, visit: Visit) -> None:
    page = visit(guarded.url)
    enter(page, token("read:team/orders"))
    page.get_by_text("1–1 of 1").wait_for()
    assert page.get_by_text("secrets").count() == 0
    page.get_by_role("link", name="team / orders").click()
    page.get_by_role("heading", name="orders").wait_for()
    page.get_by_role("link", name="Settings").click()
    page.get_by_text("To change these takes the right to manage the topic.").wait_for()
    assert page.get_by_role("button", name="Publish a message").count() == 0
    for place in ("t/other/secrets/messages", "t/other/secrets/settings", "cluster"):
        page.goto(f"{guarded.url}/#/{place}")
        page.get_by_role("alert").get_by_text("Not allowed").first.wait_for()


def test_who_may_nothing_is_told(guarded: RunningServer, visit: Visit) -> None:
    page = visit(guarded.url)
    enter(page, token("write:team"))
    page.get_by_text(re.compile("may not read")).first.wait_for()


def test_schedules_are_of_the_namespaces_that_one_may_read(guarded: RunningServer, visit: Visit) -> None:
    page = visit(f"{guarded.url}/#/schedules")
    enter(page, token("read:team", "write:elsewhere"))
    page.get_by_text("No schedules in namespace").wait_for()
    assert page.get_by_role("heading", name="Not allowed").count() == 0


def test_a_cookie_alone_changes_nothing(guarded: RunningServer, visit: Visit) -> None:
    page = visit(guarded.url)
    enter(page, token("admin:*"))
    page.get_by_role("link", name="team / orders").wait_for()
    post = """async (csrf) => {
        const headers = csrf ? {"X-Mqueue-Csrf": csrf} : {};
        const answer = await fetch("/v1/topics/orders/purge?namespace=team", {method: "POST", headers});
        return [answer.status, (await answer.json()).error?.code];
    }"""
    assert page.evaluate(post, "") == [403, "csrf"]
    assert page.evaluate(post, "0" * 32) == [403, "csrf"]
    csrf = page.evaluate('fetch("/v1/session").then(answer => answer.json()).then(session => session.csrf)')
    assert page.evaluate(post, csrf) == [200, None]


def test_over_tls_the_cookie_is_for_this_host_alone(visit: Visit, tmp_path: Path) -> None:
    write_pair(SERVER, tmp_path)
    tls = Tls(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
    with RunningServer(Config(security=security(tls=tls))) as server:
        page = visit(server.url, ignore_https_errors=True)
        enter(page, token("admin:*"))
        page.get_by_role("heading", name="Overview").wait_for()
        [cookie] = page.context.cookies()
        assert (cookie["name"], cookie["secure"], cookie["httpOnly"]) == ("__Host-mqueue", True, True)


def test_what_messages_bring_stays_text(visit: Visit) -> None:
    """Names allow no such thing; keys, headers, payloads, errors and the names of consumers do."""
    with RunningServer() as server, mqueue.Client(server.url, name="<img src=x onerror=alert(2)>") as q:
        ids = []
        for evil in EVIL:
            key = evil.replace("\x00", "")
            headers = {"x": evil, key.replace("\u202e", "")[:40]: "y"} if evil.isprintable() else {"x": evil}
            ids.append(q.publish("evil", evil, key=key, headers=headers).id)
            q.publish("evil.later", evil, delay="1h", key=key)
        for evil in EVIL:
            [message] = q.receive("evil", wait="30s")
            message.reject(evil)
        q.schedules("evil").add(EVIL[0], every="1h", name="evil")
        page = visit(server.url)
        places = [
            "", f"?search={EVIL[1]}", "t/default/evil", "t/default/evil/messages", "t/default/evil/dead",
            "t/default/evil.dlq/messages", "t/default/evil.later/scheduled", "schedules", "jobs", "cluster",
            f"t/default/{EVIL[1]}".replace("/", "%2F", 2), f"m/default/{EVIL[2]}", *(f"m/default/{id}" for id in ids),
        ]  # fmt: skip
        for place in places:
            page.goto(f"{server.url}/#/{place}")
            page.get_by_role("heading").first.wait_for()
            page.locator("main [aria-busy]").first.wait_for(state="detached")
            assert page.evaluate("window.hit") is None, place
            assert page.locator("main").locator("script, iframe, img, details, [onmouseover]").count() == 0, place
        page.goto(f"{server.url}/#/t/default/evil/dead")
        page.get_by_text(EVIL[0]).first.wait_for()


def test_the_browser_itself_would_refuse_markup(visit: Visit) -> None:
    """Were a line of ours careless, the policy holds: this plants the fault and sees it caught."""
    with RunningServer() as server:
        page = visit(server.url)
        page.get_by_role("heading", name="Overview").wait_for()
        planted = """() => {
            try { document.body.innerHTML = "<img src=x onerror=window.hit=1>"; } catch (error) { return error.name; }
        }"""
        assert page.evaluate(planted) == "TypeError"
        caught = page.evaluate("caught.splice(0).length")
        assert caught > 0
        assert page.evaluate("window.hit") is None
