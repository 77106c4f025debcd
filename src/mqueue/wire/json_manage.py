"""The JSON bodies of `/v1` that manage: topics, groups, the dead, quotas, keys, cursors, transactions.

Shared by server and client. Times go out as RFC 3339 text; durations come in as seconds or text. A list that was cut
says in `next` where to go on: hand it in again as `after`. What the names mean is decided by the broker, not here.
"""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from mqueue.wire.json import DeadOut, MessageIn


class RetentionSettings(Struct, forbid_unknown_fields=True):
    hours: float | UnsetType | None = UNSET
    bytes: int | UnsetType | None = UNSET
    on_ack: bool | UnsetType = UNSET
    compact: bool | UnsetType = UNSET


class WeightSettings(Struct, forbid_unknown_fields=True):
    """Of a hundred deliveries so many are for each lane."""

    critical: int | UnsetType = UNSET
    high: int | UnsetType = UNSET
    normal: int | UnsetType = UNSET
    low: int | UnsetType = UNSET
    background: int | UnsetType = UNSET


class KeyLimitSettings(Struct, forbid_unknown_fields=True):
    """What one fairness key may, in the place of what all may."""

    in_flight_max: int | UnsetType | None = UNSET
    rate: float | UnsetType | None = UNSET


class FairnessSettings(Struct, forbid_unknown_fields=True):
    """Of fairness keys: their weights, and what each of them may have in flight and be given in a second.

    `limits`: of keys that have limits of their own.
    """

    weights: dict[str, int] | UnsetType = UNSET
    in_flight_max: int | UnsetType | None = UNSET
    rate: float | UnsetType | None = UNSET
    limits: dict[str, KeyLimitSettings] | UnsetType = UNSET


class TopicSettings(Struct, forbid_unknown_fields=True):
    """The settings of a topic; in a request, those that are to change."""

    partitions: int | UnsetType = UNSET
    max_retries: int | UnsetType | None = UNSET
    backoff: float | str | UnsetType = UNSET
    backoff_max: float | str | UnsetType = UNSET
    visibility: float | str | UnsetType = UNSET
    default_ttl: float | str | UnsetType | None = UNSET
    max_delay: float | str | UnsetType | None = UNSET
    max_depth: int | UnsetType | None = UNSET
    overflow: str | UnsetType = UNSET
    in_flight_max: int | UnsetType = UNSET
    retention: RetentionSettings | UnsetType = UNSET
    hold: float | str | UnsetType = UNSET
    dlq: bool | str | UnsetType = UNSET
    dlq_expired: bool | UnsetType = UNSET
    dlq_dropped: bool | UnsetType = UNSET
    dedup: str | UnsetType = UNSET
    dedup_window: float | str | UnsetType = UNSET
    dedup_keys_max: int | UnsetType = UNSET
    start: str | UnsetType = UNSET
    policy: str | UnsetType = UNSET
    weights: WeightSettings | UnsetType = UNSET
    age_limit: float | str | UnsetType = UNSET
    fairness: bool | FairnessSettings | UnsetType = UNSET
    ordered: bool | UnsetType = UNSET
    on_failure: str | UnsetType = UNSET
    due_rate: float | UnsetType | None = UNSET
    labels: dict[str, str | None] | UnsetType = UNSET
    trace: bool | UnsetType = UNSET


class TopicsOut(Struct):
    topics: list[str]
    next: str | None = None


class TopicOut(Struct):
    topic: str
    namespace: str
    settings: TopicSettings


class DamageOut(Struct):
    """What of the data directory was found to be damaged, in sentences."""

    reports: list[str]


class PurgeOut(Struct):
    purged: int


class PartitionOut(Struct):
    """`start`: the first offset that is kept; `end`: the one that comes next; `messages`: how many are kept."""

    partition: int
    start: int
    end: int
    messages: int


class PartitionsOut(Struct):
    partitions: list[PartitionOut]


class OffsetOut(Struct):
    """`first`: the lowest offset there is; `next`: where the next message will go; `at`: the first not before `time`.

    `floor`: from here on everything is there, below it only what is kept.
    """

    partition: int
    first: int
    next: int
    at: int | None = None
    floor: int = 0


class OffsetsOut(Struct):
    """`made_at`: when the topic was made. One of the same name that is made later is another."""

    partitions: list[OffsetOut]
    made_at: str | None = None


class GroupIn(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """`start`: "earliest", "latest", an offset, or a time as text."""

    start: int | str = "earliest"
    assigned: bool = False


class GroupOut(Struct):
    """What became of the messages of a group. A message that it was to get is in exactly one of these."""

    group: str
    ready: int
    waiting: int
    leased: int
    acked: int
    dead: int
    expired: int
    cancelled: int
    lapsed: int
    delivered: int
    oldest_ready_seconds: float | None
    assigned: bool = False
    members: int = 0
    rebalances: int = 0
    blocked_keys: int = 0
    diverted_keys: int = 0


class GroupsOut(Struct):
    groups: list[GroupOut]
    next: str | None = None


class JoinIn(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """`member`: an id of one's own; without it one is made."""

    member: str | None = None


class HeartbeatIn(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """`version`: what the caller knows; with `wait` the answer comes when there is a later one, or the time is up.

    `released`: revoked partitions of which all that is held is given back.
    """

    member: str
    generation: int
    version: int = -1
    released: list[int] = []
    wait: float | str | None = None


class LeaveIn(Struct, forbid_unknown_fields=True):
    member: str
    generation: int


class SeekIn(Struct, forbid_unknown_fields=True):
    """`to`: "earliest", "latest", an offset, or a time as text."""

    to: int | str


class RescheduleIn(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One of both."""

    deliver_at: int | str | None = None
    delay: float | str | None = None


class DeadsOut(Struct):
    """The dead that nobody has dealt with. `count`: how many there are, shown or not."""

    messages: list[DeadOut]
    count: int


class RedriveIn(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """`rate`: messages a second."""

    filter: str | None = None
    limit: int | None = None
    dry_run: bool = False
    rate: float | None = None


class RedriveOut(Struct):
    matched: int
    redriven: int
    dry_run: bool


class DeadDeleteIn(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Which of the dead are to go."""

    filter: str | None = None
    limit: int | None = None
    dry_run: bool = False


class DeadDeletedOut(Struct):
    matched: int
    deleted: int
    dry_run: bool


class DeadErrorOut(Struct):
    """Messages that died of the same. `error`: without numbers, ids and times; `ids`: the first few of them."""

    fingerprint: str
    reason: str
    error: str
    transient: bool
    count: int
    first_at: str
    last_at: str
    groups: list[str]
    ids: list[str]


class DeadErrorsOut(Struct):
    errors: list[DeadErrorOut]


class NamespaceOut(Struct):
    namespace: str
    topics: int


class NamespacesOut(Struct):
    namespaces: list[NamespaceOut]
    next: str | None = None


class QuotaIn(Struct, forbid_unknown_fields=True):
    """Messages a minute; null: what the configuration says."""

    per_minute: int | None


class QuotaOut(Struct):
    namespace: str
    per_minute: int | None


class QuotasOut(Struct):
    quotas: list[QuotaOut]
    next: str | None = None


class KeyIn(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """`scopes`: grants such as `read:tenant-a/orders.*`; `expires_at` null: until it is revoked."""

    name: str
    scopes: list[str]
    expires_at: int | str | None = None


class KeyMadeOut(Struct):
    """The key itself, and what its bearer signs requests with who cannot show it: both shown this once."""

    name: str
    key: str
    secret_access_key: str


class KeyOut(Struct):
    name: str
    scopes: list[str]
    created_at: str
    expires_at: str | None = None
    revoked_at: str | None = None


class KeysOut(Struct):
    keys: list[KeyOut]
    next: str | None = None


class CursorIn(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """`offsets` by partition; without them the cursor is made where the topic begins, or kept as it is."""

    offsets: dict[int, int] | None = None
    ttl: float | str = "7d"


class CursorOut(Struct):
    name: str
    topic: str
    offsets: dict[int, int]
    made_at: str
    set_at: str
    expires_at: str


class CursorsOut(Struct):
    cursors: list[CursorOut]


class StageIn(Struct, forbid_unknown_fields=True):
    """A part of a transaction."""

    messages: list[MessageIn]


class StagedOut(Struct):
    """How many messages a part of a transaction has."""

    id: str
    part: str
    messages: int


class CommitIn(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """`parts`: publish these only; without them all that was staged."""

    parts: list[str] | None = None


class TransactionOut(Struct):
    """`state`: staged, committing, committed or aborted. Parts and messages of a commit are those it publishes."""

    id: str
    state: str
    parts: int
    messages: int
    topics: list[str]
    expires_at: str


class StatsOut(Struct):
    """The server, or one namespace, in numbers."""

    topics: int
    groups: int
    leases: int
    published: int
    retained: int
    scheduled: int
    ready: int
    waiting: int
    leased: int
    delivered: int
    acked: int
    dead: int
    expired: int
    cancelled: int
    missing: int = 0
    """Virtual shards of a cluster that nobody could count; only where partial numbers were asked for."""
