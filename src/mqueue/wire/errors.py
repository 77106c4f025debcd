"""Which error a code stands for: how what a server refused becomes the error that an embedded broker would raise.

A code that is not in the table, because the server is newer, becomes the error of its status.
"""

from __future__ import annotations

from collections.abc import Iterable

from mqueue.model import errors
from mqueue.model.errors import Error, LeaseLost, Poisoned
from mqueue.wire.json import ErrorBody

_CODES: dict[str, type[Error]] = {
    **{kind.code: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Error)},
    "bad_cron": errors.BadTime,
    "bad_time_zone": errors.BadTime,
    "bad_window": errors.BadTime,
    "crowded": errors.Backpressure,
    "cursors_full": errors.QueueFull,
    "data_lost": errors.Corrupt,
    "dedup_full": errors.QueueFull,
    "delay_too_long": errors.BadTime,
    "file_lost": errors.Corrupt,
    "groups_full": errors.QueueFull,
    "id_clock_ahead": errors.Backpressure,
    "lake_unreachable": errors.Unavailable,
    "map_conflict": errors.ShardDown,
    "members_full": errors.QueueFull,
    "no_cluster": errors.BadSetting,
    "no_java": errors.BadSetting,
    "no_pyspark": errors.BadSetting,
    "nodes_too_old": errors.BadSetting,
    "old_timeline": errors.ShardDown,
    "other_cluster": errors.BadSetting,
    "other_log": errors.Corrupt,
    "other_system": errors.ShardDown,
    "same_server": errors.BadSetting,
    "schedules_full": errors.QueueFull,
    "schema_too_new": errors.BadSetting,
    "servers_missing": errors.BadSetting,
    "set_back": errors.ShardDown,
    "snapshot_changed": errors.Corrupt,
    "too_frequent": errors.BadTime,
    "topics_full": errors.QueueFull,
    "transaction_pooling": errors.ShardDown,
    "transactions_full": errors.QueueFull,
    "unreadable_lake": errors.Corrupt,
}
_STATUSES: dict[int, type[Error]] = {
    400: errors.Refused,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    410: errors.Expired,
    413: errors.TooLarge,
    429: errors.QuotaExceeded,
    502: errors.Unavailable,
    503: errors.Unavailable,
    504: errors.Unavailable,
    507: errors.DiskFull,
}


def kind_of(code: str, status: int) -> type[Error]:
    kind = _CODES.get(code)
    if kind is not None:
        return kind
    return _STATUSES.get(status) or (errors.Refused if 400 <= status < 500 else Error)


def error_of(body: ErrorBody, status: int, retry_after: float | None = None) -> Error:
    """The error that a server told, with all that it told."""
    kind = kind_of(body.code, status)
    if issubclass(kind, LeaseLost):
        return kind(body.message, lost=ids_of(body.lost))
    if issubclass(kind, Poisoned):
        return kind(body.message, applied=body.applied)
    error = kind(body.message, code=body.code, retryable=body.retryable, applied=body.applied, retry_after=retry_after)
    error.status = status
    return error


def ids_of(texts: Iterable[str]) -> tuple[int, ...]:
    return tuple(map(int, texts))
