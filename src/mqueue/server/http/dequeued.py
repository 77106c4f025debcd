"""Which lease a message was handed out under, for callers that settle by id alone."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice


class Dequeued:
    """Under which token `/dequeue` handed out a message last. The oldest are forgotten: then they are looked for."""

    def __init__(self, most: int = 100_000) -> None:
        self._tokens: dict[tuple[str, int], str] = {}
        self._most = most

    def add(self, namespace: str, ids: Iterable[int], token: str) -> None:
        for id in ids:
            self._tokens.pop((namespace, id), None)
            self._tokens[namespace, id] = token
        excess = len(self._tokens) - self._most
        for known in list(islice(self._tokens, max(0, excess))):
            del self._tokens[known]

    def get(self, namespace: str, id: int) -> str | None:
        return self._tokens.get((namespace, id))
