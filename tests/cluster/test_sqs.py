"""SQS at the nodes of a cluster: whichever is asked, with boto3 as it is released."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError

from mqueue.config import Cluster, Config, Metrics, Secret
from mqueue.testing import PostgresServer
from mqueue.testing.server import RunningServer
from tests.cluster.patience import PATIENCE_SECONDS, wait_until
from tests.integration.sqs import Queue, client, refused
from tests.integration.test_security_http import security
from tests.integration.test_sqs_signed import signing

QUEUES = [f"queue-{number}" for number in range(6)]


@pytest.fixture(scope="module")
def nodes(postgres: PostgresServer) -> Iterator[list[Any]]:
    """Clients of two nodes over two PostgreSQL servers: of six queues some are here and some there."""
    databases = tuple(Secret(postgres.create(f"sqs_{number}")) for number in range(2))
    config = Config(metrics=Metrics(enabled=False), cluster=Cluster(databases))
    with RunningServer(config) as first, RunningServer(config) as second:
        yield [client(first.url), client(second.url)]


def at(sqs: Any, queue: Queue) -> Queue:
    """The same queue, asked at another node."""
    return Queue(sqs, queue.url.rpartition("/")[2])


def test_messages_are_those_of_the_cluster(nodes: list[Any]) -> None:
    first, second = nodes
    for name in QUEUES:
        queue = Queue(first, name)
        sent = queue.send_batch("a", "b")["Successful"]
        again = at(second, queue)
        found = again.receive(MessageAttributeNames=["All"])
        assert [message["MessageId"] for message in found] == [one["MessageId"] for one in sent]
        queue.delete(found[0])
        queue.change(found[1], 0)
        [last] = again.receive(WaitTimeSeconds=20)  # it is ready at the next tick
        assert (last["Body"], last["Attributes"]["ApproximateReceiveCount"]) == ("b", "2")
        with refused("MessageNotInflight"):
            again.change(found[1], 10)
        with refused("ReceiptHandleIsInvalid"):
            queue.delete(found[1])
        again.change(last, 0)
        queue.delete(last)  # nobody has received it since
        again.delete(last)
        assert queue.attribute("ApproximateNumberOfMessagesNotVisible") == "0"
    urls = second.list_queues(QueueNamePrefix="queue-")["QueueUrls"]
    assert [url.rpartition("/")[2] for url in urls] == QUEUES
    with refused("NonExistentQueue"):
        second.send_message(QueueUrl="http://localhost/000000000000/nowhere", MessageBody="x")


def test_who_waits_at_one_node_gets_what_is_sent_at_another(nodes: list[Any]) -> None:
    with ThreadPoolExecutor(1) as thread:
        for name in QUEUES[:3]:
            queue = Queue(nodes[0], f"waiting-{name}")
            waiting = thread.submit(at(nodes[1], queue).bodies, WaitTimeSeconds=20)
            queue.send("x")
            assert waiting.result(PATIENCE_SECONDS) == ["x"]


def test_attributes_and_tags_are_everywhere(nodes: list[Any]) -> None:
    first, second = nodes
    for name in QUEUES[:3]:
        queue = Queue(first, f"set-{name}", DelaySeconds="900")
        queue.send("later")
        other = at(second, queue)
        other.set(DelaySeconds="0", MaximumMessageSize="1024")
        second.tag_queue(QueueUrl=other.url, Tags={"team": "shop"})
        assert queue.attribute("MaximumMessageSize") == "1024"
        assert first.list_queue_tags(QueueUrl=queue.url)["Tags"] == {"team": "shop"}
        with refused("InvalidParameterValue"):
            queue.send("x" * 1025)
        queue.send("now")
        assert other.bodies() == ["now"]
        assert queue.attribute("ApproximateNumberOfMessagesDelayed") == "1"


def test_fifo_queues_hold_at_every_node(nodes: list[Any]) -> None:
    for name in QUEUES[:3]:
        queue = Queue(nodes[0], f"{name}.fifo", FifoQueue="true")
        other = Queue(nodes[1], f"{name}.fifo", FifoQueue="true")
        ids = {
            one.send(body, MessageGroupId="g", MessageDeduplicationId="d")["MessageId"]
            for one, body in ((queue, "a"), (other, "a"), (other, "another"))
        }
        assert len(ids) == 1
        other.send("b", MessageGroupId="g", MessageDeduplicationId="e")
        [message] = other.receive()
        assert (message["Body"], queue.receive()) == ("a", [])
        queue.delete(message)
        assert queue.bodies() == ["b"]


def test_the_dead_go_where_the_policy_says_and_come_back(nodes: list[Any]) -> None:
    """Also where both are delivered by different nodes, from different servers."""
    first, second = nodes
    dead = Queue(first, "dead")
    for name in QUEUES:
        queue = Queue(first, f"dying-{name}")
        queue.bury_in(dead, 1)
        queue.send(name)
        queue.change(queue.receive()[0], 0)
    sources = second.list_dead_letter_source_queues(QueueUrl=dead.url)["queueUrls"]
    assert [url.rpartition("/")[2] for url in sources] == [f"dying-{name}" for name in QUEUES]
    wait_until(lambda: at(second, dead).attribute("ApproximateNumberOfMessages") == str(len(QUEUES)))
    second.start_message_move_task(SourceArn=dead.arn)

    def status() -> str:
        found: str = first.list_message_move_tasks(SourceArn=dead.arn)["Results"][0]["Status"]
        return found

    wait_until(lambda: status() == "COMPLETED")
    for name in QUEUES:
        assert Queue(second, f"dying-{name}").bodies() == [name]


def test_who_signs_is_known_at_every_node(database: str) -> None:
    config = Config(security=security(), metrics=Metrics(enabled=False), cluster=Cluster((Secret(database),)))
    with RunningServer(config) as first, RunningServer(config) as second:
        sqs = signing(first, "shop", "*:*")
        secret = sqs._request_signer._credentials.secret_key

        def knows(node: RunningServer) -> bool:
            try:
                client(node.url, "shop", secret).list_queues()
            except ClientError:
                return False
            return True

        wait_until(lambda: knows(second))
        for name in QUEUES[:4]:
            url = sqs.create_queue(QueueName=name)["QueueUrl"]
            sqs.send_message(QueueUrl=url, MessageBody="x")
            [message] = client(second.url, "shop", secret).receive_message(QueueUrl=url)["Messages"]
            assert message["Body"] == "x"
            with refused("InvalidClientTokenId"):
                client(second.url, "shop", "wrong").receive_message(QueueUrl=url)


def test_a_node_that_goes_takes_nothing_with_it(database: str) -> None:
    """What it delivered is delivered by the other one; who asks that one meanwhile waits for it."""
    config = Config(metrics=Metrics(enabled=False), cluster=Cluster((Secret(database),)))
    with RunningServer(config) as stays:
        sqs = client(stays.url)
        with RunningServer(config) as goes:
            queues = [Queue(client(goes.url), name) for name in QUEUES]
            for queue in queues:
                queue.send_batch("a", "b")
            held = [queue.receive(limit=1, VisibilityTimeout=3600)[0] for queue in queues]
        for queue, message in zip(queues, held, strict=True):
            there = Queue(sqs, queue.url.rpartition("/")[2])
            there.delete(message)
            assert there.bodies() == ["b"]
