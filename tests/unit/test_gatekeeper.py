"""The door: which proof counts, whom a refusal is put down to, and what is written about it."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from cryptography import x509

from mqueue.model.errors import QuotaExceeded
from mqueue.server.security.audit import Audit
from mqueue.server.security.gatekeeper import ANYBODY, REFUSALS_BURST, Gatekeeper, Rules
from mqueue.server.security.keys import Keys
from mqueue.server.security.peers import Proxies, RateLimit
from mqueue.server.security.principal import UNIFORM, Rejected
from mqueue.server.security.signing import key_from_secret
from mqueue.server.security.tokens import Verifier, issue
from tests.unit.forged import AUD, ISS, NOW, SECRET
from tests.unit.test_security_tls import CA, der

KEYS = Keys(b"pepper-pepper-pepper-pepper-pepper")
KEY = KEYS.add("billing", ["write:a"], now=NOW, entropy=b"k" * 32)
TOKENS = Verifier([key_from_secret(SECRET)], ISS, AUD)
TOKEN = issue(SECRET, "HS256", subject="svc", scopes=["read:a"], issuer=ISS, audience=AUD, now=NOW)


def certificate(name: str) -> bytes:
    return der(CA.issue(names=[x509.DNSName(name)]))


CERTIFICATE = certificate("a.example")
BOTH = Rules(TOKENS, KEYS, {"dns:a.example": ("read:a",)})


class Door:
    """A gatekeeper, and what it wrote."""

    def __init__(self, rules: Rules) -> None:
        self.lines: list[str] = []
        self.keeper = Gatekeeper(rules, Audit(self.lines.append))

    def caller(self, headers: Mapping[str, str], certificate: bytes | None = None, peer: str = "192.0.2.1"):
        return self.keeper.caller(headers, peer, certificate, NOW)

    def why(self) -> str:
        return json.loads(self.lines[-1])["why"]


@pytest.mark.parametrize(
    ("headers", "certificate", "subject", "via"),
    [
        ({"authorization": f"Bearer {TOKEN}"}, None, "svc", "token"),
        ({"authorization": f"bearer {TOKEN}"}, None, "svc", "token"),
        ({"authorization": f"Bearer {KEY}"}, None, "billing", "key"),
        ({"x-api-key": KEY}, None, "billing", "key"),
        ({}, CERTIFICATE, "dns:a.example", "certificate"),
        ({"x-api-key": KEY}, CERTIFICATE, "billing", "key"),
    ],
)
def test_each_proof_tells_who_is_calling(headers, certificate, subject: str, via: str) -> None:
    found = Door(BOTH).caller(headers, certificate)
    assert (found.subject, found.via) == (subject, via)


@pytest.mark.parametrize(
    ("rules", "headers", "certificate", "why"),
    [
        (BOTH, {}, None, "no credentials"),
        (BOTH, {"authorization": f"Basic {TOKEN}"}, None, "not a bearer"),
        (BOTH, {"authorization": f"Bearer {TOKEN}", "x-api-key": KEY}, None, "two credentials"),
        (BOTH, {"authorization": f"Bearer {TOKEN}, Bearer {TOKEN}"}, None, "not three parts"),
        (BOTH, {"authorization": "Bearer "}, CERTIFICATE, "not three parts"),
        (BOTH, {"x-api-key": KEY[:-1] + "0"}, CERTIFICATE, "not a key"),
        (BOTH, {}, certificate("b.example"), "certificate with no known name"),
        (Rules(tokens=TOKENS), {"x-api-key": KEY}, None, "keys are not taken"),
        (Rules(keys=KEYS), {"authorization": f"Bearer {TOKEN}"}, None, "tokens are not taken"),
        (Rules(keys=KEYS), {}, CERTIFICATE, "no credentials"),
        (Rules(), {}, None, "no credentials"),
    ],
)
def test_a_stranger_learns_one_sentence_and_the_audit_the_reason(rules, headers, certificate, why: str) -> None:
    door = Door(rules)
    with pytest.raises(Rejected, match=UNIFORM) as caught:
        door.caller(headers, certificate)
    assert caught.value.message == UNIFORM
    assert door.why() == why
    assert json.loads(door.lines[-1])["peer"] == "192.0.2.1"
    assert not any(secret in line for line in door.lines for secret in (TOKEN, KEY))
    assert door.keeper.refusals.unauthorized == 1


def test_where_anybody_is_let_in_everybody_may_do_everything() -> None:
    found = Door(Rules(anybody=True)).caller({"authorization": "Bearer nonsense"})
    assert found is ANYBODY
    assert found.allows("manage", "*")


def test_new_rules_count_from_the_next_call_on() -> None:
    door = Door(BOTH)
    assert door.caller({}, CERTIFICATE).allows("read", "a")
    door.keeper.rules = Rules(TOKENS, KEYS, {"dns:a.example": ("read:b",)})
    assert not door.caller({}, CERTIFICATE).allows("read", "a")
    door.keeper.rules = Rules(TOKENS)
    with pytest.raises(Rejected):
        door.caller({}, CERTIFICATE)


def test_who_is_counted_cannot_be_chosen_by_a_header() -> None:
    door = Door(Rules(rate=RateLimit(1, 2), proxies=Proxies(["10.0.0.0/8"]), anybody=True))
    for spoofed in range(2):
        headers = {"x-forwarded-for": f"198.51.100.{spoofed}"}
        door.caller(headers, peer=door.keeper.peer(headers, "192.0.2.1"))
    headers = {"x-forwarded-for": "198.51.100.9"}
    with pytest.raises(QuotaExceeded):
        door.caller(headers, peer=door.keeper.peer(headers, "192.0.2.1"))
    assert door.keeper.refusals.rate_limited == 1
    assert door.keeper.peer({"x-forwarded-for": "203.0.113.1, 198.51.100.9"}, "10.0.0.1") == "198.51.100.9"


def test_strangers_do_not_fill_the_audit_log() -> None:
    door = Door(BOTH)
    for _ in range(REFUSALS_BURST + 50):
        with pytest.raises(Rejected):
            door.caller({})
    assert len(door.lines) == REFUSALS_BURST
    with pytest.raises(Rejected):
        door.keeper.caller({}, "192.0.2.1", None, NOW + 1000)
    assert json.loads(door.lines[-2])["why"] == "50 refusals were not written down"


def test_what_was_managed_is_always_written_down() -> None:
    door = Door(BOTH)
    principal = door.caller({"x-api-key": KEY})
    door.keeper.refused(principal, "DELETE /v1/topics/{topic}", "192.0.2.1", NOW, "a", "orders")
    for _ in range(2 * REFUSALS_BURST):
        door.keeper.changed(principal, "PUT /v1/quotas/{namespace}", "192.0.2.1", NOW, "a", "")
    assert len(door.lines) == 2 * REFUSALS_BURST + 1
    first = json.loads(door.lines[0])
    assert first == {
        "at": NOW,
        "who": "billing",
        "what": "DELETE /v1/topics/{topic}",
        "outcome": "refused",
        "namespace": "a",
        "topic": "orders",
        "peer": "192.0.2.1",
        "via": "key",
    }
    assert json.loads(door.lines[-1])["outcome"] == "changed"
