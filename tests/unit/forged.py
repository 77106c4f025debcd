"""Tokens that nobody may get in with, and the keys and claims of those who may."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from mqueue.server.security.claims import TOKEN_BYTES_MAX
from mqueue.server.security.signing import key_from_pem, key_from_secret
from mqueue.server.security.tokens import Verifier

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
