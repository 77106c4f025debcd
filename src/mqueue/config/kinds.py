"""The kinds of values: how each is written, what it becomes, and how it is shown again.

Whatever the source, a value arrives as text (or None, texts in a row, texts by name): a plain `off` or `30s` in a file
means the same as in the environment. Does not know which key a value is for. A parser raises ValueError, or
`Unfit` where "it takes …" would not be enough.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

from mqueue.config.tree import Address, Secret
from mqueue.model.errors import Error
from mqueue.model.names import check_name
from mqueue.model.times import duration_ms
from mqueue.server.security.principal import is_subject, parse_grants

N = TypeVar("N", int, float)
Raw: TypeAlias = str | tuple[str, ...] | Mapping[str, str] | None

_WHOLE = re.compile(r"[0-9][0-9_]{0,24}")
_DECIMAL = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*(?:([kmgt])i?)?b?", re.IGNORECASE)
_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]*)):(?P<port>[0-9]{1,5})")
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))
_MANY = 2**63 - 1


class Unfit(ValueError):
    """With a sentence of its own for the user."""


class Kind(Struct, frozen=True):
    """`takes` ends the sentence "it takes …"; `show` gives what a file would say, in plain types."""

    takes: str
    parse: Callable[[Raw], Any]
    show: Callable[[Any], Any] = lambda value: value


def optional(kind: Kind, word: str = "none") -> Kind:
    """Also nothing: null in a file, the word anywhere."""

    def parse(raw: Raw) -> Any:
        return None if raw is None or _said(raw) == word else kind.parse(raw)

    def show(value: Any) -> Any:
        return (None if word == "none" else word) if value is None else kind.show(value)

    return Kind(f"{kind.takes}, or {word}", parse, show)


def whole(low: int = 0, high: int = _MANY) -> Kind:
    def parse(raw: Raw) -> int:
        return _between(int(_matching(_WHOLE, raw)[0].replace("_", "")), low, high)

    upper = f" to {high}" if high < _MANY else " up"
    return Kind(f"a whole number from {low}{upper}", parse)


def number(high: float) -> Kind:
    """Whole where it can be: 24, not 24.0, is what the user wrote."""
    return Kind(
        f"a number from 0 to {high:.0f}",
        lambda raw: _between(float(_matching(_DECIMAL, raw)[0]), 0, high),
        lambda value: int(value) if value is not None and value == int(value) else value,
    )


def size(low: int = 0, high: int = _MANY) -> Kind:
    """Units count in 1024s, however they are spelled: 1MB is 1MiB."""

    def parse(raw: Raw) -> int:
        match = _matching(_SIZE, raw)
        exact = Decimal(match[1]) * 1024 ** _POWERS.get((match[2] or "").lower(), 0)
        if exact != int(exact):
            raise ValueError
        return _between(int(exact), low, high)

    bounds = [f" from {size_text(low)}" if low else "", f" up to {size_text(high)}" if high < _MANY else ""]
    return Kind(f"a size such as 512KiB or 64MB{''.join(bounds)}", parse, size_text)


def duration(low_ms: int = 0, high_ms: int = 10 * 365 * 86_400_000) -> Kind:
    def parse(raw: Raw) -> int:
        text = _text(raw)
        value: float | str = float(text) if _DECIMAL.fullmatch(text) else text
        try:
            return _between(duration_ms(value), low_ms, high_ms)
        except Error as error:
            raise ValueError from error

    bounds = f" from {duration_text(low_ms)} to {duration_text(high_ms)}"
    return Kind(f"a duration such as 250ms, 30s, 5m, 12h, 7d{bounds}", parse, duration_text)


def choice(*allowed: str, also: Mapping[str, str] | None = None) -> Kind:
    """`also`: other spellings of the same."""

    def parse(raw: Raw) -> str:
        word = (also or {}).get(_said(raw), _said(raw))
        if word not in allowed:
            raise ValueError
        return word

    return Kind(" or ".join(allowed), parse)


def either(no: str, yes: str) -> Kind:
    """A flag with words of its own."""
    return Kind(f"{no} or {yes}", lambda raw: choice(no, yes).parse(raw) == yes, lambda value: yes if value else no)


def only(word: str, why: str, show: Callable[[Any], Any] = lambda value: value) -> Kind:
    """A key that others have and that can have but one value here."""

    def parse(raw: Raw) -> str:
        if _said(raw) != word:
            raise Unfit(f"it takes {word}: {why}")
        return word

    return Kind(word, parse, show)


def _parse_flag(raw: Raw) -> bool:
    word = _said(raw)
    if word not in _TRUE + _FALSE:
        raise ValueError
    return word in _TRUE


def _parse_address(raw: Raw) -> Address:
    """Without a host it is this machine alone, not every interface: the public is let in only by name."""
    match = _matching(_ADDRESS, raw)
    if match["v6"]:
        ipaddress.IPv6Address(match["v6"])
    return Address(match["v6"] or match["name"] or "127.0.0.1", _between(int(match["port"]), 0, 65_535))


def _parse_name(raw: Raw) -> str:
    try:
        return check_name(_text(raw), "its")
    except Error as error:
        raise ValueError from error


def _parse_node(raw: Raw) -> str:
    """A name; of numbers only those that an id has room for, so that a file made for numbers is not misread."""
    name = _parse_name(raw)
    if name.isdecimal():
        _between(int(name), 0, 1023)
    return name


def _parse_file(raw: Raw) -> str:
    path = _text(raw)
    if "\0" in path or not os.path.isfile(path):
        raise Unfit("there is no such file")
    return path


def _parse_path(raw: Raw) -> str:
    path = _text(raw)
    if b"\0" in os.fsencode(path):
        raise ValueError
    return path


def _parse_text(raw: Raw) -> str:
    text = _text(raw)
    if len(text) > 1024 or not text.isprintable():
        raise ValueError
    return text


def _parse_networks(raw: Raw) -> tuple[str, ...]:
    return tuple(str(ipaddress.ip_network(text)) for text in _texts(raw))


def words(*allowed: str) -> Kind:
    """Some of these, each once."""

    def parse(raw: Raw) -> tuple[str, ...]:
        given = _texts(raw)
        if not given or not set(given) <= set(allowed) or len(set(given)) < len(given):
            raise ValueError
        return given

    return Kind(f"some of {', '.join(allowed)}", parse, lambda given: list(given) or None)


def _parse_secret(raw: Raw) -> Secret:
    """To the letter: a blank at its end may be meant. What has no bytes cannot sign."""
    _text(raw)
    str(raw).encode()
    return Secret(str(raw))


def _parse_auth(raw: Raw) -> tuple[str, ...] | None:
    """None: whatever there is a secret for."""
    if raw is not None and raw != () and _texts(raw) in (("off",), ("auto",)):
        return () if _texts(raw) == ("off",) else None
    ways: tuple[str, ...] = words("jwt", "keys").parse(raw)
    return ways


def _parse_quotas(raw: Raw) -> Mapping[str, int]:
    """`tenant-a:1000,tenant-b:500`, or a mapping in a file."""
    pairs = list(raw.items()) if isinstance(raw, Mapping) else [_pair(text) for text in _texts(raw)]
    table = {_parse_name(name.strip()): WHOLE.parse(limit.strip()) for name, limit in pairs}
    if len(table) < len(pairs):
        raise Unfit("a namespace is named twice")
    return MappingProxyType(table)


def _parse_clients(raw: Raw) -> Mapping[str, tuple[str, ...]]:
    """`dns:a.example=read:a write:a/orders; …`, or a mapping in a file."""
    pairs = list(raw.items()) if isinstance(raw, Mapping) else []
    if isinstance(raw, str):
        pairs = [(text.partition("=")[0], text.partition("=")[2]) for text in raw.split(";") if text.strip()]
    elif not isinstance(raw, Mapping):
        raise ValueError
    table = {subject.strip(): tuple(grants.replace(",", " ").split()) for subject, grants in pairs}
    for subject, grants in table.items():
        if not grants or not is_subject(subject):
            raise ValueError
        try:
            parse_grants(grants)
        except Error as error:
            raise Unfit(error.message) from error
    return MappingProxyType(table)


def _pair(text: str) -> tuple[str, str]:
    name, _, limit = text.rpartition(":")
    return name, limit


FLAG = Kind("true or false", _parse_flag)
WHOLE = whole()
ADDRESS = Kind("HOST:PORT, where port 0 is a free one", _parse_address, str)
NAME = Kind("a name of letters, digits, '.', '_' and '-'", _parse_name)
NODE = Kind("a name of letters, digits, '.', '_' and '-'; of numbers 0 to 1023", _parse_node)
FILE = Kind("the path of a file", _parse_file)
PATH = Kind("a path", _parse_path)
TEXT = Kind("a printable text of at most 1024 characters", _parse_text)
SECRET = Kind("a text", _parse_secret, lambda value: "********")
NETWORKS = Kind("networks such as 10.0.0.0/8, 192.0.2.7", _parse_networks, list)
AUTH = Kind("auto, off, jwt, keys, or jwt and keys", _parse_auth, lambda ways: list(ways) or "off")
QUOTAS = Kind("namespaces with messages a minute, as tenant-a:1000,tenant-b:500", _parse_quotas, dict)


CLIENTS = Kind(
    "subjects with what they may do, as dns:a.example=read:tenant-a write:tenant-a/orders; dns:b.example=admin:*",
    _parse_clients,
    lambda table: {subject: " ".join(grants) for subject, grants in table.items()},
)


def duration_text(ms: int) -> str:
    unit, length = next(((unit, length) for unit, length in _UNITS if ms % length == 0 and ms), ("s", 1000))
    return f"{ms // length}{unit}"


def size_text(count: int) -> str:
    for unit, power in (("TiB", 4), ("GiB", 3), ("MiB", 2), ("KiB", 1)):
        if count and count % 1024**power == 0:
            return f"{count // 1024**power}{unit}"
    return f"{count}B"


def _text(raw: Raw) -> str:
    if not isinstance(raw, str) or not raw.strip():
        raise ValueError
    return raw.strip()


def _said(raw: Raw) -> str:
    return raw.strip().lower() if isinstance(raw, str) else ""


def _texts(raw: Raw) -> tuple[str, ...]:
    if isinstance(raw, str):
        raw = tuple(raw.split(","))
    if not isinstance(raw, tuple):
        raise ValueError
    return tuple(text.strip() for text in raw if text.strip())


def _matching(pattern: re.Pattern[str], raw: Raw) -> re.Match[str]:
    match = pattern.fullmatch(_text(raw))
    if match is None:
        raise ValueError
    return match


def _between(value: N, low: float, high: float) -> N:
    if not low <= value <= high:
        raise ValueError
    return value
