"""A batch of messages on its way in: columns of plain values, before they have offsets, ids and times.

A column that nobody uses is None; priority and times are one number while all rows agree. Rows are checked already:
whoever builds them has parsed what the user typed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from mqueue.model.priority import NORMAL

Headers: TypeAlias = Mapping[str, str | bytes]
Numbers: TypeAlias = int | list[int] | NDArray[np.int64]
"""One value for all rows, or one per row."""


Extras: TypeAlias = Mapping[str, Any]
"""What one message has besides its payload, by column; what is left at its default is not in it."""


class Rows(Struct):
    """Messages as columns. `deliver_at` 0: at once; `expires_at` 0: never."""

    payload: list[bytes]
    key: list[bytes | None] | None = None
    headers: list[Headers | None] | None = None
    priority: Numbers = NORMAL
    deliver_at: Numbers = 0
    expires_at: Numbers = 0
    idempotency_key: list[str | None] | None = None
    fairness_key: list[str | None] | None = None

    def __len__(self) -> int:
        return len(self.payload)

    @property
    def size(self) -> int:
        """About how many bytes the rows take in a frame."""
        size = sum(map(len, self.payload))
        if self.key:
            size += sum(len(key) for key in self.key if key)
        if self.headers:
            size += sum(
                len(name) + len(value) for headers in self.headers if headers for name, value in headers.items()
            )
        return size

    def take(self, order: Sequence[int] | NDArray[np.intp]) -> Rows:
        """The rows with these numbers, in this order."""
        return Rows(
            [self.payload[i] for i in order],
            None if self.key is None else [self.key[i] for i in order],
            None if self.headers is None else [self.headers[i] for i in order],
            _picked(self.priority, order),
            _picked(self.deliver_at, order),
            _picked(self.expires_at, order),
            None if self.idempotency_key is None else [self.idempotency_key[i] for i in order],
            None if self.fairness_key is None else [self.fairness_key[i] for i in order],
        )

    def order(self, now: int) -> NDArray[np.intp] | None:
        """The order of delivery, stable, or None if the rows are in it already."""
        if isinstance(self.priority, int) and isinstance(self.deliver_at, int):
            return None
        count = len(self.payload)
        due = np.maximum(np.broadcast_to(np.asarray(self.deliver_at, np.int64), count), now)
        urgency = np.broadcast_to(np.asarray(self.priority, np.int64), count)
        order = np.lexsort((due, urgency))
        return None if np.array_equal(order, np.arange(count)) else order

    def extras(self, row: int) -> Extras:
        """One row, apart from its payload."""
        found: dict[str, Any] = {}
        for name in ("key", "headers", "idempotency_key", "fairness_key"):
            column = getattr(self, name)
            if column is not None and column[row] is not None:
                found[name] = column[row]
        for name, default in (("priority", NORMAL), ("deliver_at", 0), ("expires_at", 0)):
            numbers = getattr(self, name)
            number = numbers if isinstance(numbers, int) else int(numbers[row])
            if number != default:
                found[name] = number
        return found


def weight(extras: Extras) -> int:
    """How many bytes the extras of a message take."""
    size = len(extras.get("key", b""))
    for name, value in extras.get("headers", {}).items():
        size += len(name) + len(value)
    return size


def stretches(
    start: int, count: int, priority: Numbers, deliver_at: Numbers, expires_at: Numbers
) -> list[tuple[int, int, int, int, int]]:
    """(start, stop, priority, due, expires) of neighbours that agree in all three, from offset `start` on."""
    if isinstance(priority, int) and isinstance(deliver_at, int) and isinstance(expires_at, int):
        return [(start, start + count, priority, deliver_at, expires_at)]
    columns: list[NDArray[np.int64]] = [
        np.broadcast_to(np.asarray(column, np.int64), count) for column in (priority, deliver_at, expires_at)
    ]
    changes = np.zeros(count - 1, np.bool_)
    for column in columns:
        changes |= column[1:] != column[:-1]
    first = np.concatenate(([0], np.flatnonzero(changes) + 1))
    last = np.append(first[1:], count)
    picked: list[list[Any]] = [column[first].tolist() for column in columns]
    return list(zip((first + start).tolist(), (last + start).tolist(), *picked, strict=True))


def _picked(column: Numbers, order: Sequence[int] | NDArray[np.intp]) -> Numbers:
    """A column of numbers in another order, as one number if that is all there is."""
    if isinstance(column, int):
        return column
    picked = np.asarray(column, np.int64)[order]
    return int(picked[0]) if len(picked) and (picked == picked[0]).all() else picked
