"""Draws the pictures in docs/states.md from the table of states: `python tools/draw_states.py`.

What stands between a pair of `<!-- drawn -->` marks is replaced; the words around them are written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from mqueue.model.lifecycle import DELIVERY_MOVES, MESSAGE_MOVES, State

PAGE = Path(__file__).resolve().parents[1] / "docs/states.md"

CAUSES = {
    (State.SCHEDULED, State.VISIBLE): "its time has come",
    (State.SCHEDULED, State.CANCELLED): "cancel, purge",
    (State.VISIBLE, State.EXPIRED): "its ttl is over",
    (State.VISIBLE, State.CANCELLED): "purge, drop_oldest, redrive of a copy",
    (State.READY, State.LEASED): "receive",
    (State.READY, State.ACKED): "receive, at most once",
    (State.READY, State.DEAD): "its key is diverted",
    (State.LEASED, State.ACKED): "ack",
    (State.LEASED, State.READY): "release, lease ran out",
    (State.LEASED, State.WAITING): "nack",
    (State.LEASED, State.DEAD): "reject, last attempt failed",
    (State.LEASED, State.EXPIRED): "given back after it expired",
    (State.LEASED, State.CANCELLED): "given back after it was cancelled",
    (State.WAITING, State.READY): "backoff is over",
    (State.READY, State.EXPIRED): "its ttl is over",
    (State.READY, State.CANCELLED): "purge, drop_oldest, redrive of a copy",
    (State.WAITING, State.EXPIRED): "its ttl is over",
    (State.WAITING, State.CANCELLED): "purge, drop_oldest, redrive of a copy",
    (State.ACKED, State.READY): "seek",
    (State.DEAD, State.READY): "seek, redrive",
}
"""What makes each move. A move that the table gains must be named here, or drawing fails."""

_ORDER = list(State)
_DRAWN = re.compile(r"<!-- drawn: (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def redrawn(page: str) -> str:
    """The page with its pictures as the table has them now."""
    assert set(CAUSES) == MESSAGE_MOVES | DELIVERY_MOVES, "the causes and the table differ"
    pictures = {
        "message": picture(MESSAGE_MOVES, (State.SCHEDULED, State.VISIBLE)),
        "delivery": picture(DELIVERY_MOVES, (State.READY,)),
    }
    return _DRAWN.sub(lambda match: f"<!-- drawn: {match[1]} -->\n{pictures[match[1]]}<!-- end -->", page)


def picture(moves: Iterable[tuple[State, State]], first: Iterable[State]) -> str:
    """A mermaid picture of one machine that begins in `first`. A state that nothing leaves is an end."""
    moves = sorted(moves, key=lambda move: (_ORDER.index(move[0]), _ORDER.index(move[1])))
    lines = [f"    [*] --> {state.value}" for state in first]
    lines += [f"    {start.value} --> {end.value}: {CAUSES[start, end]}" for start, end in moves]
    ends = {end for _, end in moves} - {start for start, _ in moves}
    lines += [f"    {state.value} --> [*]" for state in sorted(ends, key=_ORDER.index)]
    return "```mermaid\nstateDiagram-v2\n" + "\n".join(lines) + "\n```\n"


if __name__ == "__main__":
    PAGE.write_text(redrawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
