"""Who may call what, over HTTP: every route of the table, every proof, every way of not being allowed."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from cryptography import x509

from mqueue.assembly.server import Serving
from mqueue.config import Address, Config, Jwt, RateLimit, Secret, Security, Server, Tls
from mqueue.model.errors import BadSetting
from mqueue.model.times import rfc3339
from mqueue.server.http.examples import example_of
from mqueue.server.http.routes import Route
from mqueue.server.http.tables import TABLE
from mqueue.server.security.certificates import write_pair
from mqueue.server.security.principal import UNIFORM
from mqueue.server.security.tokens import issue
from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer
from tests.integration.asking import Asking
from tests.unit import forged
from tests.unit.test_security_tls import CA, SERVER, client_context

DEADLINE_SECONDS = 120
SECRET = "a secret of a test, long enough for HS256"
PEPPER = "pepper of a test, long enough for BLAKE2b"
SCOPE = {"publish": "write", "receive": "read", "settle": "read", "read": "read", "manage": "admin"}
ENOUGH = {"publish": ("read",), "receive": ("write",), "settle": ("write",), "read": ("write",)}
ROUTES = [route for route in TABLE if route.place != "open"]

Grants = tuple[str, ...]


def security(**more: Any) -> Security:
    return Security(auth=("jwt", "keys"), jwt=Jwt(secret=Secret(SECRET), algorithms=("HS256",)),
                    keys_pepper=Secret(PEPPER), **more)  # fmt: skip


def token(*scopes: str, now: int | None = None) -> str:
    at = int(time.time() * 1000) if now is None else now
    return issue(SECRET, "HS256", subject="svc", scopes=scopes, issuer="mqueue", audience="mqueue", now=at)


# The matrix


def right(route: Route) -> Grants:
    """The smallest grant that is enough."""
    scope = SCOPE[route.verb]
    place = {"server": "*", "topic": "team/orders", "namespace": "team", "inside": "team"}[route.place]
    return (f"{scope}:{place}",)


def wrongs(route: Route) -> dict[str, Grants]:
    """Grants that look near enough, and are not."""
    others = ENOUGH.get(route.verb, ("read", "write"))
    found = {
        "nothing": (),
        "another namespace": ("*:team",) if route.place == "server" else ("*:other", "*:team-b"),
        "another verb": tuple(f"{scope}:*" for scope in others),
    }
    if route.place == "topic":
        found["another topic"] = ("*:team/order", "*:team/orders.x", "*:team/orders.*")
    return found


class Made(NamedTuple):
    """What there is in team/orders: a message that is not due yet, a lease, and a transaction."""

    id: str
    lease: str


class Asked(NamedTuple):
    path: str
    body: bytes


def asked(route: Route, made: Made) -> Asked:
    id = made.id
    names = {"topic": "orders", "group": "g", "id": id, "token": made.lease, "name": "n", "namespace": "team"}
    path = route.path
    for name in [part[1:-1] for part in path.split("/") if part.startswith("{")]:
        path = path.replace("{" + name + "}", names.get(name, "tx"))
    bodies: dict[str, Any] = {
        "/enqueue": [{"namespace": "team", "topic": "orders", "payload": ""}],
        "/ack": {"namespace": "team", "topic": "orders", "id": int(id)},
        "/nack": {"namespace": "team", "topic": "orders", "id": int(id)},
        "/v1/messages": {"messages": [{"topic": "orders", "payload": "x"}]},
        "/v1/receive": {"topics": ["orders"]},
        "/": {"QueueUrl": "http://localhost/team/orders", "MessageBody": "x"},
    }
    settles = {f"/v1/leases/{{token}}/{verb}": {} for verb in ("ack", "nack", "reject", "release")}
    bodies |= {**settles, "/v1/leases/{token}/extend": {"visibility": "1h"}}
    body = bodies.get(route.path, example_of(route.takes) if route.takes is not None else None)
    query = "namespace=team&topic=orders&part=p" if route.place == "inside" else "namespace=team"
    return Asked(f"{path}?{query}", b"" if body is None else json.dumps(body).encode())


def status(connection: http.client.HTTPConnection, route: Route, made: Made, headers: dict[str, str]) -> int:
    """Only the status: some answers have no end."""
    path, body = asked(route, made)
    if route.path == "/":
        headers = {**headers, "X-Amz-Target": "AmazonSQS.SendMessage"}
    try:
        connection.request(route.method, path, body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def mismatches(call: Callable[[Route, Grants | None], int]) -> Iterator[str]:
    """What is not as it should be. Those who may come last: they may delete things."""
    for route in ROUTES:
        name = f"{route.method} {route.path}"
        if (found := call(route, None)) != (403 if route.path == "/" else 401):  # SQS knows no 401
            yield f"{name}: nobody gets {found}"
        for what, grants in wrongs(route).items():
            if (found := call(route, grants)) != 403:
                yield f"{name}: {what} gets {found}"
    for route in ROUTES:
        if (found := call(route, right(route))) in (401, 403) or found >= 500:
            yield f"{route.method} {route.path}: {right(route)} gets {found}"


def prepared(ask: Asking) -> Made:
    """Things that strangers could be after."""
    answers = [
        ask("POST", "/v1/topics/orders/messages?namespace=team", {"messages": [{"payload": "x", "delay": "1h"}]}),
        ask("POST", "/v1/topics/orders/messages?namespace=team", {"messages": [{"payload": "y"}]}),
        ask("POST", "/v1/topics/orders/receive?namespace=team", {"visibility": "1h"}),
        ask("POST", "/v1/transactions/tx/stage?namespace=team&topic=orders", {"messages": [{"payload": "z"}]}),
    ]
    assert [answer.status for answer in answers] == [200] * 4, answers
    return Made(answers[0].json["receipts"][0]["id"], answers[2].json["lease"])


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningServer]:
    with RunningServer(Config(security=security())) as server:
        yield server


def test_the_rights_of_tokens(guarded: RunningServer) -> None:
    made = prepared(Asking(guarded.url, Authorization=f"Bearer {token('admin:*')}"))

    def call(route: Route, grants: Grants | None) -> int:
        headers = {} if grants is None else {"Authorization": f"Bearer {token(*grants)}"}
        return status(http.client.HTTPConnection(urlsplit(guarded.url).netloc, timeout=120), route, made, headers)

    assert list(mismatches(call)) == []


def test_the_rights_of_keys() -> None:
    with RunningServer(Config(security=security())) as server:
        admin = Asking(server.url, Authorization=f"Bearer {token('admin:*')}")
        made = prepared(admin)
        given: dict[Grants, str] = {}

        def key(grants: Grants) -> str:
            if grants not in given:
                body = {"name": f"key-{len(given)}", "scopes": list(grants)}
                given[grants] = admin("POST", "/v1/keys", body).json["key"]
            return given[grants]

        def call(route: Route, grants: Grants | None) -> int:
            headers = {} if grants is None else {"X-Api-Key": key(grants)}
            return status(http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=120), route, made, headers)

        assert list(mismatches(call)) == []


def test_the_rights_of_certificates(tmp_path: Path) -> None:
    """Everybody shows a certificate; nobody in particular one that has no grants."""
    every = {grants for route in ROUTES for grants in (right(route), *wrongs(route).values())}
    names = {grants: f"client-{number}.example" for number, grants in enumerate(sorted(every))}
    clients = {f"dns:{name}": grants for grants, name in names.items()}
    pairs = {grants: CA.issue(names=[x509.DNSName(name)]) for grants, name in names.items()}
    contexts: dict[Grants | None, ssl.SSLContext] = {
        grants: client_context(SERVER.certificate, pair) for grants, pair in pairs.items()
    }
    contexts[None] = client_context(SERVER.certificate, CA.issue(names=[x509.DNSName("stranger.example")]))
    with RunningServer(Config(security=security(tls=tls_files(tmp_path, clients)))) as server:
        place = urlsplit(server.url).netloc
        bearer = {"Authorization": f"Bearer {token('admin:*')}"}
        made = prepared(Asking(server.url, contexts[None], **bearer))

        def call(route: Route, grants: Grants | None) -> int:
            connection = http.client.HTTPSConnection(place, timeout=DEADLINE_SECONDS, context=contexts[grants])
            return status(connection, route, made, {})

        assert list(mismatches(call)) == []


def tls_files(place: Path, clients: dict[str, Grants]) -> Tls:
    write_pair(SERVER, place)
    (place / "ca.pem").write_bytes(CA.pem)
    return Tls(str(place / "tls.crt"), str(place / "tls.key"), client_ca_file=str(place / "ca.pem"), clients=clients)


# The door


def test_forged_tokens_get_one_answer() -> None:
    """The whole corpus, as far as it fits into a header."""
    jwt = Jwt(Secret(forged.SECRET.decode()), issuer=forged.ISS, audience=forged.AUD, algorithms=("HS256",))
    with RunningServer(Config(security=Security(auth=("jwt",), jwt=jwt)), ManualClock(rfc3339(forged.NOW))) as server:
        connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=DEADLINE_SECONDS)

        def answer(text: str) -> tuple[int, bytes]:
            connection.request("GET", "/v1/topics?namespace=a", headers={"Authorization": f"Bearer {text}"})
            found = connection.getresponse()
            return found.status, found.read()

        assert answer(forged.forge())[0] == 200
        sent = 0
        for name, text in forged.ATTACKS.items():
            if text.isascii() and text.isprintable() and text.strip() != forged.forge() and len(text) < 50_000:
                code, body = answer(text)
                assert (code, json.loads(body)["error"]["message"]) == (401, UNIFORM), name
                sent += 1
        assert sent > 150
        connection.close()


def test_a_refusal_tells_how_to_come_in_and_nothing_else(guarded: RunningServer) -> None:
    answer = Asking(guarded.url)("GET", "/v1/topics")
    assert (answer.status, answer.error) == (401, "unauthorized")
    assert answer.headers["www-authenticate"] == 'Bearer realm="mqueue"'
    assert answer.json["error"]["message"] == UNIFORM


def test_a_websocket_passes_the_same_door(guarded: RunningServer) -> None:
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec_WebSocket_Version": "13",
               "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ=="}  # fmt: skip
    path = "/v1/topics/orders/stream?namespace=team"
    assert Asking(guarded.url)("GET", path, **upgrade).status == 401
    wrong = Asking(guarded.url, Authorization=f"Bearer {token('read:other')}")
    assert wrong("GET", path, **upgrade).status == 403


def test_revoking_a_key_counts_from_the_next_call_on(guarded: RunningServer) -> None:
    admin = Asking(guarded.url, Authorization=f"Bearer {token('admin:*')}")
    key = admin("POST", "/v1/keys", {"name": "short-lived", "scopes": ["read:team"]}).json["key"]
    ask = Asking(guarded.url, X_Api_Key=key)
    assert ask("GET", "/v1/topics?namespace=team").status == 200
    assert admin("DELETE", "/v1/keys/short-lived").status == 204
    assert ask("GET", "/v1/topics?namespace=team").status == 401
    assert admin("POST", "/v1/keys", {"name": "short-lived", "scopes": ["read:team"]}).status == 409


def test_a_rate_limit_counts_the_address_that_nobody_can_choose() -> None:
    clock = ManualClock()
    limited = Security(rate_limit=RateLimit(per_second=1, burst=3))
    with RunningServer(Config(security=limited), clock) as server:
        ask = Asking(server.url)
        for number in range(3):
            assert ask("GET", "/v1/topics", X_Forwarded_For=f"192.0.2.{number}").status == 200
        refused = ask("GET", "/v1/topics", X_Forwarded_For="192.0.2.9")
        assert (refused.status, refused.error, refused.headers["retry-after"]) == (429, "rate_limited", "1")
        assert ask("GET", "/health").status == 200
        clock.advance("1s")
        assert ask("GET", "/v1/topics").status == 200


def test_a_proxy_of_ours_says_for_whom_it_calls() -> None:
    limited = Security(rate_limit=RateLimit(per_second=1, burst=1), trusted_proxies=("127.0.0.0/8",))
    with RunningServer(Config(security=limited), ManualClock()) as server:
        ask = Asking(server.url)
        assert ask("GET", "/v1/topics", X_Forwarded_For="192.0.2.1").status == 200
        assert ask("GET", "/v1/topics", X_Forwarded_For="192.0.2.2").status == 200
        assert ask("GET", "/v1/topics", X_Forwarded_For="198.51.100.7, 192.0.2.1").status == 429


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_a_public_address_takes_a_lock(host: str) -> None:
    serving = Serving(Config(server=Server(http=Address(host, 0))))
    with pytest.raises(BadSetting, match="authentication and TLS"):
        serving.start().send(None)
