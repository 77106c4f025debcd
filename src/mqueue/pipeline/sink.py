"""Writing from Spark, once: tasks stage their rows in one transaction, the driver publishes the parts that they name.

    driver   find ── is it published already?
    tasks    stage ── parts, named by task attempt ──► Staged
    driver   publish ── commit(transaction, parts)          or drop ── abort(transaction)

A write is a *family* of transactions: the first has its name, and each that was aborted is followed by one with a
number. So whoever writes again after a failure begins afresh, and whoever writes again after a success finds it.
Attempts that failed leave parts that nobody names: they are dropped by the commit. Knows neither Spark nor its types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
from msgspec import Struct

from mqueue.model.errors import BadSetting, Conflict, Error, NotFound, TooLarge, Unavailable
from mqueue.model.names import check_name, check_transaction
from mqueue.pipeline.connection import CONNECTION_OPTIONS, Connection, connection_of
from mqueue.pipeline.options import refuse_unknown
from mqueue.pipeline.rows import Pieces

if TYPE_CHECKING:
    from mqueue.client.sync import Client

SINK_OPTIONS = (*CONNECTION_OPTIONS, "topic", "txnId")
_OF_SPARK = ("checkpointlocation", "queryname")
"""What a stream tells Spark, and Spark hands on."""
_PUBLISHED = ("committing", "committed")
_ABORTED = "aborted"
_COMMIT_CALLS_MAX = 120
_WHAT_TO_DO = "write less at once: a stream by maxOffsetsPerTrigger, a batch in several writes, each with its txnId"


class Sink(Struct, frozen=True):
    """What a user of the sink said. `topic` None: each row names its own."""

    connection: Connection
    topic: str | None = None
    txn_id: str | None = None

    def __repr__(self) -> str:
        return f"<Sink {self.topic or 'by column topic'} of {self.connection!r}>"


class Place(Struct, frozen=True):
    """The transaction in which a write is staged. `over`: it is published already, and there is nothing to do."""

    transaction: str
    over: bool = False


class Staged(Struct, frozen=True):
    """What one task has staged."""

    place: Place
    parts: tuple[str, ...] = ()
    rows: int = 0


def sink_of(options: Mapping[str, str], token: str | None = None) -> Sink:
    """The options of a write. Their names are lower case, as Spark hands them over."""
    refuse_unknown({name: text for name, text in options.items() if name not in _OF_SPARK}, SINK_OPTIONS)
    topic, txn_id = options.get("topic"), options.get("txnid")
    if txn_id is not None:
        check_transaction(family_of(txn_id))
    if txn_id == "":
        raise BadSetting("txnId ''; it takes a text that is the same when the same rows are written again")
    return Sink(connection_of(options, token), None if topic is None else check_name(topic, "topic"), txn_id)


def family_of(*words: object) -> str:
    return "/".join(["spark", *map(str, words)])


def find(client: Client, family: str) -> Place:
    """Where to stage, or where it was published: the first transaction of a family that was not aborted."""
    aborted, number = -1, 0
    while (state := _state(client, _name(family, number))) == _ABORTED:
        aborted, number = number, 2 * number + 1
    while number - aborted > 1:  # between the two lies the first that was not
        middle = (aborted + number) // 2
        told = _state(client, _name(family, middle))
        if told == _ABORTED:
            aborted = middle
        else:
            number, state = middle, told
    return Place(_name(family, number), state in _PUBLISHED)


def stage(client: Client, sink: Sink, place: Place, task: str, batches: Iterable[pa.RecordBatch]) -> Staged:
    """Put the rows of a task aside, piece by piece, the next being made while one is on its way.

    `task` names the attempt.
    """
    if place.over:
        return Staged(place)
    attempt = f"{task}.{uuid4().hex[:8]}"  # numbers of attempts begin again when a driver does
    parts: list[str] = []
    rows = 0
    try:
        with ThreadPoolExecutor(1) as caller:  # one call at a time: parts are published in the order they came
            under_way: Future[str] | None = None
            for topic, table in _pieces(sink, batches):
                if under_way is not None:
                    parts.append(under_way.result())
                name = f"{attempt}.{len(parts)}"
                under_way = caller.submit(_stage, client, place, topic, table, name)
                rows += table.num_rows
            if under_way is not None:
                parts.append(under_way.result())
    except Conflict as conflict:
        if conflict.code != "transaction_over":
            raise
        if _state(client, place.transaction) in _PUBLISHED:
            return Staged(Place(place.transaction, over=True))  # by another attempt at the same write
        raise Conflict(
            f"{conflict.message}: another task of this write has failed, or the write was given up. If it was too"
            f" large, {_WHAT_TO_DO}",
            code=conflict.code,
        ) from None
    return Staged(place, tuple(parts), rows)


def publish(client: Client, staged: Iterable[Staged]) -> int:
    """Publish what tasks have staged, exactly that, and once however often it is called; how many rows."""
    told = list(staged)
    over = next((one.place.transaction for one in told if one.place.over), None)
    if over is not None:
        _commit(client, over, None)
        return 0
    named = sorted({one.place.transaction for one in told if one.parts})
    if not named:
        return 0
    if len(named) > 1:
        raise Conflict(
            f"rows of one write are staged in {len(named)} transactions, {named[0]!r} the first of them, because one"
            " was aborted meanwhile; nothing is published, write again",
            code="several_transactions",
        )
    _commit(client, named[0], [part for one in told for part in one.parts])
    return sum(one.rows for one in told)


def drop(client: Client, transactions: Iterable[str]) -> None:
    """A write has failed: give back the room of what it staged. What is published stays."""
    for transaction in set(transactions):
        with suppress(Error):  # it expires by itself
            client.abort(transaction)


def forget(client: Client, family: str) -> None:
    """Nobody will write this again. A server remembers no end of transactions, and a stream has many."""
    with suppress(Error):  # it is forgotten by itself, later
        client.forget(family)


def family_before(transaction: str, batch: int) -> str:
    """The family of another batch of the same query."""
    return "/".join([*transaction.split("/")[:2], str(batch)])


def _pieces(sink: Sink, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.Table]]:
    pieces = Pieces(sink.topic)
    for batch in batches:
        yield from pieces.add(batch)
    yield from pieces.rest()


def _name(family: str, number: int) -> str:
    return f"{family}/{number}" if number else family


def _state(client: Client, transaction: str) -> str | None:
    try:
        return client.transaction(transaction).state
    except NotFound:
        return None


def _stage(client: Client, place: Place, topic: str, table: pa.Table, part: str) -> str:
    try:
        client.stage(place.transaction, topic, table, part=part)
    except TooLarge as error:
        if error.code in ("transaction_too_large", "too_many_parts"):
            drop(client, [place.transaction])  # parts of attempts that failed may fill it: the next begins afresh
            raise TooLarge(f"{error.message}; {_WHAT_TO_DO}", code=error.code) from None
        raise
    return part


def _commit(client: Client, transaction: str, parts: list[str] | None) -> None:
    """A large one takes longer than a call may: who asks again goes on with it."""
    for call in range(_COMMIT_CALLS_MAX):
        try:
            client.commit(transaction, parts)
        except Unavailable:
            if call + 1 == _COMMIT_CALLS_MAX or _state(client, transaction) not in _PUBLISHED:
                raise
        else:
            return
