"""What bodies look like, by their types: shown in the OpenAPI document and on the page of routes."""

from __future__ import annotations

from typing import Any

from mqueue.broker.members import GroupMembers, Membership
from mqueue.broker.numbers import TopicStats
from mqueue.wire import (
    json,
    json_browse,
    json_cluster,
    json_manage,
    json_overview,
    json_schedules,
    json_seeds,
    json_session,
)

PATH_EXAMPLES = {
    "topic": "orders",
    "group": "billing",
    "id": "345876451382054912",
    "token": "7d0c1f5be8a94d9c8f2be3a60c1d9e42",
    "name": "archive",
    "namespace": "tenant-a",
    "transaction": "job-17",
    "partition": "0",
    "file": "main.js",
}

_TIME = "2026-01-14T15:00:00.000Z"
_RECEIPT = {"id": PATH_EXAMPLES["id"], "topic": "orders", "partition": 0, "offset": 7, "duplicate": False}
_MESSAGE = {
    "id": PATH_EXAMPLES["id"],
    "namespace": "default",
    "topic": "orders",
    "partition": 0,
    "offset": 7,
    "published_at": _TIME,
    "deliver_at": _TIME,
    "payload": '{"n":1}',
    "key": "customer-7",
    "headers": {"content-type": "application/json"},
    "priority": 25,
    "attempt": 1,
}
_SEEN = {**_MESSAGE, "attempt": 0}
_LEASE = {
    "topic": "orders",
    "lease": PATH_EXAMPLES["token"],
    "deadline": "2026-01-14T15:00:30.000Z",
    "remaining_ms": 30_000,
    "messages": [_MESSAGE],
}
_STATES = {"ready": 3, "waiting": 1, "leased": 2, "acked": 36, "dead": 0, "expired": 0, "cancelled": 0}
_GROUP = {
    **_STATES,
    "lapsed": 0,
    "delivered": 39,
    "oldest_ready_seconds": 0.25,
    "assigned": True,
    "members": 2,
    "rebalances": 2,
}
_GLANCE = {
    "in_per_second": 12.5,
    "out_per_second": 12.0,
    "ready": 3,
    "waiting": 1,
    "leased": 2,
    "oldest_at": _TIME,
}
_SETTINGS = {"partitions": 6, "max_retries": 5, "visibility": 60.0, "retention": {"hours": 72.0}}
_CURSOR = {
    "name": "archive",
    "topic": "orders",
    "offsets": {"0": 17},
    "made_at": _TIME,
    "set_at": _TIME,
    "expires_at": "2026-01-21T15:00:00.000Z",
}

_SCHEDULE = {
    "name": "archive",
    "topic": "orders",
    "tz": "Europe/Berlin",
    "misfire": "once",
    "paused": False,
    "count": 36,
    "made_at": _TIME,
    "priority": 25,
    "cron": "0 9 * * 1-5",
    "next_at": "2026-01-15T08:00:00.000Z",
    "payload": '{"kind":"daily"}',
    "headers": {"content-type": "application/json"},
}

_EXAMPLES: dict[Any, Any] = {
    json.PublishIn: {
        "messages": [
            {"payload_json": {"n": 1}, "key": "customer-7", "priority": "high"},
            {"payload": "later", "delay": "5m"},
        ]
    },
    json.PublishOut: {"receipts": [_RECEIPT], "durability": "fsync"},
    json.ReceiveIn: {"group": "billing", "limit": 10, "wait": "1s"},
    json.ReceiveTopicsIn: {"topics": ["orders", "returns"], "limit": 10, "wait": "1s"},
    json.LeaseOut: _LEASE,
    json.LeasesOut: {"leases": [_LEASE]},
    json.SettleIn: {"ids": [PATH_EXAMPLES["id"]]},
    json.SettleOut: {"settled": 1, "lost": []},
    json.MessageOut: _SEEN,
    json.MessagesOut: {"messages": [_SEEN], "next": None},
    json.TraceOut: {
        "id": PATH_EXAMPLES["id"],
        "topic": "orders",
        "events": [{"time": _TIME, "kind": "PUBLISHED", "detail": "partition 0, offset 7"}],
        "attempts": 0,
        "latency_ms": None,
        "text": f"message {PATH_EXAMPLES['id']} in orders\n  …",
    },
    json.ExplanationOut: {"code": "leased", "sentence": "it is leased", "until": _TIME, "by": "worker-1", "ahead": 0},
    json_browse.BrowseOut: {"messages": [{**_SEEN, "state": "ready", "payload_bytes": 7}], "next": "0.7"},
    json_browse.PrioritiesOut: {"priorities": [{"priority": 25, "ready": 3, "waiting": 1, "leased": 2}]},
    json_overview.OverviewOut: {
        "at": _TIME,
        "topics": 1,
        "totals": {"topics": 1, **_GLANCE},
        "rows": [{"namespace": "default", "topic": "orders", **_GLANCE, "published": 42, "groups": 1}],
        "namespaces": [{"namespace": "default", "topics": 1, **_GLANCE}],
        "past": [[1768402800000, 12.5, 12.0, 3, 1, 2, 0, 0]],
    },
    json_cluster.ClusterOut: {
        "nodes": [
            {
                "address": "10.0.0.1:8080",
                "version": "0.1.0",
                "started_at": _TIME,
                "connections": 12,
                "leases": 2,
                "storage": "cluster",
                "shards": [{"name": "shard-0", "up": True, "breaker": "closed", "owned": 512, "beat_age_seconds": 0.4}],
            }
        ]
    },
    json_session.LoginIn: {"credential": "mq_…"},
    json_session.SessionOut: {
        "login": False,
        "subject": "shop",
        "via": "key",
        "grants": ["read:tenant-a"],
        "csrf": "5be8a94d9c8f2be3a60c1d9e427d0c1f",
        "version": "0.1.0",
    },
    json_manage.TopicSettings: _SETTINGS,
    json_manage.TopicsOut: {"topics": ["orders", "orders.dlq"], "next": None},
    json_manage.TopicOut: {"topic": "orders", "namespace": "default", "settings": _SETTINGS},
    json_manage.DamageOut: {"reports": []},
    json_manage.PurgeOut: {"purged": 12},
    json_manage.OffsetsOut: {"partitions": [{"partition": 0, "first": 0, "next": 42, "at": 17, "floor": 0}]},
    json_manage.PartitionsOut: {"partitions": [{"partition": 0, "start": 0, "end": 42, "messages": 42}]},
    TopicStats: {
        "topic": "orders",
        "published": 42,
        "retained": 42,
        "bytes": 5120,
        "partitions": 1,
        "scheduled": 0,
        "depth": 6,
        **_STATES,
        "oldest_ready_seconds": 0.25,
        "groups": {"billing": _GROUP},
    },
    json_manage.GroupIn: {"start": "latest"},
    json_manage.JoinIn: {"member": "worker-1"},
    json_manage.HeartbeatIn: {"member": "worker-1", "generation": 3, "version": 7, "wait": "3s"},
    json_manage.LeaveIn: {"member": "worker-1", "generation": 3},
    Membership: {
        "topic": "orders",
        "group": "billing",
        "member": "worker-1",
        "generation": 3,
        "partitions": [0, 1, 2],
        "revoked": [],
        "version": 7,
        "heartbeat_seconds": 3.0,
        "session_seconds": 10.0,
    },
    GroupMembers: {
        "topic": "orders",
        "group": "billing",
        "assigned": True,
        "members": [
            {
                "member": "worker-1",
                "generation": 3,
                "consumer": "",
                "joined_at": _TIME,
                "heard_at": _TIME,
                "partitions": [0, 1, 2],
                "revoked": [],
            }
        ],
        "partitions": [
            {"partition": 0, "member": "worker-1", "moving_to": "", "ready": 3, "waiting": 0, "leased": 1, "end": 40}
        ],
        "rebalances": 2,
        "history": [
            {
                "number": 2,
                "at": _TIME,
                "reason": "worker-1 joined",
                "members": 2,
                "moved": 3,
                "seconds": 0.05,
                "paused_seconds": 0.05,
            }
        ],
    },
    json_manage.GroupOut: {"group": "billing", **_GROUP},
    json_manage.GroupsOut: {"groups": [{"group": "billing", **_GROUP}], "next": None},
    json_manage.SeekIn: {"to": "2026-01-14T12:00:00Z"},
    json_manage.RescheduleIn: {"deliver_at": "2027-01-01T00:00:00Z"},
    json_manage.DeadsOut: {
        "messages": [{**_SEEN, "topic": "orders.dlq", "reason": "max_retries", "group": "billing", "attempts": 4}],
        "count": 1,
    },
    json_manage.RedriveIn: {"filter": "reason = max_retries", "rate": 100.0},
    json_manage.RedriveOut: {"matched": 1, "redriven": 1, "dry_run": False},
    json_manage.DeadDeleteIn: {"filter": "fingerprint = 3f2a9c0b1d4e"},
    json_manage.DeadDeletedOut: {"matched": 1, "deleted": 1, "dry_run": False},
    json_manage.DeadErrorsOut: {
        "errors": [
            {
                "fingerprint": "3f2a9c0b1d4e",
                "reason": "max_retries",
                "error": "order <n> of <ip>: timed out",
                "transient": True,
                "count": 17,
                "first_at": _TIME,
                "last_at": _TIME,
                "groups": ["billing"],
                "ids": [PATH_EXAMPLES["id"]],
            }
        ]
    },
    json_manage.NamespacesOut: {"namespaces": [{"namespace": "default", "topics": 2}], "next": None},
    json_manage.QuotaIn: {"per_minute": 60_000},
    json_manage.QuotaOut: {"namespace": "tenant-a", "per_minute": 60_000},
    json_manage.QuotasOut: {"quotas": [{"namespace": "tenant-a", "per_minute": 60_000}], "next": None},
    json_manage.KeyIn: {"name": "shop", "scopes": ["write:tenant-a/orders", "read:tenant-a"]},
    json_manage.KeyMadeOut: {"name": "shop", "key": "mq_…", "secret_access_key": "0Vq…"},
    json_manage.KeysOut: {
        "keys": [{"name": "shop", "scopes": ["read:tenant-a"], "created_at": _TIME, "expires_at": None}],
        "next": None,
    },
    json_manage.CursorIn: {"offsets": {"0": 17}, "ttl": "7d"},
    json_manage.CursorOut: _CURSOR,
    json_manage.CursorsOut: {"cursors": [_CURSOR]},
    json_schedules.ScheduleIn: {
        "topic": "orders",
        "name": "archive",
        "cron": "0 9 * * 1-5",
        "tz": "Europe/Berlin",
        "message": {"payload_json": {"kind": "daily"}, "priority": "high"},
    },
    json_schedules.ScheduleChange: {"paused": True},
    json_schedules.ScheduleOut: _SCHEDULE,
    json_schedules.SchedulesOut: {"schedules": [_SCHEDULE], "next": None},
    json_manage.StageIn: {"messages": [{"payload": "four"}, {"payload": "five"}]},
    json_manage.StagedOut: {"id": "job-17", "part": "task-3", "messages": 1000},
    json_manage.CommitIn: {"parts": ["task-3"]},
    json_manage.TransactionOut: {
        "id": "job-17",
        "state": "committed",
        "parts": 4,
        "messages": 4000,
        "topics": ["orders"],
        "expires_at": "2026-01-21T15:00:00.000Z",
    },
    json_manage.StatsOut: {
        "topics": 2,
        "groups": 3,
        "leases": 1,
        "published": 42,
        "retained": 42,
        "scheduled": 0,
        "delivered": 39,
        **_STATES,
    },
}

_NUMBER = int(PATH_EXAMPLES["id"])
_PLACE = {"partition": 0, "offset": 7}
_DEQUEUED = {
    "id": _NUMBER,
    "namespace": "default",
    "topic": "orders",
    "priority": 25,
    "payload": "eyJuIjoxfQ==",
    "deliver_after": _TIME,
    "attempt": 1,
    "lease": PATH_EXAMPLES["token"],
}
_OF_OTHER_QUEUES: dict[Any, Any] = {
    list[json_seeds.EnqueueIn] | json_seeds.EnqueueIn: [{"topic": "orders", "priority": 25, "payload": "eyJuIjoxfQ=="}],
    json_seeds.EnqueueOut: {"ids": [_NUMBER]},
    list[json_seeds.DequeuedOut]: [_DEQUEUED],
    json_seeds.DoneIn: {"id": _NUMBER, "topic": "orders"},
    json_seeds.DoneOut: {"status": "ok"},
    json_seeds.ValueIn: {"key": "customer-7", "value": "eyJuIjoxfQ==", "delay": 60},
    json_seeds.PlacedOut: {"id": PATH_EXAMPLES["id"], **_PLACE},
    json_seeds.TextIn: {"message": "hello", "priority": 25},
    json_seeds.NumberedOut: {"id": _NUMBER, **_PLACE},
    json_seeds.NamesOut: {"topics": ["orders"]},
    json_seeds.SpansOut: {"partitions": [{"partition": 0, "messages": 42, "start": 0, "end": 42}]},
    json_seeds.TextsOut: {"messages": [{"id": _NUMBER, **_PLACE, "priority": 25, "message": "hello"}]},
}


def example_of(kind: Any) -> Any:
    """None: nobody has written one."""
    return _EXAMPLES.get(kind, _OF_OTHER_QUEUES.get(kind))
