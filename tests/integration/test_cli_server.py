"""The command line and a server that asks who is there: tokens, keys, quotas, TLS, and a server that is not there."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqueue.cli import server
from mqueue.config import Config, Jwt, Secret, Security, Tls
from mqueue.server.security.certificates import CERTIFICATE_NAME, KEY_NAME, self_signed, write_pair
from mqueue.server.security.tokens import issue
from mqueue.testing.server import RunningServer
from tests.integration.terminal import Terminal

SECRET = "a secret of a test, long enough for HS256"
PEPPER = "pepper of a test, long enough for BLAKE2b"
SECURITY = Security(
    auth=("jwt", "keys"), jwt=Jwt(secret=Secret(SECRET), algorithms=("HS256",)), keys_pepper=Secret(PEPPER)
)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Terminal:
    return Terminal(monkeypatch, tmp_path)


@pytest.fixture
def guarded(terminal: Terminal) -> Iterator[RunningServer]:
    """A server that lets in tokens and keys, and a terminal that goes there."""
    with RunningServer(Config(security=SECURITY)) as server:
        terminal.set("MQUEUE_URL", server.url)
        yield server


def token(*scopes: str) -> str:
    now = int(time.time() * 1000)
    return issue(SECRET, "HS256", subject="svc", scopes=scopes, issuer="mqueue", audience="mqueue", now=now)


def test_whoever_shows_nothing_or_too_little_is_refused(terminal: Terminal, guarded: RunningServer) -> None:
    for words in ([], ["--token", "nonsense"], ["--token", token("read:default")]):
        done = terminal.run("produce", "orders", "a", *words)
        assert (done.code, done.out) == (4, "")
        assert done.err.startswith("mqueue: ")
        assert not words or words[-1] not in done.err
    assert terminal.run("produce", "orders", "a", "--token", token("write:default")).code == 0
    Path("token").write_text(token("read:default"))
    assert terminal.run("consume", "orders", "--token-file", "token").lines == ["a"]


def test_a_key_is_made_used_and_revoked(terminal: Terminal, guarded: RunningServer) -> None:
    admin = ["--token", token("*:*")]
    made = terminal.run("keys", "create", "shop", "-s", "write:default/orders", "--expires-at", "2999-01-01", *admin)
    assert made.code == 0
    key = made.out.strip()
    assert terminal.run("produce", "orders", "a", "--token", key).code == 0
    assert terminal.run("produce", "mail", "a", "--token", key).code == 4
    [listed] = terminal.run("keys", *admin, "-o", "json").json
    assert (listed["name"], listed["scopes"], listed["revoked_at"]) == ("shop", ["write:default/orders"], None)
    assert key not in terminal.run("keys", "list", *admin).out
    assert terminal.run("keys", "revoke", "shop", *admin).code == 2
    assert terminal.run("keys", "revoke", "shop", "-y", *admin).code == 0
    assert terminal.run("produce", "orders", "a", "--token", key).code == 4


def test_keys_that_cannot_be_made_or_revoked(terminal: Terminal, guarded: RunningServer) -> None:
    admin = ["--token", token("*:*")]
    assert terminal.run("keys", "create", "shop", *admin).code == 2
    assert terminal.run("keys", "create", "shop", "-s", "everything", *admin).code == 4
    assert terminal.run("keys", "create", "shop", "-s", "read:a", *admin, "-o", "json").json["name"] == "shop"
    assert terminal.run("keys", "create", "shop", "-s", "read:a", *admin).code == 1
    assert terminal.run("keys", "revoke", "no/such key?", "-y", *admin).code in (3, 4)
    assert terminal.run("keys", "revoke", "nobody", "-y", *admin).code == 3
    assert terminal.run("keys", "--token", token("read:default")).code == 4


def test_a_quota_is_set_felt_and_taken_away(terminal: Terminal, guarded: RunningServer) -> None:
    admin = ["--token", token("*:*")]
    assert terminal.run("quotas", *admin, "-o", "json").json == []
    assert terminal.run("quotas", "set", "small", 2, *admin, "-o", "json").json == {
        "namespace": "small",
        "per_minute": 2,
    }
    assert terminal.run("quotas", *admin).lines[1].split() == ["small", "2"]
    done = terminal.run("produce", "orders", "a", "b", "c", "-n", "small", *admin)
    assert done.code == 5  # more than there can ever be at once
    assert terminal.run("quotas", "delete", "small", *admin).code == 0
    assert terminal.run("produce", "orders", "a", "b", "c", "-n", "small", *admin).code == 0
    assert terminal.run("quotas", "set", "small", 0, *admin).code == 2
    assert terminal.run("quotas", "--token", token("read:default")).code == 4


def test_many_quotas_come_in_pages(terminal: Terminal, guarded: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PAGE", 5)
    admin = ["--token", token("*:*")]
    names = [f"n-{number}" for number in range(12)]
    for name in names:
        terminal.run("quotas", "set", name, 5, *admin)
    assert [quota["namespace"] for quota in terminal.run("quotas", *admin, "-o", "ndjson").records] == sorted(names)


def test_a_certificate_has_to_be_known(terminal: Terminal, tmp_path: Path) -> None:
    write_pair(self_signed(int(time.time() * 1000)), tmp_path)
    certificate = str(tmp_path / CERTIFICATE_NAME)
    tls = Tls(cert_file=certificate, key_file=str(tmp_path / KEY_NAME))
    with RunningServer(Config(security=Security(tls=tls))) as running:
        strange = terminal.run("topics", "--url", running.url)
        assert strange.code == 5
        assert terminal.run("produce", "orders", "a", "--url", running.url, "--ca", certificate).code == 0
        terminal.set("MQUEUE_CA_FILE", certificate)
        assert terminal.run("topics", "--url", running.url).lines == ["orders"]
        assert terminal.run("topics", "--url", "file:data").code == 0


def test_a_server_that_is_not_there(terminal: Terminal) -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        for verb in (["topics"], ["keys"]):
            done = terminal.run(*verb, "--url", url)
            assert (done.code, done.out) == (5, "")
            assert done.err.startswith(f"mqueue: {url} cannot be reached")
    assert terminal.run("topics", "--timeout", "soon").code == 4
