"""`python -m benchmarks`: run them, print a table, write JSON lines."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import (
    amqp,
    cluster,
    dashboard,
    disk_depth,
    disk_rates,
    disk_recovery,
    flight,
    footprint,
    harness,
    http,
    http_neighbours,
    http_push,
    scheduled,
    sqs,
    telemetry,
    turns,
    worst,
)
from benchmarks.disk import file_system, home
from benchmarks.harness import Benchmark
from benchmarks.memory_broker import Arrow, Batches, DeepPublish, DeepReceive, Fanout, Singles, flat, rates

RESULTS = Path(__file__).parent / "results" / "latest.json"

BENCHMARKS = (
    Benchmark("rates/singles", "publish; receive(limit=1) + m.ack()", rates(Singles)),
    Benchmark("rates/batches", "publish_many + receive + ack(msgs), 1000 at a time", rates(Batches)),
    Benchmark("rates/arrow", "publish_arrow + receive_arrow + lease.ack(), 1000 at a time", rates(Arrow)),
    Benchmark("rates/fan-out", "Arrow batches to 10 groups", rates(Fanout)),
    Benchmark("flat/publish", "the same on a deep queue against a shallow one", flat(DeepPublish)),
    Benchmark("flat/receive", "the same on a deep queue against a shallow one", flat(DeepReceive)),
    Benchmark("flat/batches", "the same on a deep queue against a shallow one", flat(Batches)),
    Benchmark("flat/arrow", "the same on a deep queue against a shallow one", flat(Arrow)),
    Benchmark("flat/fan-out", "the same on a deep queue against a shallow one", flat(Fanout)),
    Benchmark("memory/queued", "bookkeeping outside the frames per queued message", footprint.queued),
    Benchmark("memory/scheduled", "messages scheduled at random times over a year", footprint.scheduled),
    Benchmark("scheduled/listing", "list, count, cancel and move among scheduled messages", scheduled.listing),
    Benchmark("scheduled/capped", "many that are due at once, under a due_rate", scheduled.capped),
    Benchmark("worst/alternating", "singles that alternate between two priorities", worst.alternating),
    Benchmark("worst/random-acks", "single acks in random order in one long run", worst.random_acks),
    Benchmark("worst/given-back", "every second message in flight given back singly", worst.given_back),
    Benchmark("worst/groups", "100 groups on one topic", worst.many_groups),
    Benchmark("worst/new-group", "the first message of a new group on a deep queue", worst.new_group),
    Benchmark("worst/pauses", "the longest single call on a deep queue", worst.pauses),
    Benchmark("worst/drop-oldest", "publishing to a full queue", worst.drop_oldest),
    Benchmark("worst/topics", "10,000 topics", worst.many_topics),
    Benchmark("turns/ordered", "10,000 ordering keys, 16 workers, against no order", turns.ordered),
    Benchmark("turns/flood", "how long quiet fairness keys wait while another one floods", turns.flood),
    Benchmark("disk/singles", "one publisher alone, each message durable before the next", disk_rates.singles),
    Benchmark("disk/weaker", "the same with durability os and memory", disk_rates.weaker),
    Benchmark("disk/batches", "batches of 1000, durable before the answer", disk_rates.batches),
    Benchmark("disk/crowd", "64 publishers of single messages at once", disk_rates.crowd),
    Benchmark("disk/receive", "receive(limit=100) + ack(msgs)", disk_rates.receive),
    Benchmark("disk/one-by-one", "receive(1) + ack by many tasks at once", disk_rates.pipelined),
    Benchmark("disk/depth", "batches of 1000 on queues of different depths", disk_depth.depths),
    Benchmark("disk/recovery", "opening a deep queue; reading, finding and tracing in it", disk_recovery.deep),
    Benchmark("disk/recovery-singles", "opening a log of single messages", disk_recovery.alone),
    Benchmark("disk/recovery-scheduled", "opening a queue of scheduled messages", disk_recovery.scheduled),
    Benchmark("disk/checkpoint", "the longest publish while a checkpoint is taken", disk_recovery.checkpoint_pause),
    Benchmark("http/batches", "publishes of many messages to a server on disk", http.batches),
    Benchmark("http/singles", "publishes of one message", http.singles),
    Benchmark("http/cycle", "publish, receive and ack", http.cycle),
    Benchmark("http/latency", "publishes on a schedule that waits for nobody", http.latency),
    Benchmark("http/neighbours", "a quiet namespace beside one that floods", http_neighbours.neighbours),
    Benchmark("http/push", "messages pushed to a consumer", http_push.push),
    Benchmark("http/connections", "connections that are idle, or slow", http.connections),
    Benchmark("sqs/batches", "SendMessageBatch of ten messages to a server on disk", sqs.batches),
    Benchmark("sqs/cycle", "ten messages sent, received and deleted, in three calls", sqs.cycle),
    Benchmark("sqs/boto3", "the same with boto3, which is what it takes", sqs.boto),
    Benchmark("flight/put", "DoPut of batches to a server on disk", flight.put),
    Benchmark("flight/scan", "DoGet of the log", flight.scan),
    Benchmark("flight/exchange", "receive and ack over DoExchange", flight.exchange),
    Benchmark("amqp/beside", "publishes with confirms and consumers with acks, beside RabbitMQ", amqp.beside),
    Benchmark("amqp/connections", "connections of AMQP that are idle", amqp.idle),
    Benchmark("dashboard/updates", "one look at 10,000 topics, and what is told of it", dashboard.updates),
    Benchmark("dashboard/paint", "the dashboard in a browser, over 10,000 topics", dashboard.paint),
    Benchmark("telemetry/trace", "our own trace, against trace=False", telemetry.trace),
    Benchmark("telemetry/server", "spans of a server on disk, against none", telemetry.spans),
    Benchmark("telemetry/client", "spans of a client, against none", telemetry.clients),
    Benchmark("cluster/publish", "publishes to a node, committed by PostgreSQL", cluster.publish),
    Benchmark("cluster/cycle", "publish, receive and ack at a node, and with a row for each message", cluster.cycle),
    Benchmark("cluster/dequeue", "one message, handed out in the process of the node", cluster.dequeue),
    Benchmark("cluster/transaction", "the same while somebody holds a transaction open", cluster.flat_transaction),
    Benchmark("cluster/backlog", "the same on top of many messages that wait", cluster.flat_backlog),
)


def main(words: Sequence[str] | None = None) -> int:
    """Run what was asked for; 0 even if a row falls short: this measures, it does not judge a build."""
    asked = _parser().parse_args(words)
    chosen = [one for one in BENCHMARKS if not asked.only or any(name in one.name for name in asked.only)]
    if asked.list:
        for one in chosen:
            print(f"{one.name:<20} {one.about}")
        return 0
    if not chosen:
        print(f"no benchmark is named like {', '.join(asked.only)}; see --list", file=sys.stderr)
        return 2
    profile = harness.QUICK if asked.quick else harness.FULL
    if asked.depth is not None:
        profile = profile.at_depth(asked.depth)
    _measure(chosen, profile, asked.json)
    return 0


def _measure(chosen: Sequence[Benchmark], profile: harness.Profile, path: Path) -> None:
    lines = [{**harness.machine(profile), "file_system": file_system(home())}]
    print(f"rows named disk: {lines[0]['file_system'] or 'an unknown file system'}")
    print(harness.HEADER)
    for one in chosen:
        print(f"{one.name}: {one.about}")
        for result in harness.run(one, profile):
            print(harness.as_line(result), flush=True)
            lines.append(harness.as_json(one.name, result))
    harness.write(path, lines)
    verdicts = [line.get("verdict") for line in lines]
    print(f"{verdicts.count('ok')} ok, {verdicts.count('short')} short")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench ARGS=…", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, under 30 s in all")
    parser.add_argument(
        "--depth", type=_depth, help="how many messages lie in a deep queue (10,000,000; quick 100,000)"
    )
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="those whose name contains this")
    parser.add_argument("--list", action="store_true", help="what there is")
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the JSON lines go")
    return parser


def _depth(word: str) -> int:
    depth = int(word)
    if depth < 2000:
        raise argparse.ArgumentTypeError(f"{depth}: a deep queue has at least 2000 messages")
    return depth


if __name__ == "__main__":
    sys.exit(main())
