"""Which consumers are pushed to, by the leases they hold: whoever settles tells the stream that there is room."""

from __future__ import annotations

import asyncio


class Streams:
    """Who has to be told that a lease has changed."""

    def __init__(self) -> None:
        self._by_token: dict[str, asyncio.Event] = {}

    def __len__(self) -> int:
        return len(self._by_token)

    def add(self, token: str, room: asyncio.Event) -> None:
        self._by_token[token] = room

    def drop(self, token: str) -> None:
        self._by_token.pop(token, None)

    def settled(self, token: str) -> None:
        """Something of a lease was settled: there may be room now."""
        room = self._by_token.get(token)
        if room is not None:
            room.set()
