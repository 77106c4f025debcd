"""The calls of a load, each on a client of one node, each written down: nothing is tried twice behind our back, unless
that is what is looked at."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import mqueue
from mqueue.client.settle import settle_lease
from mqueue.model.errors import Error, LeaseLost
from mqueue.wire.json import SettleIn
from tests.cluster.faults.history import (
    NO,
    OK,
    UNKNOWN,
    AnyCall,
    Got,
    History,
    Publish,
    Receipt,
    Receive,
    Sent,
    Settle,
    Topic,
    digest,
    now,
    uid_of,
)

PATIENT, HASTY, BRIEF = "30s", "3s", "1s"


class Caller:
    """Clients of all nodes that were ever asked, of one namespace. Shared by threads. What they receive, they do for a
    group; `audience`: the histories of other groups, which are to know what was published. `retry`: they are as users
    have them, and try again as long as is usual."""

    def __init__(
        self,
        history: History,
        namespace: str,
        group: str = "default",
        audience: Sequence[History] = (),
        retry: bool = False,
    ) -> None:
        self.history = history
        self.group = group
        self._audience = audience
        self._retry = retry
        self._namespace = namespace
        self._clients: dict[tuple[str, str], mqueue.Client] = {}
        self._lock = threading.Lock()

    def client(self, url: str, timeout: str = HASTY) -> mqueue.Client:
        timeout = PATIENT if self._retry else timeout
        with self._lock:
            found = self._clients.get((url, timeout))
            if found is None:
                found = mqueue.Client(url, namespace=self._namespace, timeout=timeout, retry=self._retry)
                self._clients[url, timeout] = found
            return found

    def close(self) -> None:
        """Nothing is given back: nobody would have written that down."""
        client: Any
        for client in self._clients.values():
            client._core._home.holdings._leases.clear()
            with suppress(Error):
                client.close()

    def publish(
        self, url: str, topic: str, sent: Sequence[Sent], drafts: Sequence[mqueue.Draft], durability: str | None = None
    ) -> Publish:
        call = Publish(url, topic, now(), sent=list(sent))
        with self._noted(call):
            receipts = self.client(url).publish_many(topic, drafts, durability=durability)
            call.receipts = [Receipt(one.id, one.partition, one.offset, one.duplicate) for one in receipts]
            call.durability = receipts[0].durability
        for history in self._audience:
            history.add(call)
        return call

    def receive(
        self, url: str, topic: str, limit: int, seconds: float, *, wait: float = 0.0, timeout: str = HASTY
    ) -> Receive:
        call = Receive(url, topic, now(), lasting=seconds)
        with self._noted(call):
            messages: list[Any] = self.client(url, timeout).receive(
                topic, limit, group=self.group, wait=wait, visibility=seconds
            )
            call.got = [
                Got(uid_of(m.payload), m.id, m.partition, m.offset, m.attempt, m.priority, digest(m.payload))
                for m in messages
            ]
            if messages:
                call.token = messages[0]._lease.token
                call.lasting = messages[0]._lease.lasting_ms / 1000
        return call

    def settle(
        self,
        url: str,
        topic: str,
        verb: str,
        token: str,
        ids: Sequence[int],
        *,
        seconds: float = 0.0,
        timeout: str = HASTY,
    ) -> Settle:
        """By a token, whoever it was given to: any node has to know what it is worth."""
        call = Settle(url, topic, now(), verb=verb, token=token, ids=list(ids), lasting=seconds)
        told = SettleIn()
        if verb == "extend":
            told.visibility = f"{seconds * 1000:.0f}ms"
        elif verb == "nack" and seconds:
            told.delay = f"{seconds * 1000:.0f}ms"
        client: Any = self.client(url, timeout)
        with self._noted(call):
            try:
                done = client._portal.run(settle_lease(client._core._window, verb, token, told, call.ids))
                call.lost = list(done.lost)
            except LeaseLost as lost:
                call.lost = list(lost.lost or call.ids)
                raise
        return call

    @contextmanager
    def _noted(self, call: AnyCall) -> Iterator[None]:
        try:
            yield
            call.outcome = OK
        except Error as error:
            call.outcome, call.code = UNKNOWN if error.applied is None else NO, error.code
        finally:
            call.ended = now()
            self.history.add(call)


def configure(client: mqueue.Client, topic: Topic, partitions: int) -> None:
    client.configure(topic.name, partitions=partitions, max_retries=topic.attempts_max - 1, backoff="100ms")
