"""Routes: which handler answers which method and path, what it needs the right to, and what it takes and gives.

The table is data: the OpenAPI document, the page of routes and the test of rights are made from it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

from msgspec import Struct

from mqueue.model.errors import BadName, Error, NotFound
from mqueue.server.security.principal import Verb

if TYPE_CHECKING:
    from mqueue.server.http.answer import Answer, Streamed
    from mqueue.server.http.call import Call

Place = Literal["topic", "namespace", "server", "inside", "open"]
"""Where the right is needed: in the topic of the path, in the whole namespace, in the whole server, where the query or
the body says (then the handler demands it), or nowhere."""

Handler = Callable[["Call"], Awaitable["Answer | Streamed"]]


class MethodNotAllowed(Error):
    """`allowed`: the methods that are for this path, as the header `Allow` has them."""

    code = "method_not_allowed"
    status = 405

    def __init__(self, message: str, allowed: str) -> None:
        super().__init__(message)
        self.allowed = allowed


class Parameter(Struct, frozen=True):
    """One name in the query."""

    name: str
    kind: Literal["text", "integer", "boolean"]
    meaning: str
    required: bool = False


class Route(Struct, frozen=True):
    method: str
    path: str
    """`/v1/topics/{topic}/messages`: a name in braces stands for one segment."""
    handler: Handler
    verb: Verb
    place: Place
    summary: str
    takes: Any = None
    """The type of the body, for msgspec; None: there is none."""
    gives: Any = None
    """The type of the answer; None: an empty answer."""
    query: tuple[Parameter, ...] = ()
    status: int = 200
    arrow: tuple[Literal["in", "out"], ...] = ()
    """Where Arrow streams may stand instead of JSON."""
    kind: str = "application/json"
    """The media type of the answer."""
    large: bool = False
    """Its body carries messages, and may be as long as the server takes any; others are short."""
    lasts: bool = False
    """It takes as long as the caller asks for, and ends when he leaves."""


class Routes:
    """Finds the route of a request: by the number of segments and the ones that are fixed."""

    def __init__(self, table: Iterable[Route]) -> None:
        self._fixed: dict[str, dict[str, Route]] = {}
        self._open: dict[int, list[tuple[list[str], dict[str, Route]]]] = {}
        for route in table:
            methods = self._methods(route.path)
            assert route.method not in methods, f"{route.method} {route.path} stands twice"
            methods[route.method] = route

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """`path` as it came, still quoted: a quoted slash belongs to a name."""
        methods = self._fixed.get(path)
        names: dict[str, str] = {}
        if methods is None:
            methods, names = self._match(path)
        if methods is None:
            raise NotFound(f"there is nothing at {path!r:.200}", code="no_route")
        route = methods.get("GET" if method == "HEAD" else method)
        if route is not None and method == "HEAD" and route.verb == "receive":
            route = None  # it would hand out messages and throw them away
        if route is None:
            allowed = ", ".join(sorted(methods))
            raise MethodNotAllowed(f"{method!r:.20} is not for {path!r:.200}; it takes {allowed}", allowed)
        return route, names

    def _methods(self, path: str) -> dict[str, Route]:
        if "{" not in path:
            return self._fixed.setdefault(path, {})
        segments = path.split("/")
        known = self._open.setdefault(len(segments), [])
        for pattern, methods in known:
            if pattern == segments:
                return methods
        known.append((segments, {}))
        known.sort(key=lambda entry: [segment.startswith("{") for segment in entry[0]])  # fixed segments first
        return self._methods(path)

    def _match(self, path: str) -> tuple[dict[str, Route] | None, dict[str, str]]:
        segments = path.split("/")
        for pattern, methods in self._open.get(len(segments), ()):
            names: dict[str, str] = {}
            for wanted, given in zip(pattern, segments, strict=True):
                if wanted.startswith("{") and given:
                    names[wanted[1:-1]] = _unquoted(given) if "%" in given else given
                elif wanted != given:
                    break
            else:
                return methods, names
        return None, {}


def _unquoted(segment: str) -> str:
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError as error:
        raise BadName(f"{segment!r:.80} in the path is not UTF-8") from error
