"""The cookie of a browser: at the door it becomes a credential; by itself it changes nothing."""

from __future__ import annotations

import pytest

import mqueue
from mqueue.server.http.app import only_looks
from mqueue.server.http.session import CSRF, cookie, credential_of, csrf_of, entered, farewell
from mqueue.server.http.tables import TABLE

KEY = "mq_abc"


def test_a_cookie_becomes_the_header_that_a_program_sends() -> None:
    headers = {"cookie": f"other=1; mqueue={KEY}", "host": "localhost"}
    assert entered(headers, only_looks=True) == {"authorization": f"Bearer {KEY}", "host": "localhost"}
    assert entered({"host": "localhost"}, only_looks=True) == {"host": "localhost"}


def test_what_changes_something_needs_more_than_the_cookie() -> None:
    headers = {"cookie": f"mqueue={KEY}"}
    for wrong in ({}, {CSRF: ""}, {CSRF: csrf_of("mq_abd")}, {CSRF: csrf_of(KEY)[:-1]}, {CSRF: "ä"}):
        with pytest.raises(mqueue.Forbidden) as told:
            entered({**headers, **wrong}, only_looks=False)
        assert told.value.code == "csrf"
    assert entered({**headers, CSRF: csrf_of(KEY)}, only_looks=False) == {"authorization": f"Bearer {KEY}"}


@pytest.mark.parametrize("own", [{"authorization": "Bearer x"}, {"x-api-key": "x"}])
def test_who_brings_a_credential_is_judged_by_it(own: dict[str, str]) -> None:
    assert entered({"cookie": f"mqueue={KEY}", **own}, only_looks=False) == own


@pytest.mark.parametrize("text", ["", "mqueue", "mqueue=", "mqueue=a b", 'mqueue="x"', "mqueue=ä", "=x", "xmqueue=a"])
def test_what_is_no_cookie_of_ours_is_passed_over(text: str) -> None:
    assert credential_of({"cookie": text}) is None
    assert entered({"cookie": text}, only_looks=False) == {}


def test_a_route_that_hands_out_messages_does_more_than_look() -> None:
    """Whatever its method: those of other queues do it with a GET."""
    looks = {(route.method, route.path): only_looks(route.method, route) for route in TABLE}
    assert not looks["GET", "/dequeue"]
    assert not looks["GET", "/v1/topics/{topic}/stream"]
    assert looks["GET", "/v1/overview/stream"]
    assert looks["GET", "/v1/keys"]
    assert not any(looking for (method, _), looking in looks.items() if method != "GET")


def test_the_one_that_other_hosts_cannot_set_counts_first() -> None:
    assert credential_of({"cookie": "mqueue=a; __Host-mqueue=b; __Host-mqueue=c"}) == "b"


def test_how_it_is_set_and_forgotten() -> None:
    assert cookie(KEY, secure=False) == f"mqueue={KEY}; Path=/; HttpOnly; SameSite=Strict"
    assert cookie(KEY, secure=True) == f"__Host-mqueue={KEY}; Path=/; HttpOnly; SameSite=Strict; Secure"
    assert farewell(secure=True).startswith("__Host-mqueue=; Max-Age=0; ")


@pytest.mark.parametrize("bad", ["", "a b", "a;b", "a\r\nset-cookie: b", "ä", "x" * 3801])
def test_a_credential_that_fits_no_cookie_is_refused(bad: str) -> None:
    with pytest.raises(mqueue.Refused) as told:
        cookie(bad, secure=True)
    assert told.value.code == "bad_credential"
