"""The OpenAPI document holds: it tells of every route, its examples fit, and what is generated from it is answered so.

`MQUEUE_OPENAPI_EXAMPLES` asks for more requests per route than the few of a normal run.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from html import escape
from typing import Any

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from msgspec.structs import replace
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from mqueue.server.http.docs import curl, page
from mqueue.server.http.examples import example_of
from mqueue.server.http.openapi import document
from mqueue.server.http.routes import Parameter, Route
from mqueue.server.http.tables import TABLE
from mqueue.testing.server import RunningServer
from tests.integration.asking import Asking

EXAMPLES = int(os.environ.get("MQUEUE_OPENAPI_EXAMPLES", "6"))
DEADLINE_SECONDS = 120
ENDLESS = ("/v1/topics/{topic}/stream", "/v1/overview/stream")
"""Streams: they end when the caller leaves."""

CHECKS = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with RunningServer() as server:
        yield server


@pytest.fixture(scope="module")
def operations() -> dict[str, Any]:
    schema = schemathesis.openapi.from_dict(document(TABLE))
    return {found.ok().label: found.ok() for found in schema.get_all_operations()}


def shown(route: Route) -> str:
    return f"{route.method} {route.path}"


def generated() -> Iterator[Any]:
    """Requests that fit the document and, where anything can be given, requests that do not."""
    for route in TABLE:
        if route.path not in ENDLESS:
            yield pytest.param(route, GenerationMode.POSITIVE, id=f"{shown(route)} as told")
            if route.place != "open" and (route.query or route.takes or "{" in route.path):
                yield pytest.param(route, GenerationMode.NEGATIVE, id=f"{shown(route)} otherwise")


# The server is in this process, and draws numbers of its own while cases are made.
@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisDeprecationWarning")
@pytest.mark.parametrize(("route", "mode"), list(generated()))
def test_what_is_generated_is_answered_as_the_document_says(
    server: RunningServer, operations: dict[str, Any], route: Route, mode: GenerationMode
) -> None:
    operation = operations[shown(route)]

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    def ask(case: schemathesis.Case) -> None:
        if isinstance(case.body, dict) and "wait" in case.body:
            case.body = {**case.body, "wait": 0}  # it may be the example itself
        case.call_and_validate(base_url=server.url, checks=CHECKS, timeout=DEADLINE_SECONDS, allow_redirects=False)

    ask()


def test_the_document_tells_of_every_route(server: RunningServer) -> None:
    told = Asking(server.url)("GET", "/openapi.json").json
    assert told == document(TABLE)
    methods = {(method.upper(), path) for path, found in told["paths"].items() for method in found}
    assert methods == {(route.method, route.path) for route in TABLE}
    ids = [operation["operationId"] for found in told["paths"].values() for operation in found.values()]
    assert len(set(ids)) == len(ids)


def bodies() -> dict[str, Any]:
    """The types of all bodies, by their names."""
    kinds = [kind for route in TABLE for kind in (route.takes, route.gives) if kind not in (None, str, dict[str, Any])]
    return {str(kind): kind for kind in kinds}


@pytest.mark.parametrize("kind", list(bodies().values()), ids=list(bodies()))
def test_every_body_has_an_example_that_fits(kind: Any) -> None:
    example = example_of(kind)
    assert example is not None
    msgspec.json.decode(msgspec.json.encode(example), type=kind)


def test_the_page_shows_every_route_and_nothing_from_elsewhere(server: RunningServer) -> None:
    ask = Asking(server.url)
    answer = ask("GET", "/docs")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    text = answer.body.decode()
    for route in TABLE:
        assert f"<b>{route.method}</b><code>{route.path}</code>" in text
        assert escape(curl(route)) in text
    assert "<script" not in text
    assert "http:" not in text
    assert "https:" not in text
    assert set(re.findall(r'(?:href|src)="([^#"][^"]*)"', text)) == {"/docs/style.css", "/openapi.json"}
    style = ask("GET", "/docs/style.css")
    assert (style.status, style.headers["content-type"]) == (200, "text/css; charset=utf-8")


def test_hostile_text_in_the_table_is_only_shown() -> None:
    evil = '</code><script>alert("1")</script>'
    route = replace(TABLE[0], summary=evil, query=(Parameter(evil, "text", evil),))
    assert "<script" not in page([route])
    assert page([route]).count(escape(evil)) == 3


def test_a_line_to_try_quotes_what_a_shell_would_read() -> None:
    for route in TABLE:
        words = shlex.split(curl(route))
        assert words[0] == "curl"
        if route.takes is not None:
            body = words[words.index("-d") + 1]
            msgspec.json.decode(body, type=route.takes)
