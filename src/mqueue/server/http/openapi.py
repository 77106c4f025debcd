"""The OpenAPI document, made from the table of routes and the types of their bodies. Nothing in it is written twice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Any

import msgspec

from mqueue.model.limits import NAME_LENGTH_MAX
from mqueue.server.http.answer import ARROW, JSON
from mqueue.server.http.examples import PATH_EXAMPLES, example_of
from mqueue.server.http.routes import Parameter, Route
from mqueue.wire.json import ErrorOut

VERSION = "3.1.0"
SCHEMA = "#/components/schemas/{name}"

Json = dict[str, Any]

_SECTIONS = {  # the first word that is in a path decides
    "dlq": "Dead letters",
    "groups": "Groups",
    "cursors": "Pipeline",
    "transactions": "Pipeline",
    "leases": "Messages",
    "messages": "Messages",
    "receive": "Messages",
    "publish": "Messages",
    "peek": "Messages",
    "stream": "Messages",
    "events": "Messages",
    "topics": "Topics",
    "namespaces": "Administration",
    "quotas": "Administration",
    "keys": "Administration",
    "stats": "Administration",
    "overview": "Administration",
    "cluster": "Administration",
    "session": "Administration",
}
OTHERS = "Routes of other queues"
SECTIONS = ("Messages", "Topics", "Groups", "Dead letters", "Pipeline", "Administration", "Operations", OTHERS)
assert set(_SECTIONS.values()) <= set(SECTIONS)
_OPERATIONS = ("health", "livez", "readyz", "metrics", "openapi.json", "docs", "dashboard", "")

_NAME = {"type": "string", "pattern": "^[A-Za-z0-9._-]+$", "minLength": 1, "maxLength": NAME_LENGTH_MAX}
_PATH_SCHEMAS: dict[str, Json] = {
    "id": {"type": "string", "pattern": "^[0-9]{1,19}$"},
    "token": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
    "transaction": {"type": "string", "minLength": 1, "maxLength": NAME_LENGTH_MAX},
}
_QUERY_SCHEMAS: dict[str, Json] = {
    "text": {"type": "string"},
    "integer": {"type": "integer"},
    "boolean": {"anyOf": [{"type": "boolean"}, {"enum": ["1", "0", ""]}]},
}
_NAMESPACE = Parameter("namespace", "text", "the tenant; also as the header X-Mqueue-Namespace; `default` without both")
_SECURITY_SCHEMES: Json = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token (JWT), or an API key."},
    "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key", "description": "An API key."},
    "certificate": {"type": "mutualTLS", "description": "A client certificate."},
}
_ABOUT = (
    "A sharded priority message queue. Ids are text. Durations are seconds or text such as `250ms`, `30s`, `5m`; times"
    " are RFC 3339 text or milliseconds since 1970. Bodies are JSON whatever their Content-Type, or Arrow streams where"
    " that is said. Where the server asks nobody who they are, no credentials are needed."
)
_ERROR_STATUSES = {
    "400": "The request is wrong.",
    "401": "The credentials were not accepted.",
    "403": "The caller may not do this.",
    "404": "It is not there.",
    "409": "It does not fit what is there, or the lease is lost.",
    "413": "Too large.",
    "429": "Over a quota or a limit; Retry-After says when to come back.",
    "503": "Not now.",
}


def section(route: Route) -> str:
    """The heading that a route belongs below."""
    parts = route.path.split("/")[1:]
    if parts[0] in _OPERATIONS:
        return "Operations"
    if parts[0] != "v1":
        return OTHERS
    return next((title for word, title in _SECTIONS.items() if word in parts), OTHERS)


def document(table: Sequence[Route]) -> Json:
    kinds = list(dict.fromkeys(kind for route in table for kind in (route.takes, route.gives) if kind))
    schemas, components = msgspec.json.schema_components([*kinds, ErrorOut], ref_template=SCHEMA)
    known = dict(zip(kinds, schemas, strict=False))
    paths: dict[str, Json] = {}
    for route in table:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, known)
    return {
        "openapi": VERSION,
        "info": {"title": "mqueue", "version": version("mqueue"), "description": _ABOUT},
        "servers": [{"url": "/"}],
        "tags": [{"name": name} for name in SECTIONS if any(section(route) == name for route in table)],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {code: _error(text) for code, text in {**_ERROR_STATUSES, "default": "An error."}.items()},
            "securitySchemes": _SECURITY_SCHEMES,
        },
    }


def path_names(path: str) -> list[str]:
    return re.findall(r"\{(\w+)\}", path)


def required_body(route: Route) -> bool:
    """Whether a body has to be sent: one that has no required fields may be left out."""
    schema = msgspec.json.schema(route.takes)
    if "$ref" in schema:
        schema = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    return bool(schema.get("required", True))


def _operation(route: Route, known: dict[Any, Json]) -> Json:
    told: Json = {
        "operationId": "_".join([route.method.lower(), *re.findall(r"\w+", route.path)]),
        "tags": [section(route)],
        "summary": route.summary,
        "description": f"Needs the right to {route.verb}." if route.place != "open" else "Open to everybody.",
        "parameters": [*map(_in_path, path_names(route.path)), *map(_in_query, _queries(route))],
        "responses": {str(route.status): _success(route, known), **_errors(route)},
        "security": [] if route.place == "open" else [{}, *({name: []} for name in _SECURITY_SCHEMES)],
    }
    if route.takes is not None:
        content = {JSON: _content(route.takes, known)}
        if "in" in route.arrow:
            content[ARROW] = {"schema": {"type": "string", "contentMediaType": ARROW}}
        told["requestBody"] = {"content": content, "required": required_body(route)}
    return told


def _queries(route: Route) -> Iterable[Parameter]:
    asks_place = route.place not in ("open", "server")
    named = any(each.name == "namespace" for each in route.query)
    return (*route.query, _NAMESPACE) if asks_place and not named else route.query


def _in_path(name: str) -> Json:
    schema = _PATH_SCHEMAS.get(name, _NAME)
    return {"name": name, "in": "path", "required": True, "schema": schema, "example": PATH_EXAMPLES[name]}


def _in_query(each: Parameter) -> Json:
    place = {"name": each.name, "in": "query", "required": each.required}
    return {**place, "description": each.meaning, "schema": _QUERY_SCHEMAS[each.kind]}


def _success(route: Route, known: dict[Any, Json]) -> Json:
    if route.gives is None and route.kind == JSON:
        return {"description": "Done."}
    kind = route.kind.partition(";")[0]
    content: Json = {kind: {"schema": {"type": "string"}}}
    if route.gives is not None:
        content = {kind: _content(route.gives, known)}
    if "out" in route.arrow:
        content[ARROW] = {"schema": {"type": "string", "contentMediaType": ARROW}}
    return {"description": "Done.", "content": content}


def _content(kind: Any, known: dict[Any, Json]) -> Json:
    content: Json = {"schema": known[kind]}
    example = example_of(kind)
    return content if example is None else {**content, "example": example}


def _errors(route: Route) -> Json:
    codes = ["400", "429", "503", "default"]
    if route.place != "open":
        codes += ["401", "403"]
    if path_names(route.path):
        codes += ["404"]
    if route.method != "GET":
        codes += ["409", "413"]
    return {code: {"$ref": f"#/components/responses/{code}"} for code in sorted(codes)}


def _error(description: str) -> Json:
    content = {JSON: {"schema": {"$ref": SCHEMA.format(name="ErrorOut")}}}
    return {"description": description, "content": content}
