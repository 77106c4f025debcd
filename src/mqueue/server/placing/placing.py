"""Answers the requests of a cluster: each where what it is about is delivered from, here or at another node.

Publishing happens here, whoever owns the topic, unless the topic has a rule that only its owner can check. What is
delivered here is answered in the loop of its estate; the rest is forwarded as it came.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Protocol, TypeVar

from msgspec.structs import replace

from mqueue.broker.remote import Wanted
from mqueue.cluster.estate import Estate
from mqueue.cluster.node import Home, Node
from mqueue.cluster.problems import AtOwner
from mqueue.cluster.repeats import UNTRACED
from mqueue.cluster.tokens import is_later, vshard_of
from mqueue.log.postgres import frames
from mqueue.model.errors import Error, Refused, Unavailable
from mqueue.model.ident import instant_of
from mqueue.policy.routing import virtual_shard
from mqueue.server.forwarding.heads import FORWARDED
from mqueue.server.http.answer import Answer, Streamed, error_answer
from mqueue.server.http.call import Call, Leaving
from mqueue.server.http.routes import Route
from mqueue.server.http.service import Receive, Send, Service
from mqueue.server.http.sockets import refuse, talk
from mqueue.server.placing import several
from mqueue.server.placing.asking import Asking
from mqueue.server.placing.homes import About, about
from mqueue.server.placing.listings import Listings
from mqueue.server.placing.peers import Peers, is_asked_by_peer
from mqueue.server.placing.repeating import is_repeatable
from mqueue.server.placing.transactions import TransactionHomes
from mqueue.store.store import Store

T = TypeVar("T")

_ADMINISTERED = ("/v1/keys", "/v1/quotas")
_DIGITS_MAX = 19
_PATIENCE_SECONDS = 10.0
"""How long a request waits for somebody to own what it is about."""
_LOOK_SECONDS = 0.1
_MOVE_SECONDS = 0.05
"""So often whoever waits for a virtual shard that moves looks where it is."""
_WATCH_SECONDS = 0.5
"""So often whoever waits for another node's answer looks whether that still delivers."""
_LAST_WORDS_SECONDS = 0.5
"""So long an answer may still be on its way from who delivers no more: one that handed over has said it all by then."""
_EARLY_MS = 60_000
"""So long an id may have been answered that is nowhere, where nodes have logs."""
_CHANGED = ("topic_gone", "topic_changed")
_CHANGES_MAX = 5
"""So often something is published anew whose topic was changed meanwhile."""
_LANES_MAX = 64
"""Who has published more priorities than this to a topic asks its owner, who knows how many are alive."""


class Forwards(Protocol):
    async def forward(self, call: Call, route: Route, address: str) -> Answer | Streamed: ...

    async def talk(self, call: Call, address: str, receive: Receive, send: Send) -> None: ...


class Placing:
    """`inside` makes the service that handlers in the loop of an estate get."""

    def __init__(
        self, node: Node, forwards: Forwards, peers: Peers, asking: Asking, inside: Callable[[Estate], Service]
    ) -> None:
        self._node = node
        self._forwards = forwards
        self._peers = peers
        self._asking = asking
        self._listings = Listings(node, peers, asking.all)
        self._transactions = TransactionHomes(node, asking, self._home)
        self._inside = inside
        self._services: dict[str, Service] = {}
        self._turn = 0

    async def answer(self, call: Call, route: Route) -> Answer | Streamed:
        subject = about(call, route)
        if subject.namespace:
            call = replace(call, namespace=subject.namespace)
        if subject.kind == "node":
            return await self._here_alone(call, route)
        if subject.kind == "publish":
            return await self._publish(call, route, subject)
        if subject.kind == "topics":
            return await self._topics(call, route, subject)
        if subject.kind == "listing":
            return await self._listings.answer(call, route)
        lease = subject.name if subject.kind in ("lease", "topic") else ""
        return await self._at_owner(call, route, await self._vshard(call, subject), lease=lease)

    # Where

    async def _vshard(self, call: Call, subject: About) -> int:
        if subject.kind == "lease":
            return max(0, vshard_of(subject.name))
        if subject.kind == "message":
            return await self._vshard_of_message(subject.name)
        if subject.kind == "transaction":
            return await self._vshard_of_transaction(call, subject)
        if subject.kind == "dead" and subject.topics:
            return await self._vshard_of_dead(call.namespace, subject.topics[0])
        return virtual_shard(call.namespace, subject.topics[0] if subject.topics else "")

    async def _vshard_of_message(self, id: str) -> int:
        if id.isascii() and id.isdecimal() and len(id) <= _DIGITS_MAX:
            found = await self._asking.first(lambda estate: frames.find(estate.reader, int(id)))
            if found is not None:
                return found[3]
            self._check_age(int(id))
        return 0  # whoever looks there finds nothing, and says so

    def _check_age(self, id: int) -> None:
        """Raise if a message that is nowhere may be on its way from the log of a node to its shard."""
        clocks = [estate.clock.now() for estate in self._node.estates if estate.owners]
        young = clocks and min(clocks) - _EARLY_MS < instant_of(id) < max(clocks) + _EARLY_MS
        if young and self._node.answers_early:
            raise Unavailable(
                f"message {id} is in no shard; it is so young that it may be on its way",
                code="not_yet_visible",
                retry_after=1,
            )

    async def _vshard_of_dead(self, namespace: str, topic: str) -> int:
        """Where the dead letters of a topic are delivered from: a queue with a name of its own has its own place."""
        vshard = virtual_shard(namespace, topic)
        estate = (await self._home(vshard)).estate
        name = await estate.run(_dlq_name(estate.mouth.store, namespace, topic))
        return vshard if name is None else virtual_shard(namespace, name)

    async def _vshard_of_transaction(self, call: Call, subject: About) -> int:
        if subject.topics:
            call.demand("publish", call.namespace, subject.topics[0])
            found = await self._transactions.begin(call.namespace, subject.name, subject.topics[0])
        else:
            found = await self._transactions.find(call.namespace, subject.name)
        return found or 0

    # How

    async def _at_owner(
        self, call: Call, route: Route, vshard: int, patience: float | None = None, lease: str = ""
    ) -> Answer | Streamed:
        """At whoever delivers from a virtual shard; if that is nobody just now, somebody soon will. `lease`: what it is
        about.

        A request that another node forwarded does not wait here: the other one has to look again; unless it came to the
        right place, and a topic is being deleted there.
        """
        loop = asyncio.get_running_loop()
        until = 0.0
        while True:
            why: Unavailable | None = None
            try:
                home = self._node.home(vshard)
                if home.here:
                    return await self._here(call, route, home, lease)
                if home.address:
                    return await self._forward(call, route, home)
            except Unavailable as problem:
                if not _again(problem, call, route):
                    raise
                why = problem
                self._node.atlas.stir()
            until = until or loop.time() + (_PATIENCE_SECONDS if patience is None else patience)
            stays = FORWARDED not in call.headers or (why is not None and why.code == "topic_gone")
            if not stays or loop.time() >= until:
                raise why or Unavailable(f"nobody delivers from virtual shard {vshard} now", code="not_owner")
            await asyncio.sleep(_LOOK_SECONDS)

    async def _forward(self, call: Call, route: Route, home: Home) -> Answer | Streamed:
        """Given up when another node delivers meanwhile: whoever was asked stands still, or is gone."""
        asked = asyncio.ensure_future(self._forwards.forward(call, route, home.address))
        taken = False
        try:
            while not (await asyncio.wait([asked], timeout=_WATCH_SECONDS))[0]:
                if self._delivers_elsewhere(home) and not (await asyncio.wait([asked], timeout=_LAST_WORDS_SECONDS))[0]:
                    raise Unavailable(
                        f"{home.address} did not answer before another node delivered", code="not_owner", applied=None
                    )
            taken = True
            return asked.result()
        finally:
            if not taken:
                asked.cancel()
                await asyncio.wait([asked])
                if not asked.cancelled() and asked.exception() is None:
                    await asyncio.shield(_given_back(asked.result()))

    def _delivers_elsewhere(self, home: Home) -> bool:
        """Whether somebody else than who was asked delivers from a virtual shard by now. Nobody may, while it moves."""
        with suppress(Unavailable):
            return self._node.home(home.vshard).address not in ("", home.address)
        return False

    async def _home(self, vshard: int) -> Home:
        """Where a virtual shard is. One that moves has a place soon."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _PATIENCE_SECONDS
        while True:
            try:
                return self._node.home(vshard)
            except Unavailable as problem:
                if problem.code != "not_owner" or loop.time() >= until:
                    raise
            self._node.atlas.stir()
            await asyncio.sleep(_MOVE_SECONDS)

    async def _here(self, call: Call, route: Route, home: Home, lease: str) -> Answer | Streamed:
        estate, vshard = home.estate, home.vshard
        inside = await self._taken_in(call, estate)

        async def work() -> Answer | Streamed:
            """A lease that a later owner gave out tells that we are it no more, though we have not heard of it yet:
            that nobody holds it is not for us to say."""
            holding = estate.holdings.get(vshard) or await estate.holding(vshard)
            if lease and is_later(lease, vshard, holding.epoch):
                raise Unavailable(f"another node owns virtual shard {vshard} now; try again", code="not_owner")
            await estate.refresh(holding)
            inside.home = holding.views.of(inside.namespace)
            return await route.handler(inside)

        return _bridged(await estate.run(work(), _given_back), estate)

    async def _publish(self, call: Call, route: Route, subject: About) -> Answer | Streamed:
        """Again, if a topic was changed or deleted meanwhile, or moved to another server: nothing was stored, and it is
        to be as it is now."""
        topics = subject.topics or ("",)
        loop = asyncio.get_running_loop()
        until = loop.time() + _PATIENCE_SECONDS
        changes = 0
        while True:
            homes = [await self._home(virtual_shard(call.namespace, topic)) for topic in topics]
            try:
                return await self._publish_at(call, route, homes, topics)
            except Unavailable as problem:
                moved = problem.code == "not_owner" and FORWARDED not in call.headers and loop.time() < until
                changes += problem.code in _CHANGED
                if problem.applied is not False or not (moved or (problem.code in _CHANGED and changes < _CHANGES_MAX)):
                    raise
            if moved:
                self._node.atlas.stir()
                await asyncio.sleep(_MOVE_SECONDS)

    async def _publish_at(
        self, call: Call, route: Route, homes: list[Home], topics: tuple[str, ...]
    ) -> Answer | Streamed:
        estate = homes[0].estate
        if any(home.estate is not estate for home in homes):
            raise Refused(
                f"{len(topics)} topics that live on several servers cannot be published to in one call",
                code="elsewhere",
            )
        owned = next((home.vshard for home in homes if home.here), None) if FORWARDED in call.headers else None
        if owned is not None:  # whoever sends it here wants the owner to judge
            return await self._at_owner(call, route, owned)
        return await self._publish_once(call, route, estate, topics)

    async def _publish_once(
        self, call: Call, route: Route, estate: Estate, topics: tuple[str, ...]
    ) -> Answer | Streamed:
        async def work(inside: Call, untraced: bool) -> Answer | Streamed:
            if untraced:
                UNTRACED.set(True)
            _check_owners(estate.mouth.store, call.namespace, topics)
            inside.home = estate.mouth.views.of(call.namespace)
            return await route.handler(inside)

        async def once(untraced: bool) -> Answer | Streamed:
            inside = await self._taken_in(call, estate)
            return _bridged(await estate.run(work(inside, untraced), _given_back), estate)

        try:
            return await once(False)
        except AtOwner as told:
            try:
                return await self._at_owner(call, route, told.vshard, None if told.must else 0)
            except Unavailable as problem:
                if told.must or problem.applied is not False:
                    raise
                return await once(True)

    async def _taken_in(self, call: Call, estate: Estate) -> Call:
        """The same call for a handler in the loop of an estate; which of its brokers it is about is found there."""
        service = self._services.get(estate.name) or await self._service(estate)
        gone = None if call.gone is None else _Elsewhere(asyncio.get_running_loop(), call.gone)
        return replace(call, service=service, gone=gone)

    async def _service(self, estate: Estate) -> Service:
        service = self._services.get(estate.name)
        if service is None:
            service = self._services[estate.name] = await estate.run(_made(lambda: self._inside(estate)))
        return service

    async def _topics(self, call: Call, route: Route, subject: About) -> Answer | Streamed:
        """From several topics."""
        vshards = {virtual_shard(call.namespace, topic) for topic in subject.topics}
        if len(vshards) < 2:
            return await self._at_owner(call, route, vshards.pop() if vshards else 0)

        async def ask(one: Call, topic: str) -> Answer | Streamed:
            return await self._at_owner(one, route, virtual_shard(call.namespace, topic), patience=0)

        self._turn += 1
        return await several.receive(call, ask, self._turn, _PATIENCE_SECONDS)

    async def _here_alone(self, call: Call, route: Route) -> Answer | Streamed:
        """What every node answers for itself. Keys and quotas are all nodes': the others are told to look. A node that
        asks may be new."""
        if is_asked_by_peer(call):
            await self._node.meet()
        answer = await route.handler(call)
        if route.path.startswith(_ADMINISTERED) and route.method != "GET":
            await self._peers.tell(call.service)
        return answer

    async def talk(self, call: Call, wanted: Wanted, receive: Receive, send: Send) -> None:
        """Whoever cannot be served is told before the conversation begins."""
        try:
            home = await self._home(virtual_shard(call.namespace, call.topic))
            if not home.address:
                raise Unavailable(
                    f"nobody delivers from virtual shard {home.vshard} now", code="not_owner", retry_after=1
                )
            if not home.here:
                await self._forwards.talk(call, home.address, receive, send)
                return
            holding = await home.estate.run(home.estate.holding(home.vshard))
            service = await self._service(home.estate)
        except Error as error:
            await refuse(error_answer(error), send)
            return
        outside = asyncio.get_running_loop()

        async def work() -> None:
            inside = replace(call, service=service, home=holding.views.of(call.namespace))
            await talk(inside, wanted, lambda: _over(outside, receive()), lambda said: _over(outside, send(said)))

        await home.estate.run(work())

    def trouble(self) -> str:
        """Messages are taken as long as one server takes them."""
        return "" if any(estate.takes for estate in self._node.estates) else "none of the servers can be reached"

    def poison(self) -> str:
        return "" if all(estate.lives for estate in self._node.estates) else "a part of this node has ended"


def _again(problem: Unavailable, call: Call, route: Route) -> bool:
    """Whether somebody else is to be asked; if nobody knows what became of it, only where that does no harm."""
    if problem.code not in ("not_owner", "owner_unreachable", "topic_gone"):
        return False
    return problem.applied is False or is_repeatable(call, route)


async def _dlq_name(store: Store, namespace: str, name: str) -> str | None:
    """None: its dead lie with the topic, or it is not there."""
    topic = store.find_topic(namespace, name)
    return None if topic is None else topic.settings.dlq_topic


def _check_owners(store: Store, namespace: str, topics: tuple[str, ...]) -> None:
    """Raises AtOwner if a topic has a rule that only its owner can check; new ones are made with the defaults."""
    owned = {virtual_shard(namespace, topic) for topic in topics if _needs_owner(store, namespace, topic)}
    if len(owned) > 1:
        raise Refused(
            f"the limits of {len(topics)} topics can be checked by {len(owned)} owners only, each his own: they cannot"
            " be published to in one call",
            code="elsewhere",
        )
    if owned:
        raise AtOwner(owned.pop(), must=True)


def _needs_owner(store: Store, namespace: str, name: str) -> bool:
    topic = store.find_topic(namespace, name)
    settings = store.defaults if topic is None else topic.settings
    if settings.max_depth is not None or settings.dedup == "until_acked":
        return True
    return topic is not None and len(topic.partitions[0].lanes) > _LANES_MAX


async def _over(loop: asyncio.AbstractEventLoop, work: Awaitable[T]) -> T:
    """Something that is done in another loop."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_awaited(work), loop))


async def _awaited(work: Awaitable[T]) -> T:
    return await work


async def _made(make: Callable[[], T]) -> T:
    return make()


class _Elsewhere:
    """An event of another loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, event: Leaving) -> None:
        self._loop = loop
        self._event = event

    async def wait(self) -> bool:
        return await _over(self._loop, self._event.wait())


def _bridged(answer: Answer | Streamed, estate: Estate) -> Answer | Streamed:
    """An answer whose further work is done in the loop of its estate."""
    if isinstance(answer, Streamed):
        return replace(answer, pieces=_pieces(answer.pieces, estate))
    if answer.give_back is None:
        return answer
    give_back = answer.give_back

    async def elsewhere() -> None:
        await estate.run(give_back())

    return replace(answer, give_back=elsewhere)


async def _given_back(answer: Answer | Streamed) -> None:
    """Nobody waits for an answer any more."""
    if isinstance(answer, Streamed):
        await answer.pieces.aclose()
    elif answer.give_back is not None:
        await answer.give_back()


async def _pieces(pieces: AsyncGenerator[bytes, None], estate: Estate) -> AsyncGenerator[bytes, None]:
    try:
        while (piece := await estate.run(_next(pieces))) is not None:
            yield piece
    finally:
        await estate.run(_closed(pieces))


async def _next(pieces: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(pieces, None)


async def _closed(pieces: AsyncGenerator[bytes, None]) -> None:
    await pieces.aclose()
