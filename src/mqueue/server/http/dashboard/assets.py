"""The files of the dashboard: read once, told apart by what is in them, and locked in by headers.

No script or style but these files runs, nothing comes from elsewhere, no other site may frame the page, and text that a
message brings cannot become markup: the browser is told to refuse all that. Does not know what the page shows.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

from msgspec import Struct

from mqueue.model.errors import NotFound
from mqueue.server.http.answer import Answer, Headers
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Route

HTML = "text/html; charset=utf-8"
_KINDS = {
    ".html": HTML,
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FIRST = "index.html"

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS: Headers = (
    ("content-security-policy", _POLICY),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-cache"),
)


class Asset(Struct, frozen=True):
    body: bytes
    kind: str
    tag: str


@cache
def assets() -> dict[str, Asset]:
    """By name. There are a few dozen, of a few kilobytes each."""
    found = {}
    for file in files(__package__).joinpath("static").iterdir():
        kind = _KINDS.get(file.name[file.name.rfind(".") :])
        if kind is not None:
            body = file.read_bytes()
            found[file.name] = Asset(body, kind, f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"')
    return found


async def first(call: Call) -> Answer:
    return _given(call, assets()[_FIRST])


async def file(call: Call) -> Answer:
    name = call.names["file"]
    asset = assets().get(name)
    if asset is None or name == _FIRST:
        raise NotFound(f"there is no {name!r:.200} in the dashboard", code="no_route")
    return _given(call, asset)


async def off(call: Call) -> Answer:
    return Answer(303, b"", HTML, (*_HEADERS, ("location", "/docs")))


def _given(call: Call, asset: Asset) -> Answer:
    """Nothing, if the browser has it already."""
    headers = (*_HEADERS, ("etag", asset.tag))
    known = [tag.strip().removeprefix("W/") for tag in call.headers.get("if-none-match", "").split(",")]
    return Answer(304, b"", asset.kind, headers) if asset.tag in known else Answer(200, asset.body, asset.kind, headers)


ROOT = Route("GET", "/", first, "read", "open", "The dashboard", kind=HTML)
NO_DASHBOARD = Route("GET", "/", off, "read", "open", "Leads to the page of routes", status=303)
ROUTES = (
    ROOT,
    Route("GET", "/dashboard/{file}", file, "read", "open", "A file of the dashboard", kind="text/javascript"),
)
