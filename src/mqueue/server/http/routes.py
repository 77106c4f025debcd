"""Routes: which handler answers which method and path, what it needs the right to, and what it takes and gives.

The table is data: the OpenAPI document, the page of routes and the test of rights are made from it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
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
    signed: bool = False
    """Callers may sign the whole request instead of showing a secret: who they are is proven when the body is there."""
    within: Callable[[Mapping[str, str]], Route] | None = None
    """Which route it is, by the headers: where several have the same path."""


class Routes:
    """Finds the route of a request: by the number of segments and the ones that are fixed."""

    def __init__(self, table: Iterable[Route]) -> None:
        self._fixed: dict[str, dict[str, Route]] = {}
        self._open: dict[int, list[_Shape]] = {}
        """By the number of segments; fixed segments come first, where several fit."""
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
        opened = tuple(segment.startswith("{") for segment in segments)
        shapes = self._open.setdefault(len(segments), [])
        shape = next((one for one in shapes if one.opened == opened), None)
        if shape is None:
            shape = _Shape(opened)
            shapes.append(shape)
            shapes.sort(key=lambda one: one.opened)
        return shape.methods(segments)

    def _match(self, path: str) -> tuple[dict[str, Route] | None, dict[str, str]]:
        segments = path.split("/")
        for shape in self._open.get(len(segments), ()):
            found = shape.find(segments)
            if found is not None:
                return found
        return None, {}


class _Shape:
    """Paths of one length that have names in the same places: their fixed segments are looked up all at once."""

    def __init__(self, opened: tuple[bool, ...]) -> None:
        self.opened = opened
        """For each segment, whether it stands for a name."""
        self._places = [place for place, is_name in enumerate(opened) if is_name]
        self._known: dict[str, tuple[list[str], dict[str, Route]]] = {}
        """By the path without its names: what they are called, and the methods."""

    def methods(self, segments: list[str]) -> dict[str, Route]:
        names = [segments[place][1:-1] for place in self._places]
        known, methods = self._known.setdefault(self._fixed(segments), (names, {}))
        assert known == names, f"{'/'.join(segments)} stands twice, with other names"
        return methods

    def find(self, segments: list[str]) -> tuple[dict[str, Route], dict[str, str]] | None:
        known = self._known.get(self._fixed(segments))
        if known is None:
            return None
        names: dict[str, str] = {}
        for name, place in zip(known[0], self._places, strict=True):
            given = segments[place]
            if not given:
                return None
            names[name] = _unquoted(given) if "%" in given else given
        return known[1], names

    def _fixed(self, segments: list[str]) -> str:
        rest = segments.copy()
        for place in self._places:
            rest[place] = ""
        return "/".join(rest)


def _unquoted(segment: str) -> str:
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError as error:
        raise BadName(f"{segment!r:.80} in the path is not UTF-8") from error
