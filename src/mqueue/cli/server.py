"""What only a server has: calls that no broker answers, such as those for keys and quotas. JSON there and back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from msgspec import json

from mqueue.cli.contexts import Context
from mqueue.cli.session import NAME, Session
from mqueue.model.errors import Refused

PAGE = 1000


def ask(session: Session, method: str, path: str, body: Any = None) -> Any:
    """The answer of the server; None if it has nothing to say."""
    if not session.is_remote:
        raise Refused("keys and quotas belong to a server; the url has to be http: or https:")
    content = b"" if body is None else json.encode(body)
    answer = asyncio.run(_ask(session.context, session.timeout, method, path, content))
    return json.decode(answer) if answer else None


def listed(session: Session, path: str, field: str) -> Iterator[dict[str, Any]]:
    """All of a list that comes in pages."""
    after: str | None = ""
    while after is not None:
        page = ask(session, "GET", f"{path}?limit={PAGE}&after={escaped(after)}")
        yield from page[field]
        after = page.get("next")


def escaped(name: str) -> str:
    return quote(name, safe="")


async def _ask(context: Context, timeout: str, method: str, path: str, content: bytes) -> bytes:
    from mqueue.client.address import address_of
    from mqueue.client.line import Line, Request

    cert = (context.cert, context.key or context.cert) if context.cert else None
    several = "," in context.url  # then one that is away is no reason to give up
    line = Line(address_of(context.url, context.token, NAME, timeout, context.ca, cert, "json", several))
    try:
        reply = await line.send(Request(method, path, content, repeatable=method != "POST"))
        return reply.body
    finally:
        await line.close()
