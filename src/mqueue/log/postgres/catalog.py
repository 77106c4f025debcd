"""The topics of a shard: names, settings as bytes, virtual shards. A name that is made again is another topic."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from mqueue.log.postgres.arrays import Longs
from mqueue.log.postgres.link import Link
from mqueue.model.names import LEDGER, staging_name


class TopicRow(Struct, frozen=True):
    id: int
    namespace: str
    name: str
    vshard: int
    settings: bytes
    first_settings: bytes
    made_at: int
    hidden: bool
    version: int = 1
    """Rises whenever its settings change."""


_COLUMNS = "t.topic_id, t.namespace, t.name, t.vshard, t.settings, t.first_settings, t.made_at, t.hidden, t.version"


def make_topic(
    link: Link,
    namespace: str,
    name: str,
    vshard: int,
    settings: bytes,
    now: int | None,
    hidden: bool = False,
    limit: int | None = None,
) -> tuple[TopicRow, bool] | None:
    """The topic of that name, and whether it was made just now. None: its namespace has `limit` of them here already.

    Hidden ones are not counted. Raises Moved.
    """
    rows = link.call(
        f"select {_COLUMNS}, m.made from mqueue.make_topic("  # noqa: S608 - constants only
        "%b::text, %b::text, %b, %b, %b::bigint, %b, %b::bigint) m, lateral (select (m.topic).*) t",
        (namespace, name, vshard, settings, now, hidden, None if hidden else limit),
    )
    return (TopicRow(*rows[0][:-1]), rows[0][-1]) if rows else None


def topics_of(link: Link, vshards: Sequence[int] | None) -> list[TopicRow]:
    """All topics of these virtual shards, hidden ones too, oldest first; None: of all that are here."""
    rows = link.call(
        f"select {_COLUMNS} from mqueue.topics t where t.deleted_at is null "  # noqa: S608
        "and (%b or t.vshard = any (%b::bigint[])) order by t.topic_id",
        (vshards is None, Longs(vshards or ())),
    )
    return [TopicRow(*row) for row in rows]


def find_topic(link: Link, namespace: str, name: str) -> TopicRow | None:
    rows = link.call(
        f"select {_COLUMNS} from mqueue.topics t "  # noqa: S608
        "where t.namespace = %b::text and t.name = %b::text and t.deleted_at is null",
        (namespace, name),
    )
    return TopicRow(*rows[0]) if rows else None


def names(link: Link, namespace: str, after: str, limit: int) -> list[str]:
    """Names of topics that are not hidden, sorted by code points, those after one."""
    rows = link.call(
        "select name from mqueue.topics where namespace = %b::text and name > %b::text and deleted_at is null "
        "and not hidden and vshard in (select vshard from mqueue.vshards where state = 'active') "
        "order by name limit %b",
        (namespace, after, limit),
    )
    return [name for (name,) in rows]


def namespaces(link: Link) -> dict[str, int]:
    """Those that have topics that are not hidden, sorted, and how many."""
    rows = link.call(
        "select namespace, count(*) from mqueue.topics where deleted_at is null and not hidden "
        "and vshard in (select vshard from mqueue.vshards where state = 'active') group by 1 order by 1"
    )
    return dict(rows)


def count(link: Link, namespace: str) -> int:
    """How many of those a namespace has."""
    rows = link.call(
        "select count(*) from mqueue.topics where namespace = %b::text and deleted_at is null and not hidden "
        "and vshard in (select vshard from mqueue.vshards where state = 'active')",
        (namespace,),
    )
    return int(rows[0][0])


def set_topic(link: Link, owner: UUID, epoch: int, topic: int, settings: bytes) -> None:
    """Raises Fenced, NoTopic."""
    link.call("select mqueue.set_topic(%b, %b, %b, %b)", (owner, epoch, topic, settings))


def drop_topic(link: Link, owner: UUID, epoch: int, topic: int, now: int | None) -> None:
    """Nothing is appended to it after this. Its frames go with their days. Raises Fenced, NoTopic."""
    link.call("select mqueue.drop_topic(%b, %b, %b, %b::bigint)", (owner, epoch, topic, now))


def stored_as(name: str, vshard: int) -> str:
    """Topics that users never see have the same names in every virtual shard: here its number stands before them."""
    return f"{vshard}{name}" if name.startswith(LEDGER) else name


def known_as(row: TopicRow) -> TopicRow:
    """A topic by the name that its store knows."""
    return replace(row, name=row.name[row.name.index(LEDGER) :]) if row.hidden else row


def rows_of(link: Link, topics: Sequence[int]) -> list[TopicRow]:
    """Topics by their numbers, those that are still there."""
    rows = link.call(
        f"select {_COLUMNS} from mqueue.topics t where t.topic_id = any (%b::bigint[]) "  # noqa: S608
        "and t.deleted_at is null order by t.topic_id",
        (Longs(topics),),
    )
    return [TopicRow(*row) for row in rows]


def transaction_home(link: Link, namespace: str, transaction: str) -> int | None:
    """The virtual shard where a transaction was staged last, also if it is over; None: nothing is known of it here."""
    rows = link.call(
        "select t.vshard from mqueue.topics t where t.namespace = %b::text and t.hidden "
        "and t.name = t.vshard::text || %b::text order by t.topic_id desc limit 1",
        (namespace, staging_name(transaction)),
    )
    return int(rows[0][0]) if rows else None
