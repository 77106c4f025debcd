"""The kinds of values that name other servers: PostgreSQL, Redis, other nodes, a collector of spans.

Only their form is checked here. No sentence shows a password, nor what may be a part of one: of a URL that cannot be
read only what follows the last `@` is shown.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from mqueue.config.kinds import Kind, Raw, Unfit
from mqueue.config.tree import Secret

SERVERS_MAX = 1024
"""There are as many virtual shards; more servers would have nothing to hold."""

_FORM = "postgresql://user:password@host:5432/database"
_BETWEEN = re.compile(r"[,\s]\s*(?=postgres(?:ql)?://)")
"""A comma, or in a file a new line. A comma inside a URL stands between hosts that hold the same."""
_HOSTS = re.compile(r"(?:(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._%-]*)(?::[0-9]{1,5})?,?)*")
_PLACE = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+)):(?P<port>[0-9]{1,5})")
_PORT_MAX = 65_535
_TRACES = "/v1/traces"
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\s*=\s*[!-+\--~]+(?: [!-+\--~]+)*")


def _parse_databases(raw: Raw) -> tuple[Secret, ...]:
    urls = _texts(raw, _BETWEEN)
    if len(urls) > SERVERS_MAX:
        raise Unfit(f"there may be {SERVERS_MAX} servers, and these are {len(urls)}")
    for number, url in enumerate(urls, 1):
        which = f"URL {number} of {len(urls)}{_rest(url)}"
        if (wrong := _wrong(url)) is not None:
            raise Unfit(f"{which} {wrong}; it takes {_FORM}")
        if urls.index(url) != number - 1:
            raise Unfit(f"{which} is URL {urls.index(url) + 1} again: every shard has a database of its own")
    return tuple(Secret(url) for url in urls)


def _wrong(url: str) -> str | None:
    """What is wrong with a URL, without a word of it."""
    if not url.startswith(("postgresql://", "postgres://")):
        return "does not begin with postgresql://"
    if not url.isprintable() or " " in url:
        return "has a blank or a sign that cannot be printed in it: write it as %20 and the like"
    try:
        told = urlsplit(url)
    except ValueError:
        return "cannot be read: a bracket is open"
    user, _, hosts = told.netloc.rpartition("@")
    if "@" in user or "@" in told.path or (not user and "@" in told.query and "password" not in told.query):
        return "has an @ too many: / : @ ? # in a password are written as %2F %3A %40 %3F %23"
    if told.fragment or "#" in url:
        return "has a # in it: in a password it is written as %23"
    if not _HOSTS.fullmatch(hosts):
        return "has no host and port that can be read"
    if not all(int(port) <= _PORT_MAX for port in re.findall(r":([0-9]+)(?:,|$)", hosts)):
        return f"has a port beyond {_PORT_MAX}"
    if told.path.count("/") > 1 or len(told.path) < 2:
        return "names no database, or more than one"
    return None


def _rest(url: str) -> str:
    """What comes after who connects and his password; nothing where that cannot be told."""
    before, at, after = url.rpartition("@")
    shown = after.partition("?")[0]
    return f" (…@{shown:.60})" if at and before and shown.isprintable() and "?" not in before else ""


def passwords(url: str) -> list[str]:
    """As written and as meant, of a URL that is in order."""
    told: SplitResult = urlsplit(url)
    written = told.netloc.rpartition("@")[0].partition(":")[2]
    return [text for text in {written, unquote(written), *parse_qs(told.query).get("password", [])} if text]


def _parse_places(raw: Raw) -> tuple[str, ...]:
    places = _texts(raw, re.compile(","))
    for place in places:
        match = _PLACE.fullmatch(place)
        if match is None or not 0 < int(match["port"]) <= _PORT_MAX:
            raise Unfit(f"it takes host:port, several with commas between them; {_masked(place)!r:.80} is none")
        if match["v6"]:
            IPv6Address(match["v6"])
    if len(set(places)) < len(places):
        raise Unfit("an address is named twice")
    return places


def _masked(place: str) -> str:
    return f"…@{place.rpartition('@')[2]}" if "@" in place else place


def _parse_node_url(raw: Raw) -> str:
    if not isinstance(raw, str):
        raise ValueError
    text = raw.strip().removesuffix("/")
    scheme, _, place = text.partition("://")
    match = _PLACE.fullmatch(place)
    if scheme not in ("http", "https") or match is None or not 0 < int(match["port"]) <= _PORT_MAX:
        raise ValueError
    if match["v6"]:
        IPv6Address(match["v6"])
    if (match["v6"] or match["name"]) in ("::", "0.0.0.0"):  # noqa: S104 - refused, not listened on
        raise Unfit("nobody can be reached there: name this machine as the other nodes see it")
    return text


def _parse_collector(raw: Raw) -> str:
    if not isinstance(raw, str) or not raw.isascii() or not raw.isprintable() or " " in raw.strip():
        raise ValueError
    told = urlsplit(raw.strip())
    if told.scheme not in ("http", "https") or not told.hostname or told.query or told.fragment:
        raise ValueError
    if "@" in told.netloc:
        raise Unfit("it takes no password in the URL: telemetry.headers")
    if told.port == 0:
        raise Unfit("nobody listens on port 0")
    path = told.path.rstrip("/")
    return f"{told.scheme}://{told.netloc}{path if path.endswith(_TRACES) else path + _TRACES}"


def _parse_collector_headers(raw: Raw) -> Secret:
    """Checked here, taken apart where they are used. What is wrong is not shown."""
    text = raw.strip() if isinstance(raw, str) else ""
    if not text or not all(_HEADER.fullmatch(pair.strip()) for pair in text.split(",")):
        raise Unfit("it takes name=value, several with commas between them (what was given is not shown)")
    return Secret(text)


def _texts(raw: Raw, between: re.Pattern[str]) -> tuple[str, ...]:
    if raw is None or (isinstance(raw, str) and raw.strip().lower() == "none"):
        return ()
    if isinstance(raw, str):
        raw = tuple(between.split(raw))
    if not isinstance(raw, tuple):
        raise ValueError
    return tuple(text for each in raw if (text := each.strip(" \t\r\n,")))


DATABASES = Kind(
    f"URLs such as {_FORM}, with commas between them", _parse_databases, lambda urls: ["********"] * len(urls)
)
PLACES = Kind("host:port, several with commas between them", _parse_places, list)
COLLECTOR = Kind("http://host:port or https://host:port, with or without /v1/traces", _parse_collector)
COLLECTOR_HEADERS = Kind("headers as name=value,name=value", _parse_collector_headers, lambda value: "********")
NODE_URL = Kind("http://host:port or https://host:port", _parse_node_url)
