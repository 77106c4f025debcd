"""Topics in numbers, look after look: what is there, and how fast it comes and goes. Which of them are shown, and in
what order, as `mqueue top` was told or as somebody presses keys. Does not know how anything is drawn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from msgspec import Struct

from mqueue.cli import shapes
from mqueue.cli.server import ask, escaped, listed
from mqueue.cli.session import Session
from mqueue.model.errors import Error, NotFound, Refused, Unauthorized

Record: TypeAlias = dict[str, Any]

TOPICS_MAX = 1000
"""Each is a call of its own: of more topics than these those are looked at that come first as they are sorted; of a
broker without a server, by name."""
_AT_ONCE = 8
_PAGE = 200
_PAGES_MAX = 50
"""Of a server's overview, to find them."""


class Sort(StrEnum):
    """By what topics are sorted; each but the name from the largest on."""

    depth = "depth"
    arriving = "in"
    leaving = "out"
    oldest = "oldest"
    flight = "flight"
    retries = "retries"
    dead = "dead"
    name = "name"


SORTED_BY = {
    Sort.depth: "depth",
    Sort.arriving: "in_per_second",
    Sort.leaving: "out_per_second",
    Sort.oldest: "oldest_ready_seconds",
    Sort.flight: "leased",
    Sort.retries: "waiting",
    Sort.dead: "dead",
    Sort.name: "topic",
}
_OVERVIEW = {
    Sort.depth: "depth",
    Sort.arriving: "in",
    Sort.leaving: "out",
    Sort.oldest: "age",
    Sort.flight: "leased",
    Sort.retries: "waiting",
    Sort.dead: "dead",
    Sort.name: "name",
}
"""What a server's overview calls it."""


class Look(Struct):
    """What was seen at one moment. `trouble`: of how many topics there are no numbers, by why."""

    records: list[Record]
    trouble: dict[str, int]
    more: int = 0
    """Topics beyond those that are looked at."""

    def total(self, name: str) -> float:
        return sum(record[name] or 0 for record in self.records)


class View:
    """Remembers the numbers of the last look, to tell rates."""

    def __init__(self, session: Session, everywhere: bool) -> None:
        self._session = session
        self._everywhere = everywhere
        self._before: dict[tuple[str, str], Record] = {}
        self._at = 0.0

    def look(self, choice: Choice) -> Look:
        """All topics; of too many, those that come first. One that cannot be counted now is missing, and so much is
        said; if none can, that is an error."""
        places = self._places()
        if len(places) > TOPICS_MAX:
            places = self._sorted([place for place in places if choice.fits(*place)], choice)
        chosen = places[:TOPICS_MAX]
        now = time.monotonic()
        found: dict[tuple[str, str], Record] = {}
        trouble: dict[str, int] = {}
        error: Error | None = None
        for place, answer in zip(chosen, self._counted(chosen), strict=True):
            if isinstance(answer, Error):
                error = answer
                if not isinstance(answer, NotFound):  # it was deleted meanwhile
                    trouble[answer.code] = trouble.get(answer.code, 0) + 1
            else:
                found[place] = answer
        if error is not None and trouble and not found:
            raise error
        for place, record in found.items():
            _add_rates(record, self._before.get(place), now - self._at)
        self._before, self._at = found, now
        return Look(list(found.values()), trouble, len(places) - len(chosen))

    def _places(self) -> list[tuple[str, str]]:
        queue = self._session.queue
        if not self._everywhere:
            namespace = self._session.context.namespace or "default"
            return [(namespace, topic) for topic in queue.topics()]
        if not self._session.is_remote:
            raise Refused("only a server lists its namespaces; the url has to be http: or https:")
        spaces = [told["namespace"] for told in listed(self._session, "/v1/namespaces", "namespaces")]
        return [(space, topic) for space in spaces for topic in queue.namespace(space).topics()]

    def _sorted(self, places: list[tuple[str, str]], choice: Choice) -> list[tuple[str, str]]:
        """As a server's overview has them; those that it does not know yet come last."""
        if len(places) <= TOPICS_MAX or not self._session.is_remote:
            return places
        left = dict.fromkeys(places)
        first: list[tuple[str, str]] = []
        for row in self._overview(choice):
            place = (row["namespace"], row["topic"])
            if place in left:
                del left[place]
                first.append(place)
                if len(first) == TOPICS_MAX:
                    break
        return [*first, *left]

    def _overview(self, choice: Choice) -> Iterator[Record]:
        where = "" if self._everywhere else f"&namespace={escaped(self._session.context.namespace or 'default')}"
        target = f"/v1/overview?sort={_OVERVIEW[choice.sort]}&limit={_PAGE}{where}&skip="
        topics = ask(self._session, "GET", f"{target}0")["topics"]
        skips = range(0, topics, _PAGE)
        for skip in skips[:: -1 if choice.reverse else 1][:_PAGES_MAX]:
            rows = ask(self._session, "GET", f"{target}{skip}")["rows"]
            yield from reversed(rows) if choice.reverse else rows

    def _counted(self, places: Sequence[tuple[str, str]]) -> Iterable[Record | Error]:
        if not self._session.is_remote:
            return [self._numbers(place) for place in places]
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            return list(threads.map(self._numbers, places))

    def _numbers(self, place: tuple[str, str]) -> Record | Error:
        namespace, topic = place
        try:
            numbers = self._session.queue.namespace(namespace).stats(topic)
        except Unauthorized:
            raise
        except Error as error:
            return error
        groups = numbers.groups.values()
        record = {"namespace": namespace, **shapes.stats(numbers)}
        record["dead"] = sum(group.dead for group in groups)
        return record | {"acked": sum(group.acked for group in groups)}


def _add_rates(record: Record, before: Record | None, span: float) -> None:
    for rate, counter in (("in_per_second", "published"), ("out_per_second", "acked")):
        known = before is not None and span > 0
        record[rate] = max(0.0, (record[counter] - before[counter]) / span) if known and before else None


class Choice(Struct):
    """What is shown of a look, and in which order."""

    sort: Sort = Sort.depth
    reverse: bool = False
    filter: str = ""

    def of(self, look: Look) -> list[Record]:
        found = [record for record in look.records if self.fits(record["namespace"], record["topic"])]
        found.sort(key=lambda record: (record["namespace"], record["topic"]))
        if self.sort is Sort.name:
            return found[::-1] if self.reverse else found
        name = SORTED_BY[self.sort]
        return sorted(found, key=lambda record: record[name] or 0, reverse=not self.reverse)

    def fits(self, namespace: str, topic: str) -> bool:
        """Text that is part of a name, or a pattern such as `order*`, also with the namespace: `tenant-a/*`."""
        text = self.filter.lower()
        topic = topic.lower()
        whole = f"{namespace.lower()}/{topic}"
        if any(sign in text for sign in "*?["):
            return fnmatchcase(topic, text) or fnmatchcase(whole, text)
        return text in whole


class Control:
    """What keys do. `act` says whether to go on."""

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self.typing = False
        """Whether keys are letters of the filter."""
        self.paused = False
        self.helped = False
        self.first = 0
        """The first row that is shown."""
        self._keys: dict[str, Callable[[], object]] = {
            "s": lambda: self._sort(1),
            "right": lambda: self._sort(1),
            "S": lambda: self._sort(-1),
            "left": lambda: self._sort(-1),
            "r": self._reverse,
            "/": self._type,
            "p": self._pause,
            " ": self._pause,
            "?": self._help,
            "h": self._help,
            "down": lambda: self._scroll(1),
            "j": lambda: self._scroll(1),
            "up": lambda: self._scroll(-1),
            "k": lambda: self._scroll(-1),
            "pagedown": lambda: self._scroll(10),
            "pageup": lambda: self._scroll(-10),
            "escape": self._clear,
        }

    def act(self, key: str) -> bool:
        if self.typing:
            self._letter(key)
        elif key in ("q", "\x03", "\x04"):
            return False
        elif key in self._keys:
            self._keys[key]()
        return True

    def _letter(self, key: str) -> None:
        if key in ("enter", "escape"):
            self.typing = False
            if key == "escape":
                self.choice.filter = ""
        elif key == "backspace":
            self.choice.filter = self.choice.filter[:-1]
        elif len(key) == 1 and key.isprintable():
            self.choice.filter += key
            self.first = 0

    def _sort(self, step: int) -> None:
        sorts = list(Sort)
        self.choice.sort = sorts[(sorts.index(self.choice.sort) + step) % len(sorts)]

    def _reverse(self) -> None:
        self.choice.reverse = not self.choice.reverse

    def _type(self) -> None:
        self.typing = True

    def _pause(self) -> None:
        self.paused = not self.paused

    def _help(self) -> None:
        self.helped = not self.helped

    def _scroll(self, rows: int) -> None:
        self.first = max(0, self.first + rows)

    def _clear(self) -> None:
        self.choice.filter = ""
        self.helped = False
