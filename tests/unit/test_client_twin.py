"""The client has the calls of the broker, awaited or not: same names, same signatures, and a stub that says so."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tools import client_stub

import mqueue
from mqueue.model import errors
from mqueue.wire.errors import error_of, kind_of
from mqueue.wire.json import ErrorBody

PAIRS = [
    (mqueue.Broker, mqueue.Client, {"producer"}),
    (mqueue.AsyncBroker, mqueue.AsyncClient, {"producer"}),
    (mqueue.Dlq, mqueue.ClientDlq, set()),
    (mqueue.AsyncDlq, mqueue.AsyncClientDlq, set()),
    (mqueue.ArrowLease, mqueue.ClientLease, set()),
    (mqueue.AsyncArrowLease, mqueue.AsyncClientLease, set()),
]
NAMES = [client.__name__ for _, client, _ in PAIRS]
MADE_INSIDE = {"of", "first_of", "empty"}  # of ArrowLease: users are given one
GUIDE = Path(__file__).resolve().parents[2] / "docs/guide.md"


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")} - MADE_INSIDE


def shape(call: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(call).parameters.values()]


@pytest.mark.parametrize(("broker", "client", "more"), PAIRS, ids=NAMES)
def test_a_client_has_the_names_of_a_broker(broker: type, client: type, more: set[str]) -> None:
    assert public(client) - public(broker) == more
    assert public(broker) - public(client) == set()


@pytest.mark.parametrize(("broker", "client", "more"), PAIRS, ids=NAMES)
def test_a_client_has_the_signatures_of_a_broker(broker: type, client: type, more: set[str]) -> None:
    for name in public(broker):
        call, other = getattr(broker, name), getattr(client, name)
        if inspect.isfunction(call):
            assert shape(call) == shape(other), name
            assert inspect.iscoroutinefunction(call) == inspect.iscoroutinefunction(other), name


def test_both_clients_take_the_same_settings() -> None:
    assert shape(mqueue.Client.__init__) == shape(mqueue.AsyncClient.__init__)
    assert public(mqueue.Producer) == public(mqueue.AsyncProducer)
    assert shape(mqueue.Producer.publish) == shape(mqueue.AsyncProducer.publish)


def test_a_call_keeps_its_name_and_its_words_and_names_the_sync_types() -> None:
    call = mqueue.Client.receive
    assert (call.__qualname__, call.__module__) == ("Client.receive", "mqueue.client.sync")
    assert call.__doc__ == mqueue.Broker.receive.__doc__
    assert inspect.signature(call).return_annotation == "list[Message]"


def test_the_stub_is_current() -> None:
    assert client_stub.STUB.path.read_text(encoding="utf-8") == client_stub.STUB.text(), "run: -m tools.client_stub"


# Errors


def finer_codes() -> list[tuple[str, str]]:
    """(code, class) of the table in the guide."""
    text = GUIDE.read_text(encoding="utf-8").partition("### Finer codes")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in text.splitlines() if line.startswith("| `")]
    return [(code.strip(" `"), kind.strip()) for codes, kind in rows for code in codes.split(",")]


def test_every_code_becomes_its_class_again() -> None:
    assert len(finer_codes()) > 40
    for code, name in finer_codes():
        kind = getattr(errors, name)
        assert kind_of(code, kind.status) is kind, code
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, mqueue.Error):
            assert kind_of(kind.code, kind.status) is kind


def test_an_error_comes_with_all_that_was_told() -> None:
    told = ErrorBody("quota_too_small", "too much", retryable=False, applied=False)
    error = error_of(told, 429, 2.0)
    assert type(error) is mqueue.QuotaExceeded
    assert (error.code, error.status, error.retryable, error.applied, error.retry_after, str(error)) == (
        *("quota_too_small", 429, False, False, 2.0),
        "too much",
    )
    lost = error_of(ErrorBody("lease_lost", "gone", lost=["7", "8"]), 409)
    assert isinstance(lost, mqueue.LeaseLost)
    assert lost.lost == (7, 8)
    assert error_of(ErrorBody("internal", "oh", retryable=True, applied=None), 503).applied is None


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, mqueue.Refused),
        (418, mqueue.Refused),
        (404, mqueue.NotFound),
        (502, mqueue.Unavailable),
        (599, mqueue.Error),
    ],
)
def test_what_a_newer_server_says_becomes_the_error_of_its_status(status: int, kind: type) -> None:
    error = error_of(ErrorBody("from_the_future", "?"), status)
    assert (type(error), error.code, error.status) == (kind, "from_the_future", status)


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "ftp://x"},
        {"url": "http://"},
        {"url": "http://me:hush@x"},
        {"url": "http://x?token=hush"},
        {"url": "http://x:99999"},
        {"url": "http://x/ä"},
        {"url": 7},
        {"token": "hush hush"},
        {"token": "hush\n"},
        {"token": ""},
        {"timeout": 0},
        {"timeout": "2h"},
        {"encoding": "xml"},
        {"retry": 3},
        {"ca": "/nowhere"},
        {"url": "https://x", "ca": "/nowhere"},
        {"url": "https://x", "cert": 7},
        {"name": "x" * 300},
        {"namespace": "a b"},
    ],
    ids=str,
)
def test_bad_settings_are_refused_and_secrets_not_shown(settings: dict[str, Any]) -> None:
    for kind in (mqueue.Client, mqueue.AsyncClient):
        with pytest.raises(mqueue.Refused) as refused:
            kind(**settings)
        assert "hush" not in str(refused.value)


def test_no_token_is_shown() -> None:
    with mqueue.Client("http://127.0.0.1:1", token="hush") as q:
        assert "hush" not in repr(q)
        assert "hush" not in repr(vars(q))
        assert "hush" not in repr(q._core._window.address)
        with pytest.raises(mqueue.Unavailable) as failed:
            mqueue.Client("http://127.0.0.1:1", token="hush", retry=False).topics()
        assert "hush" not in repr(failed.value)
