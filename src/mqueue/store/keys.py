"""Telling the heart which keys messages have, where they take turns: out of the frames, near the front only.

Keys travel as hashes. It reads and tells; what follows from a key is the heart's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqueue.heart.group import Group
from mqueue.heart.runs import Run, segments
from mqueue.heart.state import State, Waiting
from mqueue.heart.turns import Turns
from mqueue.log.base import Log
from mqueue.model.errors import Corrupt
from mqueue.policy.routing import key_hash, key_hashes
from mqueue.wire.frame import Frame

Keys = tuple[int, int]
"""Hashes of a message's key and of its fairness key; 0: it has none."""
NONE: Keys = (0, 0)
_MANY_BITS = 32


def draw(state: State, log: Log, group: Group, limit: int, now: int, only: tuple[int, ...] | None) -> bool:
    """Let it be known what a lease of `limit` could be made of, and its keys; whether there is more than before."""
    turns = group.turns
    assert turns is not None, "messages take turns"
    drew, more = False, True
    while more:
        more = turns.draw(limit, only)
        drew = drew or more
        if turns.unknown or not turns.learned:
            learn(state, log, group, turns, now)
    return drew


def learn(state: State, log: Log, group: Group, turns: Turns, now: int) -> None:
    """Find out the keys of what is parked and in flight, as far as they are not known. May raise, and goes on later."""
    if not turns.learned:
        _learn_leased(state, log, group, turns, now)
    unknown = turns.unknown
    while unknown:
        run = unknown[-1]
        reader = group.readers[run.partition]
        if run.keys is None and run.mask and reader.is_parked(run):
            told = keys_of(log, group.topic, run)
            pieces = reader.sort(run, told)
            unknown.pop()
            if not run.until:
                turns.told([run, *pieces])
                continue
            for piece in (run, *pieces):
                turns.hold(piece, piece.count)
            for piece in pieces:
                state.timers.set(piece.until, Waiting(group, piece))
        else:
            unknown.pop()


def _learn_leased(state: State, log: Log, group: Group, turns: Turns, now: int) -> None:
    leases = [state.leases[token] for token in group.tokens]
    for lease in leases:
        for run in [run for run in lease.runs if run.mask and run.keys is None]:
            for bits, keys in keys_of(log, group.topic, run):
                piece = run if bits == run.mask else lease.split(run, bits)
                piece.keys = keys
    for lease in leases:
        for run in lease.runs:
            if run.mask:
                turns.seat(run, now)
    turns.learned = True


def keys_of(log: Log, topic: int, run: Run) -> list[tuple[int, Keys]]:
    """Which bits of a run have which keys. What is damaged has none: it is set aside when it is handed out."""
    if run.mask == 1:
        return [(1, _of_one(log, topic, run))]
    found: dict[Keys, int] = {}
    for frame, start, stop in _pieces(log, topic, run):
        shift = start - run.start
        if frame is None:
            found[NONE] = found.get(NONE, 0) | (1 << stop - start) - 1 << shift
        else:
            _find(found, frame, start, stop, shift)
    return [(bits, keys) for keys, bits in found.items()]


def _of_one(log: Log, topic: int, run: Run) -> Keys:
    try:
        frame = log.frame(topic, run.partition, run.start)
    except Corrupt:
        return NONE
    return NONE if frame is None else keys_in(frame, run.start - frame.base)


def keys_in(frame: Frame, row: int) -> Keys:
    """The keys of one message."""
    rows = frame.rows
    key = rows.key[row] if rows.key is not None else None
    share = rows.fairness_key[row] if rows.fairness_key is not None else None
    return 0 if key is None else key_hash(key), 0 if share is None else key_hash(share.encode())


def _pieces(log: Log, topic: int, run: Run) -> Iterator[tuple[Frame | None, int, int]]:
    """The frames that a run lies in, and from where to where; no frame: what is there cannot be read for good."""
    for start, stop in segments(run.start, run.mask):
        while start < stop:
            try:
                frame = log.frame(topic, run.partition, start)
            except Corrupt:
                frame = None
            end = min(stop, frame.stop) if frame is not None else start + 1
            yield frame, start, end
            start = end


def _find(found: dict[Keys, int], frame: Frame, start: int, stop: int, shift: int) -> None:
    """Which keys some rows of a frame have; the bit of the first row is `shift`."""
    first, last = start - frame.base, stop - frame.base
    if not frame.uses("key") and not frame.uses("fairness_key"):
        found[NONE] = found.get(NONE, 0) | (1 << last - first) - 1 << shift
    elif frame.is_unpacked or last - first < _MANY_BITS:
        rows = frame.rows
        keys = repeat(0, last - first) if rows.key is None else key_hashes(rows.key[first:last])
        shares = repeat(0, last - first) if rows.fairness_key is None else _of_texts(rows.fairness_key[first:last])
        bit = 1 << shift
        for both in zip(keys, shares, strict=True):
            found[both] = found[both] | bit if both in found else bit
            bit <<= 1
    else:
        for both, bits in _in_batch(frame.batch, first, last):
            found[both] = found.get(both, 0) | bits << shift


def _in_batch(batch: pa.RecordBatch, first: int, last: int) -> Iterator[tuple[Keys, int]]:
    names = batch.schema.names
    none = np.zeros(last - first, np.int64), [0]
    key, key_hashes = _coded(batch.column("key"), first, last) if "key" in names else none
    share, share_hashes = _coded(batch.column("fairness_key"), first, last) if "fairness_key" in names else none
    width = len(share_hashes)
    for code, bits in _masks(key * width + share):
        yield (key_hashes[code // width], share_hashes[code % width]), bits


def _of_texts(values: Sequence[str | None]) -> list[int]:
    return key_hashes(None if value is None else value.encode() for value in values)


def _coded(column: pa.Array, first: int, last: int) -> tuple[NDArray[np.int64], list[int]]:
    """A number for each row, and what hash each number stands for; the last one stands for none."""
    coded = column.slice(first, last - first).dictionary_encode()
    values = [key_hash(value if isinstance(value, bytes) else value.encode()) for value in coded.dictionary.to_pylist()]
    codes = coded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, [*values, 0]


def _masks(codes: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """(number, mask of the rows that have it), for each number there is."""
    order = np.argsort(codes, kind="stable")
    ranked = codes[order]
    cuts = np.flatnonzero(np.diff(ranked)) + 1
    bounds, numbers = [0, *cuts.tolist(), len(order)], ranked[[0, *cuts]].tolist()
    places = order.tolist()
    for number, first, last in zip(numbers, bounds, bounds[1:], strict=False):
        if last - first == 1:
            yield number, 1 << places[first]
        else:
            yield number, _mask(order[first:last])


def _mask(places: NDArray[np.intp]) -> int:
    bits = np.zeros(int(places[-1]) + 1, np.uint8)
    bits[places] = 1
    return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")
