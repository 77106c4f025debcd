"""The duty of every node to see that another server of a shard was promoted, while the one that it uses still answers.

A primary that nobody watches any more goes on as one: it takes what it is told and knows of no other, and to whoever is
connected nothing seems wrong. So the other hosts of a shard are asked now and then. One on a higher timeline is the
primary, and all links to the shard go there with their next call.

Lives in a thread of its own. Where each shard has one host there is nothing to look at.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from mqueue.log.postgres.link import Link, apart
from mqueue.log.postgres.seen import Seen
from mqueue.model.errors import Error

LOOK_SECONDS = 1.0
_ASK_MS = 2_000


class Vigil:
    """`urls`: of all shards, by place; `seen`: what is known of those that hold them."""

    def __init__(self, urls: Sequence[str], seen: Sequence[Seen]) -> None:
        self._hosts = [
            (shard, place, Link(host, f"shard{number}:vigil", _ASK_MS))
            for number, (url, shard) in enumerate(zip(urls, seen, strict=True))
            for place, host in enumerate(apart(url))
        ]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._walk, name="mqueue-vigil", daemon=True)

    def start(self) -> None:
        if self._hosts:
            self._thread.start()

    def close(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def run_once(self) -> None:
        """Ask each host that is not the primary as far as we know. A link that failed rests for some seconds."""
        for shard, place, link in self._hosts:
            if self._over.is_set():
                return
            if shard.home is None or shard.home.place == place:
                link.close()
                continue
            try:
                shard.learn(link.reach().sight)
            except Error:  # it follows, as it should, or is away
                continue

    def _walk(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self.run_once()
        for _, _, link in self._hosts:
            link.close()
