"""Which route a path finds: fixed segments before names, and names as they were quoted."""

from __future__ import annotations

import pytest

from mqueue.model.errors import BadName, NotFound
from mqueue.server.http.answer import NOTHING, Answer
from mqueue.server.http.call import Call
from mqueue.server.http.routes import MethodNotAllowed, Route, Routes


async def _nothing(call: Call) -> Answer:
    return NOTHING


def _route(method: str, path: str) -> Route:
    return Route(method, path, _nothing, "read", "open", "")


ROUTES = Routes(
    [
        _route("GET", "/{any}/{name}/all"),
        _route("GET", "/topics/{topic}"),
        _route("PUT", "/topics/{topic}"),
        _route("GET", "/topics/{topic}/groups"),
        _route("GET", "/topics/{topic}/{thing}"),
        _route("GET", "/topics/all/{thing}"),
        _route("GET", "/topics/all"),
    ]
)


@pytest.mark.parametrize(
    ("path", "found", "names"),
    [
        ("/topics/all", "/topics/all", {}),
        ("/topics/orders", "/topics/{topic}", {"topic": "orders"}),
        ("/topics/orders/groups", "/topics/{topic}/groups", {"topic": "orders"}),
        ("/topics/all/groups", "/topics/all/{thing}", {"thing": "groups"}),
        ("/topics/orders/all", "/topics/{topic}/{thing}", {"topic": "orders", "thing": "all"}),
        ("/groups/orders/all", "/{any}/{name}/all", {"any": "groups", "name": "orders"}),
        ("/topics/a%2Fb%C3%A9/groups", "/topics/{topic}/groups", {"topic": "a/bé"}),
    ],
)
def test_fixed_segments_come_first(path: str, found: str, names: dict[str, str]) -> None:
    route, given = ROUTES.find("GET", path)
    assert (route.path, given) == (found, names)


@pytest.mark.parametrize("path", ["/", "/topics", "/topics/", "/topics//groups", "/groups/orders/some", "/a/b/c/d"])
def test_nothing_is_found_where_nothing_is(path: str) -> None:
    with pytest.raises(NotFound):
        ROUTES.find("GET", path)


def test_a_name_that_is_no_text_and_a_method_that_is_not_there() -> None:
    with pytest.raises(BadName, match="%FF"):
        ROUTES.find("GET", "/topics/%FF/groups")
    with pytest.raises(MethodNotAllowed, match="GET, PUT"):
        ROUTES.find("POST", "/topics/orders")


def test_one_place_has_one_name() -> None:
    with pytest.raises(AssertionError, match="stands twice"):
        Routes([_route("GET", "/topics/{topic}"), _route("PUT", "/topics/{name}")])
