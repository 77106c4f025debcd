"""Signatures: what botocore signs is believed, and nothing else is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from mqueue.server.security.principal import Rejected, Untimely
from mqueue.server.security.sigv4 import Claim

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
BODY = b'{"QueueUrl":"x"}'


def signed(path: str = "/", body: bytes = BODY, **headers: str) -> dict[str, str]:
    """The headers of a request as botocore signs it, with lower-case names."""
    asked = AWSRequest("POST", f"http://localhost:8080{path}", data=body, headers={"Host": "localhost:8080", **headers})
    SigV4Auth(Credentials("shop", SECRET), "sqs", "eu-central-1").add_auth(asked)
    return {name.lower(): value for name, value in asked.headers.items()}


def now() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


def holds(headers: dict[str, str], secret: str = SECRET, path: str = "/", body: bytes = BODY) -> bool:
    return Claim.of(headers, now()).holds(secret, "POST", path, headers, body)


@pytest.mark.parametrize("path", ["/", "/?b=2&a=1", "/?a=x%20y&a=%2F&empty="])
@pytest.mark.parametrize("more", [{}, {"X-Amz-Target": "AmazonSQS.SendMessage", "X-Odd": "  two   words "}])
def test_what_is_signed_holds(path: str, more: dict[str, str]) -> None:
    headers = signed(path, **more)
    claim = Claim.of(headers, now())
    assert (claim.key, claim.region, claim.service) == ("shop", "eu-central-1", "sqs")
    assert holds(headers, path=path)


def test_nothing_of_it_may_be_changed() -> None:
    headers = signed(**{"X-Amz-Target": "AmazonSQS.SendMessage"})
    assert holds(headers)
    assert not holds(headers, secret=SECRET + "x")
    assert not holds(headers, body=BODY + b" ")
    assert not holds(headers, path="/?a=b")
    assert not holds({**headers, "x-amz-target": "AmazonSQS.DeleteQueue"})
    assert not holds({**headers, "host": "elsewhere"})
    authorization = headers["authorization"]
    assert not holds({**headers, "authorization": authorization[:-1] + ("0" if authorization[-1] != "0" else "1")})
    assert not holds({**headers, "authorization": authorization + "ü"})


@pytest.mark.parametrize(
    "change",
    [
        {"authorization": "AWS4-HMAC-SHA256"},
        {"authorization": "Bearer x"},
        {"authorization": "AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host;x-amz-date, Signature=x"},
        {"x-amz-date": ""},
        {"x-amz-date": "20260101T000000Z"},
        {"x-amz-date": "soon"},
    ],
)
def test_what_nobody_signs_is_rejected(change: dict[str, Any]) -> None:
    with pytest.raises(Rejected):
        Claim.of({**signed(), **change}, now())


def test_the_host_and_the_time_have_to_be_signed() -> None:
    headers = signed()
    for name in ("host", "x-amz-date"):
        rest = headers["authorization"].replace(f"{name};", "").replace(f";{name}", "")
        with pytest.raises(Rejected):
            Claim.of({**headers, "authorization": rest}, now())


def test_an_old_signature_is_worth_nothing() -> None:
    headers = signed()
    Claim.of(headers, now() + 14 * 60_000)
    for minutes in (16, -16):
        with pytest.raises(Untimely, match="clocks may differ by 15 minutes"):
            Claim.of(headers, now() + minutes * 60_000)
