"""Routing: from an exchange and a routing key to the queues whose bindings match. Pure; knows no queue but its name.

`Router` is made of the bindings there are, and thrown away when they change. Where the answer depends on nothing but
the routing key it is remembered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct

DEFAULT = ""
TYPES = ("direct", "fanout", "topic", "headers")
MATCHES = ("all", "any", "all-with-x", "any-with-x")
"""How a binding to an exchange of headers is met."""
DELAYED = "x-delayed-message"
"""A type that keeps a message back for as long as its header `x-delay` says, and then routes as another type does."""
_REMEMBERED_MAX = 10_000

Kind = Literal["queue", "exchange"]


class Exchange(Struct, frozen=True):
    name: str
    type: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = {}

    @property
    def routes_as(self) -> str:
        return str(self.arguments.get("x-delayed-type", "direct")) if self.type == DELAYED else self.type

    @property
    def alternate(self) -> str | None:
        """Where messages go that this one has no queue for."""
        return self.arguments.get("alternate-exchange")


class Binding(Struct, frozen=True):
    source: str
    kind: Kind
    target: str
    key: str
    arguments: dict[str, Any] = {}

    @property
    def identity(self) -> tuple[str, str, str, str, str]:
        """Two that have the same are one."""
        shown = repr(sorted(self.arguments.items(), key=lambda item: item[0]))
        return self.source, self.kind, self.target, self.key, shown


BUILT_IN = tuple(
    Exchange(name, kind)
    for name, kind in (
        (DEFAULT, "direct"),
        ("amq.direct", "direct"),
        ("amq.fanout", "fanout"),
        ("amq.topic", "topic"),
        ("amq.headers", "headers"),
        ("amq.match", "headers"),
    )
)
"""There from the beginning, for good. Of the first, every queue is bound by its own name."""


class Router:
    """`exchanges` by name, all bindings there are, and the names of all queues."""

    def __init__(self, exchanges: Mapping[str, Exchange], bindings: Iterable[Binding], queues: Iterable[str]) -> None:
        self._exchanges = exchanges
        self._queues = frozenset(queues)
        self._tables: dict[str, _Table] = {}
        for binding in bindings:
            exchange = exchanges.get(binding.source)
            if exchange is not None:
                self._tables.setdefault(binding.source, _TABLES[exchange.routes_as]()).add(binding)
        self._remembered: dict[tuple[str, str], tuple[str, ...]] = {}
        self._by_headers = any(exchange.routes_as == "headers" for exchange in exchanges.values())

    def route(self, exchange: str, key: str, headers: Mapping[str, Any]) -> tuple[str, ...]:
        """The queues that a message goes to, each once. The exchange is one that is there."""
        if exchange == DEFAULT:
            return (key,) if key in self._queues else ()
        known = self._remembered.get((exchange, key))
        if known is not None:
            return known
        found = self._route(exchange, key, headers)
        if not self._by_headers:
            if len(self._remembered) >= _REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[exchange, key] = found
        return found

    def _route(self, exchange: str, key: str, headers: Mapping[str, Any]) -> tuple[str, ...]:
        queues: dict[str, None] = {}
        seen = {exchange}
        ahead = [exchange]
        while ahead:
            at = ahead.pop()
            matched = list(self._matched(at, key, headers))
            alternate = self._exchanges[at].alternate if at in self._exchanges and not matched else None
            onward = [target for kind, target in matched if kind == "exchange"]
            queues.update(dict.fromkeys(target for kind, target in matched if kind == "queue"))
            for target in [*onward, *([] if alternate is None else [alternate])]:
                if target not in seen:
                    seen.add(target)
                    ahead.append(target)
        return tuple(queues)

    def _matched(self, exchange: str, key: str, headers: Mapping[str, Any]) -> Iterable[tuple[Kind, str]]:
        if exchange == DEFAULT:
            return [("queue", key)] if key in self._queues else []
        table = self._tables.get(exchange)
        return [] if table is None else table.match(key, headers)


class _Table:
    """The bindings of one exchange."""

    def add(self, binding: Binding) -> None:
        raise NotImplementedError

    def match(self, key: str, headers: Mapping[str, Any]) -> Iterable[tuple[Kind, str]]:
        raise NotImplementedError


class _Direct(_Table):
    def __init__(self) -> None:
        self._targets: dict[str, list[tuple[Kind, str]]] = {}

    def add(self, binding: Binding) -> None:
        self._targets.setdefault(binding.key, []).append((binding.kind, binding.target))

    def match(self, key: str, headers: Mapping[str, Any]) -> Iterable[tuple[Kind, str]]:
        return self._targets.get(key, ())


class _Fanout(_Table):
    def __init__(self) -> None:
        self._targets: dict[tuple[Kind, str], None] = {}

    def add(self, binding: Binding) -> None:
        self._targets[binding.kind, binding.target] = None

    def match(self, key: str, headers: Mapping[str, Any]) -> Iterable[tuple[Kind, str]]:
        return self._targets


class _Node:
    """A word of patterns: what follows it, and who is bound by a pattern that ends here. `many`: the word is `#`."""

    __slots__ = ("many", "next", "targets")

    def __init__(self, many: bool = False) -> None:
        self.many = many
        self.next: dict[str, _Node] = {}
        self.targets: list[tuple[Kind, str]] = []


class _Topic(_Table):
    """Patterns word by word: `*` is any one word, `#` any number of them, none as well."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, binding: Binding) -> None:
        node = self._root
        for word in binding.key.split("."):
            node = node.next.setdefault(word, _Node(word == "#"))
        node.targets.append((binding.kind, binding.target))

    def match(self, key: str, headers: Mapping[str, Any]) -> Iterable[tuple[Kind, str]]:
        """All places that the words so far can lead to, word by word: never more than there are nodes."""
        places = _reached([self._root])
        for word in key.split("."):
            after = [node for node in places if node.many]
            after += [node.next[step] for node in places for step in {word, "*"} if step in node.next and step != "#"]
            places = _reached(after)
        return [target for node in places for target in node.targets]


def _reached(nodes: Iterable[_Node]) -> dict[_Node, None]:
    """These, and those that a `#` leads to without a word."""
    found = dict.fromkeys(nodes)
    ahead = list(found)
    while ahead:
        many = ahead.pop().next.get("#")
        if many is not None and many not in found:
            found[many] = None
            ahead.append(many)
    return found


class _Headers(_Table):
    """`x-match` all (the default) or any; names that begin with `x-` count only with all-with-x and any-with-x."""

    def __init__(self) -> None:
        self._bindings: list[tuple[dict[str, Any], bool, tuple[Kind, str]]] = []

    def add(self, binding: Binding) -> None:
        how = str(binding.arguments.get("x-match", "all"))
        wanted = {
            name: value
            for name, value in binding.arguments.items()
            if name != "x-match" and (how.endswith("-with-x") or not name.startswith("x-"))
        }
        self._bindings.append((wanted, how.startswith("any"), (binding.kind, binding.target)))

    def match(self, key: str, headers: Mapping[str, Any]) -> Iterable[tuple[Kind, str]]:
        for wanted, any_will_do, target in self._bindings:
            met = (name in headers and (value is None or headers[name] == value) for name, value in wanted.items())
            if any(met) if any_will_do else all(met):
                yield target


_TABLES: dict[str, type[_Table]] = {"direct": _Direct, "fanout": _Fanout, "topic": _Topic, "headers": _Headers}
