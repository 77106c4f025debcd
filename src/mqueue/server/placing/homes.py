"""What a request is about: topics, a lease, a message, a transaction, or none of these. Read from its path, its query
and, where these do not tell, from its body; what is wrong with those is for the handler to say.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec import Struct

from mqueue.server.http.call import Call
from mqueue.server.http.routes import Route
from mqueue.server.http.sqs.naming import ACTIONS_PATH, PATH, named_queue

Kind = Literal["publish", "topic", "topics", "dead", "lease", "message", "transaction", "listing", "node"]


class About(Struct, frozen=True):
    kind: Kind
    topics: tuple[str, ...] = ()
    name: str = ""
    """A token, an id, a transaction; of a topic, the token of a lease that it is about."""
    namespace: str = ""
    """Where it is not that of the call."""


class _Named(Struct):
    topic: str = ""
    namespace: str = ""


class _Body(Struct):
    messages: list[_Named] = []
    topics: list[str] = []
    topic: str = ""
    namespace: str = ""


_BODY = msgspec.json.Decoder(_Body)
_LIST = msgspec.json.Decoder(list[_Named] | _Named)
GLANCES = {"/v1/overview", "/v1/overview/stream", "/v1/cluster"}
"""What is put together by whoever answers: see `glancing`."""
_LISTINGS = {"/v1/topics", "/topics", "/v1/namespaces", "/v1/stats", *GLANCES}
_DLQ = "/v1/topics/{topic}/dlq"
_DEAD = {_DLQ, f"{_DLQ}/errors", f"{_DLQ}/redrive", f"{_DLQ}/delete"}


def about(call: Call, route: Route) -> About:
    path = route.path
    if path.startswith(ACTIONS_PATH):
        return _queue(call, route)
    if path == PATH:  # no action of any
        return About("node")
    if path in _LISTINGS:
        return About("listing")
    if "{token}" in path:
        return About("lease", name=call.names["token"])
    if "{id}" in path:
        return About("message", name=call.names["id"])
    if "{transaction}" in path:
        topic = call.query.get("topic", "") if path.endswith("/stage") else ""
        return About("transaction", _one(topic), call.names["transaction"])
    if path.startswith("/v1/schedules"):
        adds = (route.method, path) == ("POST", "/v1/schedules")
        topics = _one(_body(call).topic if adds else call.query.get("topic", ""))
        return About("listing" if route.method == "GET" and path == "/v1/schedules" and not topics else "topic", topics)
    if path in _DEAD:
        return About("dead", (call.topic,))
    if "{topic}" in path:
        return About("publish" if route.verb == "publish" else "topic", (call.topic,))
    if path == "/v1/messages":
        return About("publish", _distinct(message.topic for message in _body(call).messages))
    if path == "/v1/receive":
        return About("topics", _distinct(_body(call).topics))
    if route.place == "inside":
        return _seed(call, route)
    return About("node")


def _queue(call: Call, route: Route) -> About:
    """Messages of a queue go to who delivers them. What sets queues up has several places, and calls each of them."""
    named = named_queue(call) if route.verb in ("publish", "receive", "settle") else None
    return About("node") if named is None else About("topic", (named.name,), named.token, named.namespace)


def _seed(call: Call, route: Route) -> About:
    """The routes that name namespace and topic in the query or the body."""
    if route.method == "GET":
        return About(
            "dead" if route.path == "/dlq" else "topic",
            _one(call.query.get("topic", "")),
            namespace=call.query.get("namespace", ""),
        )
    named = _list(call)
    kind: Kind = "publish" if route.verb == "publish" else "topic"
    spaces = _distinct(one.namespace for one in named)
    return About(kind, _distinct(one.topic for one in named), namespace=spaces[0] if len(spaces) == 1 else "")


def _body(call: Call) -> _Body:
    try:
        return _BODY.decode(call.body or b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _Body()


def _list(call: Call) -> list[_Named]:
    try:
        found = _LIST.decode(call.body or b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []
    return found if isinstance(found, list) else [found]


def _one(topic: str) -> tuple[str, ...]:
    return (topic,) if topic else ()


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name))
