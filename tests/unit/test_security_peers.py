"""Peers: nobody chooses their own address, nobody gets more than their share, nothing is opened unasked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqueue.model.errors import BadSetting, QuotaExceeded
from mqueue.server.security.peers import Proxies, RateLimit, bind_allowed, check_bind, group

NOW = 1_768_402_800_000
OURS = Proxies(["10.0.0.0/8", "fd00::/8"])


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("203.0.113.9", ["1.1.1.1"], "203.0.113.9"),
        ("203.0.113.9", [], "203.0.113.9"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", ["1.1.1.1, 198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", ["1.1.1.1", "198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", ["10.9.9.9, 198.51.100.7, 10.0.0.2"], "198.51.100.7"),
        ("10.0.0.1", ["198.51.100.7, 10.0.0.3,10.0.0.2"], "198.51.100.7"),
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("10.0.0.1", ["198.51.100.7:4711"], "198.51.100.7"),
        ("10.0.0.1", ["[2001:db8::7]:4711"], "2001:db8::7"),
        ("10.0.0.1", ["2001:db8::7"], "2001:db8::7"),
        ("fd00::1", ["198.51.100.7"], "198.51.100.7"),
        ("::ffff:10.0.0.1", ["198.51.100.7"], "198.51.100.7"),
        ("::ffff:203.0.113.9", ["1.1.1.1"], "203.0.113.9"),
        ("10.0.0.1", ["::ffff:198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", ["1.1.1.1, unknown"], "10.0.0.1"),
        ("10.0.0.1", ["1.1.1.1, junk, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", ["1.1.1.1, "], "10.0.0.1"),
        ("10.0.0.1", ["127.0.0.1, 198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", ["1.1.1.1\r\nX: y"], "10.0.0.1"),
        ("10.0.0.1", ["010.0.0.9"], "10.0.0.1"),
        ("10.0.0.1", ["0x7f.1"], "10.0.0.1"),
        ("10.0.0.1", [""], "10.0.0.1"),
        ("/run/mqueue.sock", ["1.1.1.1"], "/run/mqueue.sock"),
        ("", ["1.1.1.1"], ""),
    ],
)
def test_the_client_is_the_nearest_one_that_is_not_ours(peer: str, forwarded: list[str], client: str) -> None:
    assert OURS.client(peer, forwarded) == client


@given(st.lists(st.text(max_size=20), max_size=8))
def test_without_trusted_proxies_a_header_changes_nothing(forwarded: list[str]) -> None:
    assert Proxies().client("203.0.113.9", forwarded) == "203.0.113.9"


@given(st.lists(st.text(max_size=20), max_size=8))
def test_whatever_stands_left_of_the_last_untrusted_hop_is_ignored(invented: list[str]) -> None:
    assert OURS.client("10.0.0.1", [*invented, "198.51.100.7, 10.0.0.2"]) == "198.51.100.7"


def test_a_chain_without_end_is_not_walked() -> None:
    endless = ", ".join(["1.1.1.1"] + ["10.0.0.2"] * 40)
    assert OURS.client("10.0.0.1", [endless]) == "10.0.0.2"
    assert OURS.client("10.0.0.1", ["," * 100_000]) == "10.0.0.1"


def test_a_network_that_cannot_be_read_is_refused() -> None:
    for wrong in ("10.0.0.1/8", "ten", "", "10.0.0.0/33"):
        with pytest.raises(BadSetting):
            Proxies([wrong])


@pytest.mark.parametrize(
    ("address", "grouped"),
    [
        ("198.51.100.7", "198.51.100.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("::ffff:198.51.100.7", "198.51.100.7"),
        ("fe80::1%eth0", "fe80::/64"),
        ("/run/mqueue.sock", "/run/mqueue.sock"),
    ],
)
def test_an_ipv6_customer_is_one_peer(address: str, grouped: str) -> None:
    assert group(address) == grouped


def admitted(limit: RateLimit, peer: str, now: int) -> bool:
    try:
        limit.admit(peer, now)
    except QuotaExceeded:
        return False
    return True


def test_a_burst_and_then_the_rate() -> None:
    limit = RateLimit(per_second=10, burst=5)
    assert [admitted(limit, "a", NOW) for _ in range(7)] == [True] * 5 + [False] * 2
    assert admitted(limit, "b", NOW), "each peer has its own"
    with pytest.raises(QuotaExceeded) as caught:
        limit.admit("a", NOW)
    assert (caught.value.code, caught.value.status, caught.value.retry_after) == ("rate_limited", 429, 0.1)
    assert not admitted(limit, "a", NOW + 99)
    assert admitted(limit, "a", NOW + 100)
    assert not admitted(limit, "a", NOW + 100)


def test_a_clock_that_steps_back_refills_nothing() -> None:
    limit = RateLimit(per_second=1, burst=1)
    assert admitted(limit, "a", NOW)
    assert not admitted(limit, "a", NOW - 10_000)
    assert not admitted(limit, "a", NOW)
    assert admitted(limit, "a", NOW + 1000)


def test_a_clock_that_steps_back_takes_nothing_away() -> None:
    limit = RateLimit(per_second=1, burst=5)
    assert admitted(limit, "a", NOW)
    assert admitted(limit, "a", NOW - 10_000)


def test_waiting_long_saves_up_no_more_than_a_burst() -> None:
    limit = RateLimit(per_second=10, burst=2)
    limit.admit("a", NOW)
    assert [admitted(limit, "a", NOW + 3_600_000) for _ in range(4)] == [True, True, False, False]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 300)), max_size=60))
def test_never_more_than_burst_and_rate_allow(calls: list[tuple[str, int]]) -> None:
    limit, now, passed = RateLimit(per_second=20, burst=4), NOW, dict.fromkeys("abc", 0)
    for peer, wait in calls:
        now += wait
        passed[peer] += admitted(limit, peer, now)
        assert passed[peer] <= 4 + 20 * (now - NOW) / 1000


def test_the_table_is_bounded_and_keeps_who_is_heard() -> None:
    limit = RateLimit(per_second=1, burst=1, peers_max=100)
    limit.admit("loud", NOW)
    for number in range(10_000):
        limit.admit(f"p{number}", NOW)
        assert not admitted(limit, "loud", NOW), "a flood of others wins nobody a new bucket who goes on calling"
        assert len(limit) <= 100


@pytest.mark.parametrize("bad", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_a_limit_of_nothing_is_refused(bad: tuple[int, int, int]) -> None:
    with pytest.raises(BadSetting):
        RateLimit(*bad)


LOCAL = ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost", "/run/mqueue.sock", "unix:/run/x", "::ffff:127.0.0.1"]
PUBLIC = [
    "0.0.0.0",
    "::",
    "[::]",
    "",
    "*",
    "10.0.0.1",
    "192.168.1.1",
    "203.0.113.9",
    "::ffff:0.0.0.0",
    "fe80::1",
    "host",
]
PUBLIC += ["localhost.evil.example", "127.1", "0", "127.0.0.1.evil.example", "LOCALHOST.", "169.254.1.1"]


@pytest.mark.parametrize("host", LOCAL)
def test_this_machine_is_always_allowed(host: str) -> None:
    assert bind_allowed(host, auth=False, tls=False, told=False)
    check_bind(host, auth=False, tls=False, told=False)


@pytest.mark.parametrize("host", PUBLIC)
def test_others_come_in_through_both_locks_or_by_order(host: str) -> None:
    assert bind_allowed(host, auth=True, tls=True, told=False)
    assert bind_allowed(host, auth=False, tls=False, told=True)
    for auth, tls in ((False, False), (True, False), (False, True)):
        assert not bind_allowed(host, auth=auth, tls=tls, told=False)
        with pytest.raises(BadSetting):
            check_bind(host, auth=auth, tls=tls, told=False)
