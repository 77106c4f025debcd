"""Queues over SQS, with boto3 as it is released: made, found, set up, tagged, emptied, deleted; FIFO; move tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

import mqueue
from mqueue.model.limits import LABELS_MAX
from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer
from tests.cluster.patience import wait_until
from tests.integration.sqs import Queue, client, refused

_NUMBERS = count()
FIFO = {"FifoQueue": "true"}


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="module")
def server(clock: ManualClock) -> Iterator[RunningServer]:
    with RunningServer(clock=clock) as server:
        yield server


@pytest.fixture(scope="module")
def sqs(server: RunningServer) -> Any:
    return client(server.url)


def fresh(sqs: Any, **attributes: str) -> Queue:
    ending = ".fifo" if "FifoQueue" in attributes else ""
    return Queue(sqs, f"queue-{next(_NUMBERS)}{ending}", **attributes)


def test_a_queue_is_made_once(sqs: Any, server: RunningServer) -> None:
    made = sqs.create_queue(QueueName="once", Attributes={"VisibilityTimeout": "60"}, tags={"team": "shop"})
    assert made["QueueUrl"] == f"{server.url}/000000000000/once"
    assert sqs.create_queue(QueueName="once")["QueueUrl"] == made["QueueUrl"]
    sqs.create_queue(QueueName="once", Attributes={"VisibilityTimeout": "60"})
    with refused("QueueAlreadyExists"):
        sqs.create_queue(QueueName="once", Attributes={"VisibilityTimeout": "61"})
    assert sqs.get_queue_url(QueueName="once")["QueueUrl"] == made["QueueUrl"]
    assert sqs.list_queue_tags(QueueUrl=made["QueueUrl"])["Tags"] == {"team": "shop"}


def test_attributes_are_settings_of_the_topic(sqs: Any, server: RunningServer, clock: ManualClock) -> None:
    given = {
        "DelaySeconds": "5",
        "MaximumMessageSize": "2048",
        "MessageRetentionPeriod": "3600",
        "ReceiveMessageWaitTimeSeconds": "7",
        "VisibilityTimeout": "90",
    }
    queue = fresh(sqs, **given)
    shown = sqs.get_queue_attributes(QueueUrl=queue.url, AttributeNames=["All"])["Attributes"]
    name = queue.url.rpartition("/")[2]
    assert {key: shown[key] for key in given} == given
    assert shown["QueueArn"] == f"arn:aws:sqs:us-east-1:000000000000:{name}"
    assert shown["CreatedTimestamp"] == shown["LastModifiedTimestamp"] == str(clock.now() // 1000)
    with mqueue.Client(server.url) as q:
        settings = q.settings(name)
        assert (settings["visibility"], settings["default_ttl"], settings["max_retries"]) == (90, 3600, None)
        q.configure(name, visibility="2m")
    assert queue.attribute("VisibilityTimeout") == "120"
    clock.advance("5s")
    queue.set(DelaySeconds="0")
    assert (queue.attribute("DelaySeconds"), queue.attribute("VisibilityTimeout")) == ("0", "120")
    assert int(queue.attribute("LastModifiedTimestamp")) == int(shown["LastModifiedTimestamp"]) + 5


def test_topics_of_others_are_queues(sqs: Any, server: RunningServer) -> None:
    with mqueue.Client(server.url) as q:
        q.publish("made.elsewhere", b"x")
    url = sqs.get_queue_url(QueueName="made.elsewhere")["QueueUrl"]
    shown = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert json.loads(shown["RedrivePolicy"])["maxReceiveCount"] == 4
    assert (shown["VisibilityTimeout"], shown["ApproximateNumberOfMessages"]) == ("30", "1")


def test_queues_are_listed_in_pages(sqs: Any) -> None:
    for letter in "abc":
        sqs.create_queue(QueueName=f"page-{letter}")
    names = [url.rpartition("/")[2] for url in sqs.list_queues(QueueNamePrefix="page-")["QueueUrls"]]
    assert names == ["page-a", "page-b", "page-c"]
    pages = sqs.get_paginator("list_queues").paginate(QueueNamePrefix="page-", PaginationConfig={"PageSize": 2})
    assert [len(page.get("QueueUrls", [])) for page in pages] == [2, 1]
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix="nothing")


def test_tags_come_and_go(sqs: Any) -> None:
    queue = fresh(sqs)
    sqs.tag_queue(QueueUrl=queue.url, Tags={"a": "1", "b": "2"})
    sqs.tag_queue(QueueUrl=queue.url, Tags={"a": "3", "ö": ""})
    sqs.untag_queue(QueueUrl=queue.url, TagKeys=["b", "never"])
    assert sqs.list_queue_tags(QueueUrl=queue.url)["Tags"] == {"a": "3", "ö": ""}
    with refused("InvalidParameterValue"):
        sqs.tag_queue(QueueUrl=queue.url, Tags={f"tag-{number}": "" for number in range(49)})


def test_purge_and_delete(sqs: Any) -> None:
    queue = fresh(sqs)
    queue.send_batch("a", "b")
    sqs.purge_queue(QueueUrl=queue.url)
    assert queue.receive() == []
    queue.send("c")
    sqs.delete_queue(QueueUrl=queue.url)
    for call in (lambda: queue.send("x"), queue.receive, lambda: queue.attribute("QueueArn")):
        with refused("NonExistentQueue"):
            call()
    assert queue.url not in sqs.list_queues().get("QueueUrls", [])


def test_tenants_are_apart(sqs: Any, server: RunningServer) -> None:
    with mqueue.Client(server.url, namespace="tenant-a") as q:
        q.publish("orders", b"theirs")
        url = sqs.get_queue_url(QueueName="orders", QueueOwnerAWSAccountId="tenant-a")["QueueUrl"]
        assert url == f"{server.url}/tenant-a/orders"
        [message] = sqs.receive_message(QueueUrl=url)["Messages"]
        assert message["Body"] == "theirs"
        with refused("NonExistentQueue"):
            sqs.get_queue_url(QueueName="orders")
        with refused("ReceiptHandleIsInvalid"):
            ours = fresh(sqs)
            sqs.delete_message(QueueUrl=ours.url, ReceiptHandle=message["ReceiptHandle"])
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        assert q.stats("orders").acked == 1


# FIFO


def test_a_group_of_a_fifo_queue_goes_one_by_one(sqs: Any) -> None:
    queue = fresh(sqs, **FIFO, ContentBasedDeduplication="true")
    numbers = [queue.send(body, MessageGroupId="g")["SequenceNumber"] for body in ("1", "2", "3")]
    assert numbers == sorted(numbers)
    assert {len(number) for number in numbers} == {20}
    queue.send("other", MessageGroupId="h")
    first, other = queue.receive()
    assert (first["Body"], other["Body"]) == ("1", "other")
    assert first["Attributes"]["MessageGroupId"] == "g"
    assert first["Attributes"]["SequenceNumber"] == numbers[0]
    queue.change(first, 0)
    assert queue.bodies() == ["1"]


def test_what_is_sent_twice_is_there_once(sqs: Any, clock: ManualClock) -> None:
    queue = fresh(sqs, **FIFO)
    first = queue.send("a", MessageGroupId="g", MessageDeduplicationId="d")
    again = queue.send("a", MessageGroupId="g", MessageDeduplicationId="d")
    other = queue.send("another body", MessageGroupId="h", MessageDeduplicationId="d")
    assert first["MessageId"] == again["MessageId"] == other["MessageId"]
    entries = [
        {"Id": str(n), "MessageBody": body, "MessageGroupId": "g", "MessageDeduplicationId": id}
        for n, (body, id) in enumerate([("b", "e"), ("other", "d"), ("c", "f"), ("c'", "f")])
    ]
    sent = sqs.send_message_batch(QueueUrl=queue.url, Entries=entries)["Successful"]
    assert sent[1]["MessageId"] == first["MessageId"]
    assert sent[2]["MessageId"] == sent[3]["MessageId"]
    [message] = queue.receive()
    assert message["Attributes"]["MessageDeduplicationId"] == "d"
    queue.delete(message)
    assert queue.bodies() == ["b"]
    clock.advance("5m")
    assert queue.send("a", MessageGroupId="g", MessageDeduplicationId="d")["MessageId"] != first["MessageId"]


def test_a_deduplication_id_may_count_in_its_group_alone(sqs: Any) -> None:
    queue = fresh(sqs, **FIFO, DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId")
    ids = [queue.send("x", MessageGroupId=group, MessageDeduplicationId="d")["MessageId"] for group in ("g", "h", "g")]
    assert ids[0] == ids[2] != ids[1]
    assert [message["Attributes"]["MessageDeduplicationId"] for message in queue.receive()] == ["d", "d"]


def test_a_fifo_queue_asks_for_what_it_needs(sqs: Any) -> None:
    queue = fresh(sqs, **FIFO)
    with refused("MissingParameter"):
        queue.send("x", MessageDeduplicationId="d")
    with refused("InvalidParameterValue"):
        queue.send("x", MessageGroupId="g")
    with refused("InvalidParameterValue"):
        queue.send("x", MessageGroupId="g", MessageDeduplicationId="d", DelaySeconds=5)
    with refused("InvalidParameterValue"):
        fresh(sqs).send("x", MessageDeduplicationId="d")
    with refused("InvalidParameterValue"):
        sqs.create_queue(QueueName="forgotten.fifo")
    with refused("InvalidParameterValue"):
        sqs.create_queue(QueueName="not-one", Attributes=FIFO)
    with refused("MissingParameter"):  # all or none: what follows in a group must not overtake what was refused
        queue.send_batch("x", MessageDeduplicationId="d")
    queue.set(DelaySeconds="60")
    queue.send("delayed by the queue", MessageGroupId="g", MessageDeduplicationId="d", DelaySeconds=0)
    with refused("InvalidAttributeName"):
        fresh(sqs, ContentBasedDeduplication="true")
    assert queue.receive() == []


def test_a_poisoned_group_goes_on_behind_its_dead(sqs: Any, clock: ManualClock) -> None:
    queue, dead = (fresh(sqs, **FIFO, ContentBasedDeduplication="true") for _ in range(2))
    queue.bury_in(dead, 1)
    queue.send("poison", MessageGroupId="g")
    queue.send("good", MessageGroupId="g")
    assert queue.bodies() == ["poison"]
    clock.advance("31s")
    assert queue.bodies() == ["good"]
    [message] = dead.receive()
    assert (message["Body"], message["Attributes"]["MessageGroupId"]) == ("poison", "g")


# Dead-letter queues


def test_a_dead_letter_queue_knows_its_sources(sqs: Any) -> None:
    dead, *others = (fresh(sqs) for _ in range(4))
    for queue in others:
        queue.bury_in(dead, 3)
    assert json.loads(others[0].attribute("RedrivePolicy")) == {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 3}
    pages = sqs.get_paginator("list_dead_letter_source_queues").paginate(
        QueueUrl=dead.url, PaginationConfig={"PageSize": 2}
    )
    assert [url for page in pages for url in page["queueUrls"]] == sorted(queue.url for queue in others)
    others[0].set(RedrivePolicy="")
    sqs.delete_queue(QueueUrl=others[1].url)
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead.url)["queueUrls"] == [others[2].url]


def test_a_dead_letter_queue_has_room_for_so_many_sources(sqs: Any, server: RunningServer) -> None:
    dead, last, one_more = fresh(sqs), fresh(sqs), fresh(sqs)
    name = dead.url.rpartition("/")[2]
    with mqueue.Client(server.url) as q:
        there = len(q.settings(name)["labels"])
        q.configure(name, labels={f"note-{number}": "" for number in range(LABELS_MAX - there - 1)})
    last.bury_in(dead, 3)
    with refused("InvalidParameterValue") as caught:
        one_more.bury_in(dead, 3)
    assert "takes no more dead" in str(caught.value)
    last.bury_in(dead, 4)


def test_whose_dead_may_lie_here(sqs: Any) -> None:
    dead, friend, stranger = (fresh(sqs) for _ in range(3))
    allowed = json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": [friend.arn]})
    dead.set(RedriveAllowPolicy=allowed)
    friend.bury_in(dead, 3)
    with refused("InvalidParameterValue"):
        stranger.bury_in(dead, 3)
    dead.set(RedriveAllowPolicy=json.dumps({"redrivePermission": "denyAll"}))
    with refused("InvalidParameterValue"):
        stranger.bury_in(dead, 3)
    assert "RedrivePolicy" not in sqs.get_queue_attributes(QueueUrl=stranger.url, AttributeNames=["All"])["Attributes"]


@pytest.mark.parametrize(
    "policy",
    [
        "{",
        "{}",
        '{"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:nowhere", "maxReceiveCount": 3}',
        '{"deadLetterTargetArn": "arn:aws:sqs:us-east-1:tenant-a:dead-bad", "maxReceiveCount": 3}',
        '{"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:dead-bad", "maxReceiveCount": 0}',
        '{"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:dead-bad", "maxReceiveCount": "many"}',
        '{"deadLetterTargetArn": "dead-bad", "maxReceiveCount": 3}',
    ],
)
def test_a_policy_that_cannot_be_is_refused(sqs: Any, policy: str) -> None:
    sqs.create_queue(QueueName="dead-bad")
    queue = fresh(sqs)
    with refused("InvalidParameterValue"):
        queue.set(RedrivePolicy=policy, VisibilityTimeout="77")
    assert queue.attribute("VisibilityTimeout") == "30"


def bury(queue: Queue, *bodies: str) -> None:
    for body in bodies:
        queue.send(body)
    for message in queue.receive():
        queue.change(message, 0)


def moved(sqs: Any, dead: Queue) -> Any:
    """The last task, once it is over."""

    def last() -> Any:
        [found] = sqs.list_message_move_tasks(SourceArn=dead.arn)["Results"]
        return found

    wait_until(lambda: last()["Status"] not in ("RUNNING", "CANCELLING"))
    return last()


def test_the_dead_go_back(sqs: Any) -> None:
    queue, dead = fresh(sqs), fresh(sqs)
    queue.bury_in(dead, 1)
    bury(queue, "a", "b", "c")
    assert dead.attribute("ApproximateNumberOfMessages") == "3"
    sqs.start_message_move_task(SourceArn=dead.arn)
    task = moved(sqs, dead)
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"], task["SourceArn"]) == ("COMPLETED", 3, dead.arn)
    assert (queue.bodies(), dead.receive()) == (["a", "b", "c"], [])


def test_the_dead_go_elsewhere(sqs: Any) -> None:
    queue, dead, other = (fresh(sqs) for _ in range(3))
    queue.bury_in(dead, 1)
    bury(queue, "a")
    sqs.start_message_move_task(SourceArn=dead.arn, DestinationArn=other.arn, MaxNumberOfMessagesPerSecond=500)
    task = moved(sqs, dead)
    assert (task["Status"], task["DestinationArn"], task["MaxNumberOfMessagesPerSecond"]) == (
        "COMPLETED",
        other.arn,
        500,
    )
    [message] = other.receive()
    assert "DeadLetterQueueSourceArn" not in message["Attributes"]


def test_a_queue_that_was_deleted_is_not_made_anew(sqs: Any) -> None:
    queue, gone, dead = (fresh(sqs) for _ in range(3))
    for one in (queue, gone):
        one.bury_in(dead, 1)
        bury(one, "a")
    sqs.delete_queue(QueueUrl=gone.url)
    sqs.start_message_move_task(SourceArn=dead.arn)
    task = moved(sqs, dead)
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("FAILED", 0)
    assert gone.url.rpartition("/")[2] in task["FailureReason"]
    with refused("NonExistentQueue"):
        sqs.get_queue_attributes(QueueUrl=gone.url)
    assert (queue.receive(), len(dead.receive())) == ([], 2)


def test_a_task_is_cancelled(sqs: Any) -> None:
    queue, dead = fresh(sqs), fresh(sqs)
    queue.bury_in(dead, 1)
    bury(queue, *"abcdefgh")
    handle = sqs.start_message_move_task(SourceArn=dead.arn, MaxNumberOfMessagesPerSecond=1)["TaskHandle"]
    with refused("UnsupportedOperation"):
        sqs.start_message_move_task(SourceArn=dead.arn)
    sqs.cancel_message_move_task(TaskHandle=handle)
    task = moved(sqs, dead)
    assert (task["Status"], task["ApproximateNumberOfMessagesToMove"]) == ("CANCELLED", 8)
    assert task["ApproximateNumberOfMessagesMoved"] < 8
    with refused("ResourceNotFoundException"):
        sqs.cancel_message_move_task(TaskHandle=handle)


def test_a_task_whose_server_has_gone_has_failed_and_can_be_started_again(sqs: Any, server: RunningServer) -> None:
    queue, dead = fresh(sqs), fresh(sqs)
    queue.bury_in(dead, 1)
    bury(queue, "a")
    with mqueue.Client(server.url) as q:
        left = json.dumps({"status": "RUNNING", "at": 0, "total": 5, "moved": 3})
        q.configure(dead.url.rpartition("/")[2], labels={"sqs.move.1": left})
    [task] = sqs.list_message_move_tasks(SourceArn=dead.arn)["Results"]
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"], "TaskHandle" in task) == ("FAILED", 3, False)
    assert task["FailureReason"]
    sqs.start_message_move_task(SourceArn=dead.arn)
    assert moved(sqs, dead)["Status"] == "COMPLETED"
    tasks = sqs.list_message_move_tasks(SourceArn=dead.arn, MaxResults=10)["Results"]
    assert [task["Status"] for task in tasks] == ["COMPLETED", "FAILED"]


def test_a_task_that_cannot_be_is_refused(sqs: Any) -> None:
    queue, dead = fresh(sqs), fresh(sqs)
    with refused("InvalidParameterValue"):
        sqs.start_message_move_task(SourceArn=dead.arn)
    queue.bury_in(dead, 1)
    with refused("ResourceNotFoundException"):
        sqs.start_message_move_task(SourceArn=f"{dead.arn}-not")
    with refused("ResourceNotFoundException"):
        sqs.start_message_move_task(SourceArn=dead.arn, DestinationArn=f"{dead.arn}-not")
    with refused("InvalidParameterValue"):
        sqs.start_message_move_task(SourceArn=dead.arn, MaxNumberOfMessagesPerSecond=501)
    with refused("ResourceNotFoundException"):
        sqs.cancel_message_move_task(TaskHandle="nonsense")
    assert sqs.list_message_move_tasks(SourceArn=dead.arn).get("Results", []) == []
