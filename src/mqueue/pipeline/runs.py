"""A run that can be gone on with: work in chunks that are the same each time, each of them a transaction of its own.

    spark/replay/{run}/{what it was told}/{chunk}

A run is its name together with all that decides what it publishes: told something else, it is another run. What a
server remembers of transactions (seven days) is all that a run leaves behind. Does not know what is in a chunk.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from msgspec import json

from mqueue.model.errors import BadName
from mqueue.model.names import check_name
from mqueue.pipeline.offsets import Range

NAME_LENGTH_MAX = 100
_DIGEST_LENGTH = 12


def run_name(given: str) -> str:
    """The name that was given, or a new one."""
    if not given:
        return secrets.token_hex(4)
    if len(given) > NAME_LENGTH_MAX:
        raise BadName(f"run {given!r:.80} has {len(given)} characters; at most {NAME_LENGTH_MAX} are allowed")
    return check_name(given, "run")


def prefix_of(job: str, run: str, told: Mapping[str, Any]) -> str:
    """What all transactions of a run begin with. The same words give the same prefix, in whatever order."""
    return f"{job}/{run}/{digest(told)}"


def digest(told: Any) -> str:
    return sha256(json.encode(told, order="deterministic")).hexdigest()[:_DIGEST_LENGTH]


def chunks(starts: Mapping[int, int], stops: Mapping[int, int], topic: str, size: int) -> dict[int, list[Range]]:
    """What lies between, in chunks by number: chunk k has the offsets from k × size on, of every partition.

    A chunk is always the same one, also when retention has raised the start meanwhile.
    """
    found: dict[int, list[Range]] = {}
    for partition, stop in sorted(stops.items()):
        start = starts.get(partition, 0)
        for number in range(start // size, -(-stop // size)):
            piece = Range(topic, partition, max(start, number * size), min(stop, (number + 1) * size))
            if piece.start < piece.stop:
                found.setdefault(number, []).append(piece)
    return dict(sorted(found.items()))
