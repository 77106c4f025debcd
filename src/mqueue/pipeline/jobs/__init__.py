"""What can be done with many messages at once, one module for each."""

from __future__ import annotations

JOBS = {
    "archive": "Copy messages from the log into a lake, once or all the time.",
    "audit": "Prove that the lake has what the log had, or name what is lost, doubled or changed.",
    "snapshot": "Keep the topics of a namespace as they are now, under a name.",
    "restore": "Publish what a snapshot holds into new topics.",
    "compact": "Put small files of a lake together.",
    "replay": "Publish messages of the lake or the log again.",
    "backfill": "Publish the rows of files or tables.",
    "enrich": "Clean, join and score leads, from one topic to another.",
    "report": "Show latency, redelivery and throughput as a page.",
    "dlq": "Group dead messages by what killed them, and redrive a group.",
}
"""Jobs by name, each with what it does. `mqueue.pipeline.jobs.NAME` has its `main`."""
