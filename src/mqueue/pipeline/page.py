"""The page of a report: one file, readable in the light and in the dark, with nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from mqueue.model.times import rfc3339
from mqueue.pipeline.hours import COUNTS, PERCENTILES, Findings, Hour, Latency
from mqueue.pipeline.plots import plot

TOPICS_MAX = 20
"""So many topics have plots of their own; the table has all of them."""

_STYLE = """
:root { color-scheme: light dark; --line: #8a8f9855; --soft: #6a7079; }
@media (prefers-color-scheme: dark) { :root { --soft: #a3a9b3; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2.5rem 0 .5rem; }
p, figcaption { color: var(--soft); margin: .25rem 0 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; width: 100%; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
td { font-variant-numeric: tabular-nums; }
figure { margin: 1rem 0; } svg { width: 100%; height: auto; }
details summary { cursor: pointer; color: var(--soft); }
"""
_SHARES = [f"p{share * 100:g}" for share in PERCENTILES]


def page(findings: Findings) -> str:
    """The whole document."""
    return "\n".join(_lines(findings)) + "\n"


def _lines(findings: Findings) -> Iterator[str]:
    since = rfc3339(findings.since_ms) if findings.since_ms is not None else "the first message"
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>mqueue report</title>'
    yield f'<meta name="viewport" content="width=device-width">\n<style>{_STYLE}</style>\n</head>\n<body>'
    yield "<h1>What became of messages</h1>"
    yield f"<p>From {escape(since)} to {rfc3339(findings.until_ms)}, hours in UTC.</p>"
    topics = findings.topics()
    yield _table(["topic", *(_words(name) for name in COUNTS)], [_totals(findings, topic) for topic in topics])
    yield "<h2>Publish to ack, by group</h2>"
    yield "<p>Without messages that were to be delivered later. Seconds.</p>"
    heads = ["topic", "group", "messages", *_SHARES, "longest", "first delivery, p50", "delivered again"]
    rows = [[row.topic, row.group, *_latency(row.latency)] for row in findings.groups]
    yield _table(heads, rows) if rows else "<p>Nothing was acked.</p>"
    for topic in topics[:TOPICS_MAX]:
        yield from _topic(topic, [hour for hour in findings.hours if hour.topic == topic])
    if len(topics) > TOPICS_MAX:
        yield f"<p>{len(topics) - TOPICS_MAX} more topics have fewer messages, and no plots.</p>"
    yield "</body>\n</html>"


def _topic(topic: str, hours: Sequence[Hour]) -> Iterator[str]:
    yield f"<h2>{escape(topic)}</h2>\n<figure>{plot(hours, topic)}</figure>"
    rows = [
        [rfc3339(hour.start_ms)[:16], *(f"{hour.counts[name]:,}" for name in COUNTS), *_latency(hour.latency)[1:5]]
        for hour in hours
    ]
    table = _table(["hour", *map(_words, COUNTS), *_SHARES, "longest"], rows)
    yield f"<details><summary>By the hour</summary>{table}</details>"


def _totals(findings: Findings, topic: str) -> list[str]:
    return [topic, *(f"{findings.total(name, topic):,}" for name in COUNTS)]


def _latency(latency: Latency | None) -> list[str]:
    if latency is None:
        return ["–"] * (len(PERCENTILES) + 4)
    seconds = [f"{value:.3f}" for value in (*latency.seconds, latency.longest, latency.first)]
    return [f"{latency.messages:,}", *seconds, f"{latency.again:.1%}"]


def _words(name: str) -> str:
    return name.replace("_", " ")


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
