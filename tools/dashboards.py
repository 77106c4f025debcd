"""The dashboards of deploy/grafana, made from the tables below: `python -m tools.dashboards` writes them anew.

A row of a table is a panel: its title, its unit, and what is drawn: expressions with their legends. Grafana's own
format is long and says the same again and again; nobody should have to read it to see what a panel shows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

PLACE = Path(__file__).resolve().parents[1] / "deploy" / "grafana" / "dashboards"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH, HEIGHT, NUMBER_HEIGHT = 8, 7, 4
"""Three panels beside each other; single numbers six."""


class Panel(NamedTuple):
    title: str
    unit: str
    drawn: Sequence[tuple[str, str]]
    about: str = ""
    number: bool = False
    """One number, not a line over time."""


class Variable(NamedTuple):
    name: str
    query: str


class Dashboard(NamedTuple):
    uid: str
    title: str
    rows: Sequence[tuple[str, Sequence[Panel]]]
    variables: Sequence[Variable] = ()


def one(title: str, unit: str, expression: str, about: str = "") -> Panel:
    return Panel(title, unit, [(expression, "")], about, number=True)


def spread(title: str, name: str, about: str) -> Panel:
    """Half of them, 95 and 99 of a hundred."""
    drawn = [
        (f"histogram_quantile({q}, sum by (le) (rate({name}_bucket[$__rate_interval])))", f"p{100 * q:.0f}")
        for q in (0.5, 0.95, 0.99)
    ]
    return Panel(title, "s", drawn, about)


def of_shard(title: str, unit: str, name: str, about: str = "", rate: bool = False) -> Panel:
    """A number of each node at each server."""
    picked = f'{name}{{instance=~"$instance", shard=~"$shard"}}'
    return Panel(
        title, unit, [(f"rate({picked}[$__rate_interval])" if rate else picked, "{{instance}} {{shard}}")], about
    )


_PICKED = '{namespace=~"$namespace", topic=~"$topic"}'
_TOPIC = "{{namespace}}/{{topic}}"


def per_topic(title: str, unit: str, *names: tuple[str, str], about: str = "") -> Panel:
    """What goes up and down, of topics that were picked."""
    drawn = [(f"max by (namespace, topic) ({name}{_PICKED})", f"{_TOPIC} {legend}".strip()) for name, legend in names]
    return Panel(title, unit, drawn, about)


def rate_of(title: str, *names: tuple[str, str], about: str = "") -> Panel:
    drawn = [
        (f"sum by (namespace, topic) (rate({name}{_PICKED}[$__rate_interval]))", f"{_TOPIC} {legend}".strip())
        for name, legend in names
    ]
    return Panel(title, "ops", drawn, about)


OVERVIEW = Dashboard(
    "mqueue-overview",
    "mqueue: overview",
    (
        (
            "Now",
            (
                one("servers that take messages", "none", "sum(mqueue_ready)"),
                one("in", "ops", "sum(rate(mqueue_topic_published_total[$__rate_interval]))"),
                one("out", "ops", "sum(rate(mqueue_topic_acked_total[$__rate_interval]))"),
                one("to do", "short", "sum(mqueue:topic_depth:max)"),
                one("oldest ready", "s", "max(mqueue:topic_oldest_ready_seconds:max)"),
                one("died in the last hour", "short", "sum(increase(mqueue_topic_dead_total[1h]))"),
            ),
        ),
        (
            "Flow",
            (
                Panel(
                    "messages a second",
                    "ops",
                    [
                        ("sum(rate(mqueue_topic_published_total[$__rate_interval]))", "published"),
                        ("sum(rate(mqueue_topic_delivered_total[$__rate_interval]))", "delivered"),
                        ("sum(rate(mqueue_topic_acked_total[$__rate_interval]))", "acked"),
                    ],
                ),
                Panel("most to do", "short", [("topk(10, mqueue:topic_depth:max)", _TOPIC)]),
                Panel("waiting longest", "s", [("topk(10, mqueue:topic_oldest_ready_seconds:max)", _TOPIC)]),
                Panel("in flight", "short", [("topk(10, mqueue:topic_leased:max)", _TOPIC)]),
                Panel(
                    "failures a second",
                    "ops",
                    [
                        ("sum(rate(mqueue_topic_nacked_total[$__rate_interval]))", "nacked"),
                        ("sum(rate(mqueue_topic_timed_out_total[$__rate_interval]))", "lease ran out"),
                        ("sum(rate(mqueue_topic_rejected_total[$__rate_interval]))", "rejected"),
                        ("sum(rate(mqueue_topic_dead_total[$__rate_interval]))", "died"),
                        ("sum(rate(mqueue_topic_expired_total[$__rate_interval]))", "expired"),
                    ],
                ),
                Panel("scheduled", "short", [("sum(mqueue_topic_scheduled)", "messages that are not due")]),
            ),
        ),
        (
            "How long it takes",
            (
                spread("publish", "mqueue_publish_seconds", "Until the answer: durable."),
                spread("deliver", "mqueue_deliver_seconds", "From ready to handed out, first attempts."),
                spread("settle", "mqueue_settle_seconds", "Until the answer: durable."),
            ),
        ),
        (
            "Who calls",
            (
                Panel(
                    "requests a second by status",
                    "reqps",
                    [("sum by (status) (rate(mqueue_http_requests_total[$__rate_interval]))", "{{status}}")],
                ),
                Panel(
                    "connections",
                    "short",
                    [
                        ("sum by (instance) (mqueue_http_connections)", "{{instance}}"),
                        ("sum by (instance) (mqueue_http_requests_in_flight)", "{{instance}} requests"),
                    ],
                ),
                Panel(
                    "turned away a second",
                    "ops",
                    [
                        ("sum by (reason) (rate(mqueue_refusals_total[$__rate_interval]))", "{{reason}}"),
                        ("sum(rate(mqueue_quota_refused_messages_total[$__rate_interval]))", "over a quota"),
                        ("sum(rate(mqueue_shard_refused_total[$__rate_interval]))", "back-pressure"),
                    ],
                ),
            ),
        ),
    ),
)

TOPICS = Dashboard(
    "mqueue-topics",
    "mqueue: topics",
    (
        (
            "Flow",
            (
                rate_of("published a second", ("mqueue_topic_published_total", "")),
                rate_of("delivered a second", ("mqueue_topic_delivered_total", "")),
                rate_of("acked a second", ("mqueue_topic_acked_total", "")),
                rate_of(
                    "failures a second",
                    ("mqueue_topic_nacked_total", "nacked"),
                    ("mqueue_topic_timed_out_total", "lease ran out"),
                    ("mqueue_topic_rejected_total", "rejected"),
                    ("mqueue_topic_released_total", "released"),
                ),
                rate_of(
                    "ends a second",
                    ("mqueue_topic_dead_total", "died"),
                    ("mqueue_topic_expired_total", "expired"),
                    ("mqueue_topic_cancelled_total", "cancelled"),
                ),
                per_topic("oldest ready", "s", ("mqueue_topic_oldest_ready_seconds", "")),
            ),
        ),
        (
            "State",
            (
                per_topic("to do", "short", ("mqueue_topic_depth", ""), about="Of the slowest group, and scheduled."),
                per_topic("ready", "short", ("mqueue_topic_ready", "")),
                per_topic("in flight", "short", ("mqueue_topic_leased", "")),
                per_topic("waiting for a retry", "short", ("mqueue_topic_waiting", "")),
                per_topic("scheduled", "short", ("mqueue_topic_scheduled", "")),
                per_topic("kept", "bytes", ("mqueue_topic_bytes", "")),
            ),
        ),
        (
            "Groups",
            (
                Panel(
                    "lag",
                    "short",
                    [(f"max by (namespace, topic, group) (mqueue_group_lag{_PICKED})", f"{_TOPIC} {{{{group}}}}")],
                ),
                Panel(
                    "oldest ready",
                    "s",
                    [
                        (
                            f"max by (namespace, topic, group) (mqueue_group_oldest_ready_seconds{_PICKED})",
                            f"{_TOPIC} {{{{group}}}}",
                        )
                    ],
                ),
                Panel(
                    "keys that do not go on",
                    "short",
                    [
                        (
                            f"max by (namespace, topic, group) (mqueue_group_blocked_keys{_PICKED})",
                            f"{_TOPIC} {{{{group}}}} blocked",
                        ),
                        (
                            f"max by (namespace, topic, group) (mqueue_group_diverted_keys{_PICKED})",
                            f"{_TOPIC} {{{{group}}}} diverted",
                        ),
                    ],
                ),
            ),
        ),
    ),
    (
        Variable("namespace", "label_values(mqueue_topic_published_total, namespace)"),
        Variable("topic", 'label_values(mqueue_topic_published_total{namespace=~"$namespace"}, topic)'),
    ),
)

CLUSTER = Dashboard(
    "mqueue-cluster",
    "mqueue: cluster",
    (
        (
            "Now",
            (
                one("nodes that deliver", "none", "max(mqueue_nodes)"),
                one("servers that are up", "none", "sum(mqueue:shard_up:max)"),
                one("owned by nobody", "none", "sum(min by (shard) (mqueue_shard_unowned))"),
                one("breakers open", "none", "count(mqueue_shard_breaker == 2) or vector(0)"),
                one("moving", "none", "max(mqueue_vshards_moving)"),
                one("longest flush lag", "s", "max(mqueue_shard_flush_lag_seconds)"),
            ),
        ),
        (
            "Who owns what",
            (
                of_shard("virtual shards owned", "none", "mqueue_shard_owned"),
                of_shard("up", "none", "mqueue_shard_up"),
                of_shard("age of the last beat", "s", "mqueue_shard_beat_age_seconds"),
                of_shard("taken over a second", "ops", "mqueue_shard_takeovers_total", rate=True),
                of_shard("doubts a second", "ops", "mqueue_shard_doubts_total", "All was forgotten.", rate=True),
                Panel(
                    "requests handed to other nodes",
                    "reqps",
                    [
                        (
                            'sum by (result) (rate(mqueue_forwards_total{instance=~"$instance"}[$__rate_interval]))',
                            "{{result}}",
                        )
                    ],
                ),
            ),
        ),
        (
            "Writing",
            (
                of_shard("messages appended a second", "ops", "mqueue_shard_append_rows_total", rate=True),
                Panel(
                    "time of an append",
                    "s",
                    [
                        (
                            "rate(mqueue_shard_append_seconds_total[$__rate_interval])"
                            " / rate(mqueue_shard_appends_total[$__rate_interval])",
                            "{{instance}} {{shard}}",
                        )
                    ],
                ),
                Panel(
                    "time of a commit",
                    "s",
                    [
                        (
                            "rate(mqueue_shard_commit_seconds_total[$__rate_interval])"
                            " / rate(mqueue_shard_commits_total[$__rate_interval])",
                            "{{instance}} {{shard}}",
                        )
                    ],
                ),
                of_shard("buffered messages", "short", "mqueue_shard_buffered_messages"),
                of_shard("buffered bytes", "bytes", "mqueue_shard_buffered_bytes"),
                of_shard("flush lag", "s", "mqueue_shard_flush_lag_seconds"),
                of_shard("breaker", "none", "mqueue_shard_breaker", "0 closed, 1 half open, 2 open."),
                of_shard("refused a second: back-pressure", "ops", "mqueue_shard_refused_total", rate=True),
                of_shard("appends that failed a second", "ops", "mqueue_shard_append_failures_total", rate=True),
            ),
        ),
        (
            "Redis",
            (
                Panel("away", "none", [('mqueue_redis_away{instance=~"$instance"}', "{{instance}}")]),
                Panel(
                    "frames found there",
                    "percentunit",
                    [
                        (
                            "sum(rate(mqueue_redis_frames_found_total[$__rate_interval])) /"
                            " (sum(rate(mqueue_redis_frames_found_total[$__rate_interval]))"
                            " + sum(rate(mqueue_redis_frames_missed_total[$__rate_interval])))",
                            "of those looked for",
                        )
                    ],
                ),
                Panel(
                    "copies a second",
                    "ops",
                    [
                        ("sum(rate(mqueue_redis_copies_sent_total[$__rate_interval]))", "sent"),
                        ("sum(rate(mqueue_redis_copies_dropped_total[$__rate_interval]))", "dropped"),
                    ],
                ),
            ),
        ),
    ),
    (
        Variable("instance", "label_values(mqueue_shard_up, instance)"),
        Variable("shard", "label_values(mqueue_shard_up, shard)"),
    ),
)

SERVER = Dashboard(
    "mqueue-server",
    "mqueue: one server",
    (
        (
            "Disk",
            (
                Panel("free", "bytes", [('mqueue_disk_free_bytes{instance=~"$instance"}', "{{instance}}")]),
                Panel("log", "bytes", [('mqueue_log_bytes{instance=~"$instance"}', "{{instance}}")]),
                Panel(
                    "written a second",
                    "Bps",
                    [('rate(mqueue_log_written_bytes_total{instance=~"$instance"}[$__rate_interval])', "{{instance}}")],
                ),
                spread("sync", "mqueue_commit_sync_seconds", "Shared by all calls of a commit."),
                spread("write", "mqueue_commit_write_seconds", "To pack and write a commit."),
                Panel("damage found", "none", [('mqueue_damage_reports{instance=~"$instance"}', "{{instance}}")]),
            ),
        ),
        (
            "Requests",
            (
                Panel(
                    "a second by route",
                    "reqps",
                    [
                        (
                            "topk(10, sum by (method, route)"
                            ' (rate(mqueue_http_requests_total{instance=~"$instance"}[$__rate_interval])))',
                            "{{method}} {{route}}",
                        )
                    ],
                ),
                Panel(
                    "bytes a second",
                    "Bps",
                    [
                        (
                            'sum(rate(mqueue_http_received_bytes_total{instance=~"$instance"}[$__rate_interval]))',
                            "received",
                        ),
                        ('sum(rate(mqueue_http_sent_bytes_total{instance=~"$instance"}[$__rate_interval]))', "sent"),
                    ],
                ),
                Panel("leases held", "short", [('mqueue_leases{instance=~"$instance"}', "{{instance}}")]),
            ),
        ),
        (
            "Process",
            (
                Panel(
                    "processor",
                    "percentunit",
                    [
                        (
                            'rate(process_cpu_seconds_total{job="mqueue", instance=~"$instance"}[$__rate_interval])',
                            "{{instance}}",
                        )
                    ],
                ),
                Panel(
                    "memory",
                    "bytes",
                    [('process_resident_memory_bytes{job="mqueue", instance=~"$instance"}', "{{instance}}")],
                ),
                Panel(
                    "open files", "short", [('process_open_fds{job="mqueue", instance=~"$instance"}', "{{instance}}")]
                ),
            ),
        ),
    ),
    (Variable("instance", "label_values(mqueue_ready, instance)"),),
)

DASHBOARDS = (OVERVIEW, TOPICS, CLUSTER, SERVER)


def written(dashboard: Dashboard) -> str:
    """As Grafana reads it."""
    document = {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["mqueue"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source(), *map(_variable, dashboard.variables)]},
        "panels": list(_panels(dashboard.rows)),
    }
    return json.dumps(document, indent=1) + "\n"


def _panels(rows: Sequence[tuple[str, Sequence[Panel]]]) -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for title, panels in rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "gridPos": {"x": 0, "y": top, "w": 24, "h": 1},
            "panels": [],
        }
        top += 1
        wide, high = (4, NUMBER_HEIGHT) if panels[0].number else (WIDTH, HEIGHT)
        for place, panel in enumerate(panels):
            number += 1
            across = 24 // wide
            where = {"x": place % across * wide, "y": top + place // across * high, "w": wide, "h": high}
            yield _panel(panel, number, where)
        top += -(-len(panels) // across) * high


def _panel(panel: Panel, number: int, where: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "stat" if panel.number else "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "gridPos": where,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": SOURCE, "expr": expression, "legendFormat": legend or "all"}
            for place, (expression, legend) in enumerate(panel.drawn)
        ],
    }


def _source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _variable(variable: Variable) -> dict[str, Any]:
    return {
        "name": variable.name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": variable.query, "refId": variable.name},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": ["All"], "value": ["$__all"]},
    }


if __name__ == "__main__":
    PLACE.mkdir(parents=True, exist_ok=True)
    for made in DASHBOARDS:
        (PLACE / f"{made.uid}.json").write_text(written(made), encoding="utf-8")
