"""The messages of one ordering key: one after the other.

A chain is *held* while one of its messages is in flight or waits for its retry. Only its first message is lined up, and
only while it is not held. Keys are known by a hash of 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from msgspec import Struct

from mqueue.heart.runs import Run

Link = tuple[int, int, int, int, Run]
"""priority, at, start, something to tell equal ones apart, the run as it was added"""


class Chain(Struct, gc=False):
    """What is ready of one key, and how many messages of it are held."""

    held: int
    links: list[Link]


class Chains:
    __slots__ = ("_known", "_serial", "_stands")

    def __init__(self, stands: Callable[[Run, int], bool]) -> None:
        self._known: dict[int, Chain] = {}
        self._stands = stands
        self._serial = 0

    def __len__(self) -> int:
        return len(self._known)

    def hold(self, key: int, count: int) -> None:
        self._chain(key).held += count

    def release(self, key: int, count: int) -> Run | None:
        """Messages are held no more: the one that may be lined up now."""
        chain = self._known.get(key)
        if chain is None:
            return None
        chain.held = max(0, chain.held - count)
        if not chain.held and not chain.links:
            del self._known[key]
            return None
        return self.head(key)

    def add(self, key: int, run: Run) -> bool:
        """A run is ready; whether it is to be lined up."""
        self._serial += 1
        link = (run.priority, run.at, run.start, self._serial, run)
        chain = self._known.get(key)
        if chain is None:
            self._known[key] = Chain(0, [link])
            return True
        heappush(chain.links, link)
        return not chain.held and self.head(key) is run

    def head(self, key: int) -> Run | None:
        """What may go out next; None while the key is held, or has nothing."""
        chain = self._known.get(key)
        if chain is None or chain.held:
            return None
        links = chain.links
        while links:
            run = links[0][4]
            if self._stands(run, links[0][2]):
                return run
            heappop(links)
        del self._known[key]
        return None

    def is_head(self, key: int, run: Run) -> bool:
        """Whether a run that is ready may go out next."""
        chain = self._known.get(key)
        if chain is None or chain.held:
            return False
        first = chain.links[0] if chain.links else None
        if first is not None and first[4] is run and first[2] == run.start:
            return True
        return self.head(key) is run

    def take_head(self, key: int, run: Run) -> bool:
        """A run of one message goes out; whether it may, so far as that is seen at once."""
        chain = self._known.get(key)
        if chain is None or chain.held or not chain.links:
            return False
        first = chain.links[0]
        if first[4] is not run or first[2] != run.start:
            return False
        chain.held = 1
        heappop(chain.links)
        return True

    def take(self, key: int, count: int) -> None:
        """The head goes out."""
        chain = self._known[key]
        chain.held += count
        heappop(chain.links)

    def runs(self, key: int) -> list[Run]:
        """All that is ready of a key, in order."""
        chain = self._known.get(key)
        links = sorted(chain.links) if chain else []
        found = {id(run): run for _, _, start, _, run in links if self._stands(run, start)}
        return list(found.values())

    def _chain(self, key: int) -> Chain:
        chain = self._known.get(key)
        if chain is None:
            chain = self._known[key] = Chain(0, [])
        return chain
