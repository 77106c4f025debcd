"""Tokens: the good ones pass, and a corpus of attacks does not, each with the same sentence."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from mqueue.model.errors import BadSetting, Refused, Unauthorized
from mqueue.server.security import tokens
from mqueue.server.security.claims import TOKEN_BYTES_MAX
from mqueue.server.security.denied import Denied
from mqueue.server.security.principal import UNIFORM, Principal, Rejected
from mqueue.server.security.signing import key_from_pem, key_from_secret, keys_from_jwks
from mqueue.server.security.tokens import KEYS_MAX, Verifier, issue
from tests.unit.forged import (
    ATTACKS,
    AUD,
    ISS,
    NOW,
    OTHER,
    SECOND,
    SECRET,
    b64,
    claims,
    ec_key,
    forge,
    header,
    on_the_algorithm,
    pem,
    raw,
    rsa_key,
    verifiers,
)


def test_the_corpus_is_large_enough() -> None:
    assert len(ATTACKS) >= 150


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("algorithm", ["HS256", "RS256", "ES256"])
def test_an_attack_is_refused_with_the_one_sentence(name: str, algorithm: str) -> None:
    with pytest.raises(Unauthorized) as caught:
        verifiers()[algorithm].verify(ATTACKS[name], NOW)
    assert (str(caught.value), caught.value.code, caught.value.status) == (UNIFORM, "unauthorized", 401)
    assert isinstance(caught.value, Rejected)
    assert caught.value.why
    assert caught.value.__cause__ is None
    assert len(caught.value.why) < 60


def test_the_forger_can_make_good_tokens_too() -> None:
    """Or the corpus would prove nothing."""
    verifier = verifiers()["HS256"]
    for good in (
        forge(),
        forge(header=header(kid="k1")),
        forge(header={"alg": "HS256"}),
        forge(claims(aud=["x", AUD])),
    ):
        assert verifier.verify(good, NOW).subject == "svc"
    assert verifier.verify(forge(claims(exp=SECOND + 86_400)), NOW).subject == "svc"
    assert verifier.verify(forge(raw('"x": ' + "[" * 7 + "]" * 7)), NOW).subject == "svc"
    assert verifier.verify(forge(claims(exp=SECOND + 60.5)), NOW).subject == "svc"


@pytest.mark.parametrize("algorithm", ["HS256", "RS256", "ES256"])
def test_every_flipped_bit_is_noticed(algorithm: str) -> None:
    token = good_tokens()[algorithm]
    for place in range(len(token)):
        for bit in (1, 2, 16):
            changed = token[:place] + chr(ord(token[place]) ^ bit) + token[place + 1 :]
            with pytest.raises(Rejected):
                verifiers()[algorithm].verify(changed, NOW)


@pytest.mark.parametrize("algorithm", ["HS256", "RS256", "ES256"])
def test_every_cut_token_is_refused(algorithm: str) -> None:
    token = good_tokens()[algorithm]
    for length in range(len(token)):
        with pytest.raises(Rejected):
            verifiers()[algorithm].verify(token[:length], NOW)


@cache
def good_tokens() -> dict[str, str]:
    materials: dict[Any, Any] = {"HS256": SECRET, "RS256": rsa_key(), "ES256": ec_key()}
    return {
        name: issue(
            material, name, subject="svc", scopes=["read:a", "write:b"], issuer=ISS, audience=AUD, now=NOW, kid="k1"
        )
        for name, material in materials.items()
    }


@pytest.mark.parametrize("algorithm", ["HS256", "RS256", "ES256"])
def test_an_issued_token_passes_where_it_belongs_and_nowhere_else(algorithm: str) -> None:
    token = good_tokens()[algorithm]
    who = verifiers()[algorithm].verify(token, NOW)
    assert (who.subject, who.via) == ("svc", "token")
    assert who.allows("read", "a")
    assert who.allows("publish", "b")
    assert not who.allows("publish", "a")
    for other, verifier in verifiers().items():
        if other != algorithm:
            with pytest.raises(Rejected):
                verifier.verify(token, NOW)


def test_the_longest_token_and_one_longer() -> None:
    padded = {len(token): token for pad in range(5990, 6010) for token in (long_token(pad, 0), long_token(pad, 1))}
    assert verifiers()["HS256"].verify(padded[TOKEN_BYTES_MAX], NOW)
    with pytest.raises(Rejected):
        verifiers()["HS256"].verify(padded[TOKEN_BYTES_MAX + 1], NOW)


def long_token(claims_pad: int, header_pad: int) -> str:
    """To the byte: base64 leaves out every fourth length, so both parts are padded."""
    short = len(forge(claims(x=""), header(cty="")))
    pad = (TOKEN_BYTES_MAX - short) * 3 // 4 + claims_pad - 6000
    return forge(claims(x="x" * pad), header(cty="x" * header_pad))


def test_the_clock_decides_to_the_millisecond() -> None:
    verifier = Verifier([key_from_secret(SECRET)], ISS, AUD, leeway_seconds=5)
    token = forge()
    assert verifier.verify(token, NOW + 64_999)
    assert verifier.verify(token, NOW - 5_000)
    for now in (NOW + 65_000, NOW + 10**12, NOW - 5_001, 0):
        with pytest.raises(Rejected):
            verifier.verify(token, now)
    assert verifier.verify(token, NOW), "a clock that came back finds the token alive again"


def test_what_is_remembered_is_bounded_and_holds_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "PROVEN_MAX", 3)
    verifier = Verifier([key_from_secret(SECRET)], ISS, AUD)
    made = [forge(claims(sub=f"svc{number}")) for number in range(10)]
    for token in made * 2:
        assert verifier.verify(token, NOW)
        assert len(verifier._proven) <= 3
    before = set(verifier._proven)
    for attack in on_the_algorithm().values():
        with pytest.raises(Rejected):
            verifier.verify(attack, NOW)
    assert set(verifier._proven) == before, "a stranger pushes nothing out"
    assert not any(token.encode() in repr(verifier._proven).encode() for token in made)


def test_a_rotation_has_two_keys_for_a_while() -> None:
    old, new = key_from_secret(SECRET, "old"), key_from_secret(OTHER, "new")
    both, after = Verifier([old, new], ISS, AUD), Verifier([new], ISS, AUD)
    by_old, by_new = forge(header=header(kid="old")), forge(header=header(kid="new"), key=OTHER)
    assert both.verify(by_old, NOW)
    assert both.verify(by_new, NOW)
    assert both.verify(forge(), NOW), "without a kid every key is tried"
    assert after.verify(by_new, NOW)
    for verifier, token in ((after, by_old), (both, forge(header=header(kid="new"))), (after, forge())):
        with pytest.raises(Rejected):
            verifier.verify(token, NOW)


def rights(**changes: Any) -> Principal:
    return verifiers()["HS256"].verify(forge(claims(scope=None, **changes)), NOW)


def test_claim_shapes_of_others_are_understood() -> None:
    one = rights(namespace="tenant-a")
    assert one.allows("publish", "tenant-a")
    assert one.allows("receive", "tenant-a")
    assert not one.allows("manage", "tenant-a")
    assert not one.allows("publish", "tenant-ab")
    many = rights(namespaces=["a", "b"], scopes=["read"])
    assert many.allows("read", "a")
    assert many.allows("read", "b")
    assert not many.allows("publish", "a")
    assert rights(namespace="*", scp="admin").allows("manage", "x")
    assert rights(scopes=["write:a/t"]).allows("publish", "a", "t")


def test_words_of_other_systems_give_nothing() -> None:
    assert rights().grants == ()
    assert rights(scp="openid profile https://x.example/read").grants == ()
    assert rights(scp="openid", namespace="a").grants == ()
    assert rights(scp="read write").grants == (), "bare words without a namespace"


def test_denied_tokens_stay_denied() -> None:
    denied = Denied()
    verifier = Verifier([key_from_secret(SECRET)], ISS, AUD, denied=denied)
    token, other, nameless = forge(claims(jti="a")), forge(claims(jti="b")), forge()
    denied.deny("a", NOW + 90_000, NOW)
    for now in (NOW, NOW - 1, NOW + 89_999):
        with pytest.raises(Rejected) as caught:
            verifier.verify(token, now)
        assert caught.value.message == UNIFORM
    assert verifier.verify(other, NOW)
    again = Verifier([key_from_secret(SECRET)], ISS, AUD, denied=Denied(denied.entries()))
    with pytest.raises(Rejected):
        again.verify(token, NOW)
    denied.deny_issued_before(NOW + 1)
    denied.deny_issued_before(0)
    for each in (other, nameless):
        with pytest.raises(Rejected):
            verifier.verify(each, NOW)


def test_the_denied_are_bounded_and_never_forgotten_early() -> None:
    denied = Denied(size_max=3)
    for number in range(3):
        denied.deny(f"t{number}", NOW + number, NOW - 1)
    with pytest.raises(Refused):
        denied.deny("t3", NOW + 9, NOW - 1)
    assert denied.denies("t0", NOW)
    denied.deny("t3", NOW + 9, NOW)
    assert (len(denied), denied.denies("t0", NOW), denied.denies("t3", NOW)) == (3, False, True)
    with pytest.raises(Refused):
        denied.deny("", NOW, NOW)


@pytest.mark.parametrize(
    "secret", [b"", b"abc", "secret", bytes(range(31)), b"x" * 31, b"x" * 64, "secret" * 8, b"\0" * 32]
)
def test_weak_secrets_are_refused(secret: bytes | str) -> None:
    with pytest.raises(BadSetting):
        key_from_secret(secret)


def test_keys_of_the_wrong_kind_are_refused() -> None:
    private = rsa_key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    weak = rsa.generate_private_key(65537, 1024)
    curve = ec.generate_private_key(ec.SECP384R1())
    for text in (private, pem(weak), pem(curve), b"", b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"):
        with pytest.raises(BadSetting):
            key_from_pem(text)
    with pytest.raises(BadSetting, match="private key was given"):
        key_from_pem(private)
    with pytest.raises(BadSetting, match="is a private key"):
        keys_from_jwks(json.dumps({"keys": [jwk(rsa_key())]}).encode())
    with pytest.raises(BadSetting):
        key_from_secret(pem(rsa_key()))
    with pytest.raises(BadSetting):
        key_from_secret(SECRET, "")


def test_a_verifier_that_would_be_weak_is_not_made() -> None:
    secret, public = key_from_secret(SECRET), key_from_pem(pem(rsa_key()))
    good: dict[str, Any] = {"keys": [secret], "issuer": ISS, "audience": AUD}
    bad: list[dict[str, Any]] = [
        {"keys": []},
        {"keys": [secret, public]},
        {"keys": [secret] * (KEYS_MAX + 1)},
        {"issuer": ""},
    ]
    bad += [{"audience": ""}, {"leeway_seconds": 31}, {"leeway_seconds": -1}, {"lifetime_seconds_max": 86_401}]
    bad += [{"lifetime_seconds_max": 0}, {"algorithms": ["RS256"]}, {"algorithms": []}]
    bad += [{"keys": [key_from_secret(SECRET, "k"), key_from_secret(OTHER, "k")]}]
    Verifier(**good)
    for change in bad:
        with pytest.raises(BadSetting):
            Verifier(**(good | change))


def jwk(key: Any, **changes: Any) -> dict[str, Any]:
    kind = (
        jwt.algorithms.RSAAlgorithm
        if isinstance(key, rsa.RSAPrivateKey | rsa.RSAPublicKey)
        else jwt.algorithms.ECAlgorithm
    )
    return kind.to_jwk(key, as_dict=True) | changes


def test_keys_come_from_a_jwks_document() -> None:
    document = {
        "keys": [jwk(rsa_key().public_key(), kid="r"), jwk(ec_key().public_key(), kid="e", use="sig", alg="ES256")]
    }
    document["keys"].append({"kty": "OKP", "use": "enc"})
    keys = keys_from_jwks(json.dumps(document).encode())
    assert [(key.kid, key.algorithm) for key in keys] == [("r", "RS256"), ("e", "ES256")]
    verifier = Verifier(keys, ISS, AUD)
    args: dict[str, Any] = {"subject": "svc", "scopes": [], "issuer": ISS, "audience": AUD, "now": NOW}
    assert verifier.verify(issue(rsa_key(), "RS256", kid="r", **args), NOW)
    assert verifier.verify(issue(ec_key(), "ES256", kid="e", **args), NOW)
    with pytest.raises(Rejected):
        verifier.verify(issue(ec_key(), "ES256", kid="r", **args), NOW)
    shared = keys_from_jwks(json.dumps({"keys": [{"kty": "oct", "k": b64(SECRET), "kid": "s"}]}).encode())
    assert Verifier(shared, ISS, AUD).verify(forge(header=header(kid="s")), NOW)


def test_a_bad_jwks_document_is_refused_as_a_whole() -> None:
    good = jwk(rsa_key().public_key(), kid="r")
    bad: list[Any] = [
        {},
        [],
        {"keys": []},
        {"keys": {}},
        {"keys": [1]},
        {"keys": [{"kty": "RSA"}]},
        {"keys": [good, {}]},
    ]
    bad += [{"keys": [jwk(rsa_key())]}, {"keys": [good | {"alg": "RS512"}]}, {"keys": [good | {"alg": "none"}]}]
    bad += [
        {"keys": [{"kty": "oct", "k": b64(b"short")}]},
        {"keys": [good | {"kid": 1}]},
        {"keys": [good | {"use": "enc"}]},
    ]
    for document in (*(json.dumps(each).encode() for each in bad), b"", b"\xff", b"[" * 100_000):
        with pytest.raises(BadSetting):
            keys_from_jwks(document)


def test_a_key_does_not_show_itself() -> None:
    assert SECRET.decode() not in repr(key_from_secret(SECRET, "k1"))
