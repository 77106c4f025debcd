"""The page of HTTP routes is true: there is a line for every route, and all lines work, one after the other."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from mqueue.server.http.routes import Routes
from mqueue.server.http.tables import TABLE
from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer
from tests.integration.asking import Answered, Asking

PAGE = Path(__file__).resolve().parents[2] / "docs/http.md"

LINE = re.compile(r"^(?:(?P<name>\w+)=\$\()?(?P<curl>curl .*?)(?: \| jq -r '(?P<pick>[^']+)'\))?$")
FLAGS = {"-s", "-N"}
WITH_A_VALUE = {"-X", "-d", "-H", "-o", "--max-time"}
REFUSED_HERE = {("POST", "/v1/keys"): "keys_off", ("DELETE", "/v1/keys/{name}"): "keys_off"}
"""What a server without `security.auth` answers with an error, and which."""


class Line(NamedTuple):
    text: str
    keeps: str | None
    """The variable that the answer is kept in, and where in the answer it stands."""
    pick: str | None

    def request(self, known: dict[str, str]) -> tuple[str, str, bytes | None, dict[str, str]]:
        """(method, address, body, a header) as curl would make them of this line."""
        words = shlex.split(re.sub(r"\$(\w+)", lambda match: known[match[1]], self.text))[1:]
        given: dict[str, str] = {}
        [address] = list(_plain(words, given))
        body = given["-d"].encode() if "-d" in given else None
        name, _, value = given.get("-H", "").partition(": ")
        return given.get("-X", "GET" if body is None else "POST"), address, body, {name: value} if name else {}


def _plain(words: list[str], given: dict[str, str]) -> Iterator[str]:
    """The words that belong to no option; what does goes into `given`."""
    rest = iter(words)
    for word in rest:
        if word in WITH_A_VALUE:
            given[word] = next(rest)
        elif word not in FLAGS:
            yield word


def lines() -> list[Line]:
    text = PAGE.read_text(encoding="utf-8")
    shell = [line for block in re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S) for line in block.splitlines()]
    found = [LINE.match(line) for line in shell if "curl " in line]
    assert all(found)
    return [Line(match["curl"], match["name"], match["pick"]) for match in found if match]


class Anything(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return "" if name == "MQUEUE_URL" else "1"


def test_every_route_has_a_line_and_every_line_a_route() -> None:
    routes = Routes(TABLE)
    shown = set()
    for line in lines():
        method, address, *_ = line.request(Anything())
        route, _ = routes.find(method, address.partition("?")[0])
        shown.add((route.method, route.path))
    assert {(route.method, route.path) for route in TABLE} - shown == set()


def test_the_lines_work_one_after_the_other() -> None:
    routes = Routes(TABLE)
    with RunningServer(clock=ManualClock()) as server:
        known = {"MQUEUE_URL": ""}
        for line in lines():
            method, address, body, header = line.request(known)
            route, _ = routes.find(method, address.partition("?")[0])
            ask = Asking(server.url, **header)
            answer = ask(method, address, body, first_bytes=route.kind == "text/event-stream")
            refused = REFUSED_HERE.get((route.method, route.path))
            assert answer.status < 400 or answer.error == refused, f"{line.text}\n{answer}"
            if line.keeps and line.pick:
                known[line.keeps] = picked(answer, line.pick)


def picked(answer: Answered, path: str) -> str:
    """What `jq -r` would say; only names and numbers are needed here."""
    value: Any = json.loads(answer.body)
    for name, number in re.findall(r"\.(\w+)|\[(\d+)\]", path):
        value = value[name] if name else value[int(number)]
    assert isinstance(value, str | int), f"{path} of {answer}"
    return str(value)
