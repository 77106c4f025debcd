"""A plain HTTP client for tests: one connection per question, nothing hidden."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

DEADLINE_SECONDS = 120


class Answered(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The code of an error."""
        return self.json["error"]["code"]


class Asking:
    def __init__(self, url: str, tls: ssl.SSLContext | None = None, **headers: str) -> None:
        self._place = urlsplit(url).netloc
        self._tls = tls
        self._headers = headers

    def __call__(self, method: str, path: str, body: Any = None, first_bytes: bool = False, **headers: str) -> Answered:
        """Bytes go as they are, anything else as JSON. Names of headers are written with `_` for `-`.

        `first_bytes`: of an answer without an end, what comes first.
        """
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {name.replace("_", "-"): value for name, value in {**self._headers, **headers}.items()}
        connection = http.client.HTTPConnection(self._place, timeout=DEADLINE_SECONDS)
        if self._tls is not None:
            connection = http.client.HTTPSConnection(self._place, timeout=DEADLINE_SECONDS, context=self._tls)
        try:
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            lower = {name.lower(): value for name, value in answer.getheaders()}
            return Answered(answer.status, lower, answer.read1() if first_bytes else answer.read())
        finally:
            connection.close()

    def publish(self, topic: str, *messages: Any, **query: str) -> list[str]:
        """Texts, or messages as JSON; their ids."""
        asked = "&".join(f"{name}={value}" for name, value in query.items())
        body = {"messages": [each if isinstance(each, dict) else {"payload": each} for each in messages]}
        answer = self("POST", f"/v1/topics/{topic}/messages?{asked}", body)
        assert answer.status == 200, answer
        return [receipt["id"] for receipt in answer.json["receipts"]]
