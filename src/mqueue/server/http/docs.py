"""The page of routes, for people: one HTML page made from the table. No scripts, nothing from elsewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from functools import cache
from html import escape
from typing import Any

import msgspec

from mqueue.server.http.answer import JSON, Answer, Headers
from mqueue.server.http.call import Call
from mqueue.server.http.examples import PATH_EXAMPLES, example_of
from mqueue.server.http.openapi import SECTIONS, document, section
from mqueue.server.http.routes import Route

HTML = "text/html; charset=utf-8"
CSS = "text/css; charset=utf-8"
STYLE_PATH = "/docs/style.css"

_HEADERS: Headers = (
    (
        "content-security-policy",
        "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("referrer-policy", "no-referrer"),
)

STYLE = """\
:root { color-scheme: light dark; --faint: #8883; --strong: #2563ab; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--faint); }
nav a { margin-right: 1rem; }
a { color: var(--strong); }
code, pre { font: 14px/1.5 ui-monospace, monospace; }
pre { background: var(--faint); padding: .6rem .8rem; border-radius: 6px; overflow-x: auto; white-space: pre-wrap; }
details { border-bottom: 1px solid var(--faint); padding: .3rem 0; }
summary { cursor: pointer; }
summary b { display: inline-block; min-width: 4.5rem; color: var(--strong); }
summary span { float: right; opacity: .75; }
th { text-align: left; padding-right: 1.5rem; font-weight: 600; }
td { padding-right: 1.5rem; vertical-align: top; }
"""


def routes(table: Sequence[Route]) -> tuple[Route, ...]:
    """The routes that tell of all the others, and of themselves."""

    async def openapi(call: Call) -> Answer:
        return Answer(200, described(), JSON, _HEADERS)

    async def docs(call: Call) -> Answer:
        return Answer(200, shown(), HTML, _HEADERS)

    async def style(call: Call) -> Answer:
        return Answer(200, STYLE.encode(), CSS, (*_HEADERS, ("cache-control", "max-age=3600")))

    @cache
    def described() -> bytes:
        return msgspec.json.format(msgspec.json.encode(document(everything)), indent=1)

    @cache
    def shown() -> bytes:
        return page(everything).encode()

    own = (
        Route("GET", "/openapi.json", openapi, "read", "open", "This API as an OpenAPI document", gives=dict[str, Any]),
        Route("GET", "/docs", docs, "read", "open", "This API as a page", kind=HTML),
        Route("GET", STYLE_PATH, style, "read", "open", "How the page looks", kind=CSS),
    )
    everything = (*table, *own)
    return own


def page(table: Sequence[Route]) -> str:
    grouped = {name: [route for route in table if section(route) == name] for name in SECTIONS}
    links = "".join(f'<a href="#{_anchor(name)}">{name}</a>' for name, found in grouped.items() if found)
    body = "".join(_section(name, found) for name, found in grouped.items() if found)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>mqueue</title>'
        '<meta name="viewport" content="width=device-width">'
        f'<link rel="stylesheet" href="{STYLE_PATH}"></head><body><h1>mqueue</h1>'
        '<p>Every route of this server; <a href="/openapi.json">the same for machines</a>. In the lines to try,'
        " <code>$MQUEUE_URL</code> is where the server is and <code>$MQUEUE_TOKEN</code> who you are.</p>"
        f"<nav>{links}</nav>{body}</body></html>\n"
    )


def curl(route: Route) -> str:
    """A line that calls a route, to be pasted into a shell."""
    path = re.sub(r"\{(\w+)\}", lambda name: PATH_EXAMPLES[name[1]], route.path)
    asked = "&".join(f"{each.name}={PATH_EXAMPLES[each.name]}" for each in route.query if each.required)
    plain = route.method == "GET" or (route.method == "POST" and route.takes is not None)
    words = ["curl"] if plain else ["curl", "-X", route.method]
    words.append(f'"$MQUEUE_URL{path}{"?" + asked if asked else ""}"')
    if route.place != "open":
        words.append('-H "Authorization: Bearer $MQUEUE_TOKEN"')
    if route.takes is not None:
        words.append("-d " + shlex.quote(_json(example_of(route.takes) or {}, 0)))
    return " ".join(words)


def _section(name: str, found: Sequence[Route]) -> str:
    return f'<h2 id="{_anchor(name)}">{escape(name)}</h2>' + "".join(map(_route, found))


def _route(route: Route) -> str:
    right = "open to everybody" if route.place == "open" else f"needs the right to {route.verb}"
    parts = [
        f"<details><summary><b>{escape(route.method)}</b><code>{escape(route.path)}</code>"
        f"<span>{escape(route.summary)}</span></summary><p>Answers {route.status}; {right}.{_arrow(route)}</p>",
        _query(route),
        f"<pre>{escape(curl(route))}</pre>",
        f"<p>Answer</p><pre>{escape(_json(example_of(route.gives)))}</pre>" if example_of(route.gives) else "",
        "</details>",
    ]
    return "".join(parts)


def _arrow(route: Route) -> str:
    ways = {"in": "takes", "out": "gives"}
    told = " and ".join(ways[way] for way in route.arrow)
    return f" Also {told} Arrow streams." if told else ""


def _query(route: Route) -> str:
    if not route.query:
        return ""
    rows = (f"<tr><th>{escape(each.name)}<td>{escape(each.kind)}<td>{escape(each.meaning)}" for each in route.query)
    return f"<table>{''.join(rows)}</table>"


def _json(value: Any, indent: int = 2) -> str:
    encoded = msgspec.json.encode(value)
    return (msgspec.json.format(encoded, indent=indent) if indent else encoded).decode()


def _anchor(name: str) -> str:
    return name.lower().replace(" ", "-")
