"""SQS over HTTP, on disk: calls of ten messages, as large as the protocol has them.

The load is made beforehand and not signed, so that the server is the limit; boto3 itself is measured beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import boto3

from benchmarks.disk import scratch
from benchmarks.harness import Profile, Result, short
from benchmarks.http import TEXTS, Turn, asking, published, rate
from benchmarks.http_load import Line, Server, request

KIND = "application/x-amz-json-1.0"
URL = "http://localhost/000000000000/jobs"
BATCH = 10
LINES = 16
BOTO_THREADS = 4


def action(name: str, **body: Any) -> bytes:
    return request("POST", "/", json.dumps(body).encode(), KIND, action=f"AmazonSQS.{name}")


SEND = action(
    "SendMessageBatch",
    QueueUrl=URL,
    Entries=[{"Id": str(number), "MessageBody": text} for number, text in enumerate(TEXTS[:BATCH])],
)
RECEIVE = action("ReceiveMessage", QueueUrl=URL, MaxNumberOfMessages=BATCH)


def batches(profile: Profile) -> Iterator[Result]:
    """And as many in a call of our own, for comparison."""
    with _serving() as server:
        yield from rate(
            server, profile, f"/v1, 10 at a time, {LINES} connections", asking(published(BATCH)), LINES, BATCH, 20e3
        )
        yield from rate(
            server, profile, f"SendMessageBatch of 10, {LINES} connections", asking(SEND), LINES, BATCH, 20e3
        )


def cycle(profile: Profile) -> Iterator[Result]:
    with _serving() as server:
        yield from rate(server, profile, "send, receive and delete 10 at a time", _turn(), LINES, BATCH, 5e3)


def boto(profile: Profile) -> Iterator[Result]:
    """What a program sees that has nothing but boto3: threads of one process share an interpreter."""
    with _serving() as server, ThreadPoolExecutor(BOTO_THREADS) as threads:
        for count in (1, BOTO_THREADS):
            sent = list(threads.map(lambda _: _send(server.port, profile.pause / 2), range(count)))
            total = sum(one[0] / one[1] for one in sent)
            note = f"{short(sum(one[0] for one in sent))} messages"
            yield Result(f"boto3, SendMessageBatch of 10, {count} threads", total, "msg/s", note=note)


@contextmanager
def _serving() -> Iterator[Server]:
    with scratch() as directory, Server(directory / "data") as server:
        _client(server.port).create_queue(QueueName="jobs")
        yield server


def _turn() -> Turn:
    async def turn(line: Line) -> None:
        await line.ask(SEND)
        received = json.loads(await line.ask(RECEIVE)).get("Messages", ())
        if received:
            entries = [{"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]} for n, one in enumerate(received)]
            await line.ask(action("DeleteMessageBatch", QueueUrl=URL, Entries=entries))

    return turn


def _send(port: int, seconds: float) -> tuple[int, float]:
    sqs, sent, started = _client(port), 0, perf_counter()
    entries = [{"Id": str(number), "MessageBody": text} for number, text in enumerate(TEXTS[:BATCH])]
    while not sent or perf_counter() - started < seconds:
        sqs.send_message_batch(QueueUrl=URL, Entries=entries)
        sent += BATCH
    return sent, perf_counter() - started


def _client(port: int) -> Any:
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
    return boto3.session.Session().client(
        "sqs", endpoint_url=f"http://127.0.0.1:{port}", region_name="eu-central-1", **keys
    )
