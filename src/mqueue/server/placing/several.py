"""Receiving from several topics that are delivered from several places: each is asked in turn, until one has something.

Nobody can wait at all of them at once, so whoever waits looks again and again. A topic that cannot be served takes
nothing away from the others: what they gave is handed out, and who gets nothing is told of it only in the end. What was
leased for somebody who is not there any more is given back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from mqueue.broker.deliver import wait_ms
from mqueue.model.errors import Error, Unavailable
from mqueue.model.limits import ANSWER_BYTES_MAX
from mqueue.server.http.answer import Answer, Streamed, as_json
from mqueue.server.http.call import Call
from mqueue.server.http.push import unless_over
from mqueue.server.http.v1.receive import asked_anywhere
from mqueue.wire.json import LeaseOut, LeasesOut, ReceiveTopicsIn

LOGGER = logging.getLogger("mqueue.server")

_LOOK_SECONDS = 0.05
_ANSWER_SECONDS = 2.0
"""So long one topic may keep the others waiting."""
_MORE_SECONDS = 0.5
"""The same once something is leased: at most, and never more than a quarter of what is left of the lease."""
_REST_SECONDS = 1.0
"""A topic in trouble is not asked again before that."""
_PASSING = (429, 503)
_LEASES = msgspec.json.Decoder(LeasesOut)
_ENCODER = msgspec.json.Encoder()

Ask = Callable[[Call, str], Awaitable[Answer | Streamed]]


async def receive(call: Call, ask: Ask, turn: int, patience: float) -> Answer | Streamed:
    """`ask` makes the call about one topic, where that is delivered from, and does not wait for anybody to deliver it.
    `patience`: for how many seconds somebody may be missing who does."""
    topics, wanted = asked_anywhere(call)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    until = begun + wait_ms(wanted.wait) / 1000
    looks = _Looks(call, wanted, ask)
    while True:
        turn += 1
        await looks.round([topics[(turn + step) % len(topics)] for step in range(len(topics))])
        if looks.leases:
            return looks.joined()
        if looks.hopeless or loop.time() >= (max(until, begun + patience) if looks.headless else until):
            return looks.refused()
        if await unless_over(call, _slept(_LOOK_SECONDS)) is None:
            return as_json(LeasesOut([]))


class _Looks:
    """What one call has got so far, and from whom it got nothing."""

    def __init__(self, call: Call, wanted: ReceiveTopicsIn, ask: Ask) -> None:
        self._call = call
        self._wanted = wanted
        self._ask = ask
        self._problems: dict[str, tuple[Answer | Error, float]] = {}
        """Of topics: what is wrong, and when it was said."""
        self._answers: list[Answer] = []
        self.leases: list[LeaseOut] = []

    async def round(self, order: Sequence[str]) -> None:
        """Each topic once, those in trouble last. Who is cancelled meanwhile has got nothing."""
        try:
            for topic in sorted(order, key=self._problems.__contains__):
                if self._rests(topic):
                    continue
                await self._look(topic)
                if self._room <= 0 or sum(len(answer.body) for answer in self._answers) >= ANSWER_BYTES_MAX:
                    return
        except BaseException:
            await asyncio.shield(self._give_back())
            raise

    @property
    def hopeless(self) -> bool:
        """Whether something is wrong that will not pass."""
        return any(not _passes(problem) for problem, _ in self._problems.values())

    @property
    def headless(self) -> bool:
        """Whether somebody is missing who delivers: another one will soon."""
        problems = (problem for problem, _ in self._problems.values())
        return any(isinstance(problem, Unavailable) and problem.code in _MISSING for problem in problems)

    def joined(self) -> Answer:
        """All that was got."""
        return msgspec.structs.replace(as_json(LeasesOut(self.leases)), give_back=self._give_back)

    def refused(self) -> Answer:
        """What is said if that is nothing. Raises."""
        problems = sorted((problem for problem, _ in self._problems.values()), key=_passes)
        if not problems:
            return as_json(LeasesOut([]))
        if isinstance(problems[0], Error):
            raise problems[0]
        return problems[0]

    @property
    def _room(self) -> int:
        return self._wanted.limit - sum(len(lease.messages) for lease in self.leases)

    def _rests(self, topic: str) -> bool:
        if topic not in self._problems:
            return False
        return bool(self.leases) or asyncio.get_running_loop().time() < self._problems[topic][1] + _REST_SECONDS

    async def _look(self, topic: str) -> None:
        asked = msgspec.structs.replace(self._wanted, topics=[topic], limit=self._room, wait=None)
        answer = await self._answer(msgspec.structs.replace(self._call, body=_ENCODER.encode(asked)), topic)
        self._problems.pop(topic, None)
        if isinstance(answer, Error) or answer.status != 200:
            self._problems[topic] = answer, asyncio.get_running_loop().time()
            return
        self._answers.append(answer)
        self.leases += _LEASES.decode(answer.body).leases

    async def _answer(self, call: Call, topic: str) -> Answer | Error:
        try:
            async with asyncio.timeout(self._patience()):
                answer = await self._ask(call, topic)
        except TimeoutError:
            return Unavailable(f"topic {topic!r:.80} was not answered for in time", code="owner_slow", retry_after=1)
        except Error as problem:
            return problem
        assert isinstance(answer, Answer), "leases come all at once"
        return answer

    def _patience(self) -> float:
        left = [lease.remaining_ms / 4000 for lease in self.leases if lease.lease]
        return min(_MORE_SECONDS, *left) if left else _ANSWER_SECONDS

    async def _give_back(self) -> None:
        """To each what it gave, also if others cannot be reached."""
        for answer in self._answers:
            if answer.give_back is not None:
                try:
                    await answer.give_back()
                except Error as problem:  # it runs out by itself
                    LOGGER.warning("a lease that nobody took could not be given back: %s", problem)


_MISSING = ("not_owner", "owner_unreachable", "topic_gone")


def _passes(problem: Answer | Error) -> bool:
    """Whether it may be over when somebody looks again."""
    return problem.status in _PASSING


async def _slept(seconds: float) -> bool:
    await asyncio.sleep(seconds)
    return True
