"""Who vouches for whom: what one node says of a caller is believed if it has the secret, and for a minute."""

from __future__ import annotations

import pytest

from mqueue.model.errors import BadSetting, Unauthorized
from mqueue.server.forwarding.voucher import FRESH_MS, NAMESPACE, PEER, PRINCIPAL, VOUCHED, Voucher
from mqueue.server.security.principal import Grant, Principal

SECRET = b"a secret that the nodes of a test share"
NOW = 1_800_000_000_000
BILLING = Principal("billing é ☃", (Grant("read", "tenant-a", "orders.*"), Grant("write", "*")), via="certificate")
ADMIN = Principal("root", (Grant("admin", "*"),))


def vouched(principal: Principal = BILLING, secret: bytes = SECRET, namespace: str = "tenant-a") -> dict[str, str]:
    headers = Voucher(secret, lambda: NOW).headers(principal, "10.1.2.3", namespace, "POST", "/v1/x?y=%20")
    return {**dict(headers), NAMESPACE: namespace}


def believed(headers: dict[str, str], method: str = "POST", target: str = "/v1/x?y=%20", now: int = NOW) -> object:
    return Voucher(SECRET, lambda: now).principal(headers, method, target)


def test_whom_a_node_vouches_for_is_who_he_is() -> None:
    assert believed(vouched()) == BILLING
    assert vouched()[PEER] == "10.1.2.3"
    assert all(value.isascii() and value.isprintable() for value in vouched().values())


def test_nobody_vouches_for_nobody() -> None:
    assert believed({}) is None
    assert believed({PRINCIPAL: vouched(ADMIN)[PRINCIPAL], PEER: "10.0.0.1"}) is None


@pytest.mark.parametrize("late", [-FRESH_MS, FRESH_MS])
def test_it_is_believed_for_a_minute(late: int) -> None:
    assert believed(vouched(), now=NOW + late) == BILLING
    with pytest.raises(Unauthorized):
        believed(vouched(), now=NOW + late + (1 if late > 0 else -1))


def test_another_secret_is_no_secret() -> None:
    with pytest.raises(Unauthorized):
        believed(vouched(secret=b"another secret that is long enough too"))


@pytest.mark.parametrize(
    "changed",
    [
        {PRINCIPAL: vouched(ADMIN)[PRINCIPAL]},
        {PRINCIPAL: ""},
        {PEER: "10.1.2.4"},
        {NAMESPACE: "tenant-b"},
        {VOUCHED: ""},
        {VOUCHED: "."},
        {VOUCHED: f"{NOW}.aa.{'0' * 64}"},
        {VOUCHED: f"{NOW}.aa.é"},
        {VOUCHED: vouched()[VOUCHED].replace(str(NOW), str(NOW + 1))},
        {VOUCHED: f"{vouched()[VOUCHED]}, {vouched()[VOUCHED]}"},
    ],
)
def test_what_was_changed_on_the_way_is_not_believed(changed: dict[str, str]) -> None:
    with pytest.raises(Unauthorized):
        believed({**vouched(), **changed})


@pytest.mark.parametrize(("method", "target"), [("DELETE", "/v1/x?y=%20"), ("POST", "/v1/x?y=+"), ("POST", "/v1/x")])
def test_nor_is_it_for_another_request(method: str, target: str) -> None:
    with pytest.raises(Unauthorized):
        believed(vouched(), method, target)


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(BadSetting, match="31 bytes"):
        Voucher(b"x" * 31, lambda: NOW)
