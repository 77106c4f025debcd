"""Tokens: the good ones pass, and a corpus of attacks does not, each with the same sentence."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from mqueue.model.errors import BadSetting, Refused, Unauthorized
from mqueue.server.security import tokens
from mqueue.server.security.claims import TOKEN_BYTES_MAX
from mqueue.server.security.denied import Denied
from mqueue.server.security.principal import UNIFORM, Principal, Rejected
from mqueue.server.security.signing import key_from_pem, key_from_secret, keys_from_jwks
from mqueue.server.security.tokens import KEYS_MAX, Verifier, issue

NOW = 1_768_402_800_000
SECOND = NOW // 1000
SECRET = b"0123456789abcdefghijklmnopqrstuv"
OTHER = b"another-secret-of-enough-length-0"
ISS, AUD = "https://issuer.example", "mqueue"
GOOD: dict[str, Any] = {
    "iss": ISS,
    "aud": AUD,
    "sub": "svc",
    "scope": "read:a",
    "iat": SECOND,
    "exp": SECOND + 60,
}


@cache
def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


@cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@cache
def verifiers() -> dict[str, Verifier]:
    return {
        "HS256": Verifier([key_from_secret(SECRET, "k1")], ISS, AUD, leeway_seconds=30),
        "RS256": Verifier([key_from_pem(pem(rsa_key()), "k1")], ISS, AUD, leeway_seconds=30),
        "ES256": Verifier([key_from_pem(pem(ec_key()), "k1")], ISS, AUD, leeway_seconds=30),
    }


def b64(data: bytes | str) -> str:
    return base64.urlsafe_b64encode(data.encode() if isinstance(data, str) else data).rstrip(b"=").decode()


def forge(
    claims: dict[str, Any] | str | bytes = GOOD, header: dict[str, Any] | str | bytes | None = None, key: bytes = SECRET
) -> str:
    """Any header over any claims, signed with HMAC: what an attacker who has a weak spot to try can send."""
    top = {"alg": "HS256", "typ": "JWT"} if header is None else header
    parts = [b64(json.dumps(part) if isinstance(part, dict) else part) for part in (top, claims)]
    signature = hmac.new(key, ".".join(parts).encode(), hashlib.sha256).digest()
    return ".".join([*parts, b64(signature)])


def claims(**changes: Any) -> dict[str, Any]:
    """The good claims with some changed; a value of None takes one out."""
    return {name: value for name, value in (GOOD | changes).items() if value is not None}


def header(**changes: Any) -> dict[str, Any]:
    return {"alg": "HS256", "typ": "JWT"} | changes


def raw(text: str) -> str:
    """Claims as text, where a dictionary cannot say it."""
    return json.dumps(GOOD)[:-1] + "," + text + "}"


def unsigned(alg: str) -> str:
    return f"{b64(json.dumps({'alg': alg}))}.{b64(json.dumps(GOOD))}."


def spelled_otherwise() -> str:
    """The same bytes with stray bits in the last letter of the signature."""
    token = forge()
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return token[:-1] + letters[letters.index(token[-1]) | 1]


Corpus = dict[str, str]


def each(what: str, values: Iterable[Any], token: Callable[[Any], str]) -> Corpus:
    """One token for each value, named for what is wrong with it."""
    return {f"{what} {value!a:.30} {type(value).__name__}": token(value) for value in values}


def on_the_algorithm() -> Corpus:
    public = pem(rsa_key())
    texts = ("none", "HS384", "HS512", "hs256", "RS256", "ES256", "PS256", "EdDSA", " HS256", "HS256\0", "")
    others = (None, 1, True, ["HS256"], {"HS256": 1})
    return {
        **each("unsigned", ("none", "None", "nOnE", "NONE", "", "HS256", "null"), unsigned),
        **each("alg", (*texts, *others), lambda alg: forge(header=header(alg=alg))),
        **each("key", (public, public.strip(), b"", OTHER, SECRET + b"\n"), lambda key: forge(key=key)),
        "no alg": forge(header={"typ": "JWT"}),
        "duplicate alg": forge(header='{"alg":"none","alg":"HS256"}'),
    }


def on_times() -> Corpus:
    no_times = ("1", "", True, False, [], {}, [SECOND + 60], 0, -1, -1e300, 1e300, 10**30, 10**400, 0.0)
    constants = ("NaN", "Infinity", "-Infinity", "1e999", "null", "01", "0x7fffffff", "9" * 5000)
    text = json.dumps(GOOD)
    return {
        **each("exp", no_times, lambda value: forge(claims(exp=value))),
        **each("exp as it stands", constants, lambda word: forge(text.replace(str(GOOD["exp"]), word))),
        **each("iat", (*no_times, SECOND + 31, SECOND + 10**8), lambda value: forge(claims(iat=value))),
        **each("iat as it stands", constants, lambda word: forge(text.replace(f"{SECOND},", f"{word},"))),
        **each("nbf", ("0", True, -1, SECOND + 31), lambda value: forge(claims(nbf=value))),
        **each("expired", (SECOND - 31, SECOND - 30), lambda value: forge(claims(iat=SECOND - 100, exp=value))),
        **each("lives too long", (86_401, 10**7), lambda value: forge(claims(exp=SECOND + value))),
        "ends before it begins": forge(claims(iat=SECOND + 20, exp=SECOND + 10)),
    }


def on_claims() -> Corpus:
    audiences = ("other", "", [], ["other"], "mqueue ", "MQUEUE", "mqueue,other", {"mqueue": 1}, 1, [AUD, 1], [[AUD]])
    issuers = ("", ISS + "/", ISS.upper(), [ISS], {"iss": ISS}, 1, ISS + "\0", ISS + ".evil")
    subjects = ("", 1, ["svc"], "svc\n", "svc\0", "ad\u202emin", "\u200bsvc", "\uff53vc", "\ud800", "s" * 256)
    scopes = ("read:team-a*", "read:", "admin:../x", 1, {"read": "a"}, [1], "read:a\u0430", "*:a/b*", "read:a:b")
    namespaces = ("../a", "..", 1, "a*", ["a", 2], "\u0430", "a/b", {"a": 1}, True)
    return {
        **each("no", ("exp", "iat", "aud", "iss", "sub"), lambda name: forge(claims(**{name: None}))),
        **each("aud", audiences, lambda value: forge(claims(aud=value))),
        **each("iss", issuers, lambda value: forge(claims(iss=value))),
        **each("sub", subjects, lambda value: forge(claims(sub=value))),
        **each("scope", scopes, lambda value: forge(claims(scope=value))),
        **each("namespace", namespaces, lambda value: forge(claims(namespace=value))),
        **each("jti", (1, "", [], "j" * 256), lambda value: forge(claims(jti=value))),
    }


def on_headers() -> Corpus:
    kids = (
        "../../../../dev/null",
        "/dev/null",
        "' OR 1=1 --",
        "k1\0",
        "\0",
        "",
        "K1",
        "k1 ",
        None,
        0,
        ["k1"],
        {"k1": 1},
    )
    own = {"kty": "oct", "k": b64(OTHER)}
    fetched = {"jku": "https://evil.example", "x5u": "https://evil.example", "jwk": own, "x5c": ["MII"]}
    rules = {"crit": ["exp"], "b64": False, "zip": "DEF", "enc": "A256GCM", "typ": "JWE"}
    return {
        **each("kid", kids, lambda kid: forge(header=header(kid=kid))),
        **each("header", [*fetched.items(), *rules.items()], lambda pair: forge(header=header(**dict([pair])))),
        **each("typ", (1, None, [], "none"), lambda typ: forge(header=header(typ=typ))),
        "kid of /dev/null and no secret": forge(header=header(kid="/dev/null"), key=b""),
        "jwk of the attacker": forge(header=header(jwk=own), key=OTHER),
        "jwk of the attacker, found by kid": forge(header=header(jwk=own, kid="k1"), key=OTHER),
    }


def on_json() -> Corpus:
    more = ('"sub": "admin"', f'"exp": {SECOND + 60}', '"s\\u0075b": "admin"', '"x": {"a":1,"a":2}')
    constants = ("NaN", "Infinity", "-Infinity")
    deep = ("[" * 9 + "]" * 9, "[" * 2000 + "]" * 2000, '{"a":' * 900 + "1" + "}" * 900, "[" * 3000)
    text = json.dumps(GOOD)
    broken = (
        "[]",
        "null",
        '"x"',
        "",
        "1",
        text[:-1],
        text + "{}",
        "\ufeff" + text,
        "/**/" + text,
        text.replace('"', "'"),
    )
    encoded = (b'{"sub": "\xff"}', b'{"sub": "\xc0\xaf"}', text.encode("utf-16"), text.encode("utf-32"))
    return {
        **each("twice", more, lambda word: forge(raw(word))),
        **each("constant", constants, lambda word: forge(raw(f'"x": {word}'))),
        **each("deep", deep, lambda word: forge(raw(f'"x": {word}'))),
        **each("claims", (*broken, *encoded), forge),
        **each("header", ("[]", "", "null", '{"alg":"HS256"', "{}"), lambda word: forge(header=word)),
    }


def on_the_envelope() -> Corpus:
    good, (top, body, signature) = forge(), forge().split(".")
    another = forge(claims(sub="admin")).split(".")
    parts = ("", ".", "..", f"{top}.{body}", good + ".", f"{good}.{signature}", f"{good}.a.b", f"{top}.{body}.")
    mixed = (f"{body}.{top}.{signature}", f".{body}.{signature}", f"{top}..{signature}")
    stolen = (f"{top}.{body}.{another[2]}", f"{top}.{another[1]}.{signature}")
    around = (
        " " + good,
        good + "\n",
        good + "\0",
        good + "=",
        "Bearer " + good,
        good + "+",
        good[:20] + "\n" + good[20:],
    )
    alike = ("\u0435" + good[1:], "\uff45" + good[1:], good + "\ud800", good.replace(".", "\u3002"))
    long = (forge(claims(x="x" * TOKEN_BYTES_MAX)), "." * 1_000_000, good + "A" * (TOKEN_BYTES_MAX + 1 - len(good)))
    found = (*parts, *mixed, *stolen, *around, *alike, *long, good.replace(".", "%2E"), spelled_otherwise())
    return {f"envelope {number} {token!a:.20}": token for number, token in enumerate(found)}


def attacks() -> Corpus:
    groups = (on_the_algorithm(), on_times(), on_claims(), on_headers(), on_json(), on_the_envelope())
    return {name: token for group in groups for name, token in group.items()}


ATTACKS = attacks()


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
