"""What is asked of the whole cluster: which topics there are, which namespaces, how much of everything.

Names come from the catalogs of all servers. Numbers come from whoever delivers: every node is asked for the virtual
shards that it owns, and together they have to be all. What nobody counted is waited for, and then said.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mqueue.broker.aio import AsyncBroker
from mqueue.broker.numbers import metrics
from mqueue.broker.schedules import Schedules
from mqueue.cluster.estate import Estate
from mqueue.log.postgres import catalog
from mqueue.model.errors import Unavailable
from mqueue.policy.routing import VIRTUAL_SHARDS
from mqueue.server.http.answer import Answer, Streamed, as_json
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Route
from mqueue.server.http.v1 import schedules
from mqueue.server.http.v1.paging import page
from mqueue.server.placing.homes import GLANCES
from mqueue.server.placing.peers import Peers, is_asked_by_peer
from mqueue.wire.json_manage import NamespaceOut, NamespacesOut, StatsOut
from mqueue.wire.json_schedules import ScheduleOut

_NAMES_MAX = 1 << 31
_PATIENCE_SECONDS = 3.0
"""How long those who do not count everything are asked again, and how long one answer may take."""
_LOOK_SECONDS = 0.1
_NUMBERS = tuple(name for name in StatsOut.__struct_fields__ if name != "missing")


class Share(Struct, frozen=True):
    """What one node counts: of each virtual shard that it owns its numbers, in the order of `_NUMBERS`; none where no
    topic is."""

    vshards: dict[int, tuple[int, ...]]


class Plans(Struct, frozen=True):
    """The schedules of one node that belong to a page, and the virtual shards that it has looked through."""

    vshards: list[int]
    schedules: list[ScheduleOut]


_SHARE = msgspec.json.Decoder(Share)
_PLANS = msgspec.json.Decoder(Plans)


class Servers(Protocol):
    """`mqueue.cluster.node.Node` is one."""

    estates: list[Estate]


class _Names:
    """Stands where a broker is that is only asked for the names of its topics."""

    def __init__(self, names: list[str]) -> None:
        self._names = names

    async def topics(self) -> list[str]:
        return self._names


class Listings:
    """`ask_all` asks something of every server at once."""

    def __init__(self, node: Servers, peers: Peers, ask_all: Callable[..., Awaitable[list[Any]]]) -> None:
        self._node = node
        self._peers = peers
        self._ask_all = ask_all

    async def answer(self, call: Call, route: Route) -> Answer | Streamed:
        if route.path == "/v1/stats":
            return await self._stats(call, route)
        if route.path in GLANCES:
            return await route.handler(call)
        if route.path == "/v1/namespaces":
            return await self._namespaces(call)
        if route.path == schedules.PATH:
            return await self._schedules(call, route)
        found = await self._ask_all(
            lambda estate: catalog.names(estate.reader, call.namespace, "", _NAMES_MAX),
        )
        names = sorted({name for names in found for name in names})
        return await route.handler(replace(call, home=cast(AsyncBroker, _Names(names))))

    async def _namespaces(self, call: Call) -> Answer:
        spaces: Counter[str] = Counter()
        for counted in await self._ask_all(lambda estate: catalog.namespaces(estate.reader)):
            spaces.update(counted)
        names, more = page(call, spaces)
        return as_json(NamespacesOut([NamespaceOut(name, spaces[name]) for name in names], more))

    async def _stats(self, call: Call, route: Route) -> Answer:
        named = "namespace" in call.query or "x-mqueue-namespace" in call.headers
        call.demand("read", call.namespace if named else "*")
        namespace = call.namespace if named else None
        if is_asked_by_peer(call):
            return as_json(Share(await self._own(namespace)))
        partial = call.flag("partial")
        loop = asyncio.get_running_loop()
        until = loop.time() + (0 if partial else _PATIENCE_SECONDS)
        while True:
            found, silent = await self._count(call, route, namespace)
            missing = VIRTUAL_SHARDS - len(found)
            if not missing or loop.time() >= until:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        if missing and not partial:
            raise _incomplete(missing, silent)
        counted = [numbers for numbers in found.values() if numbers]
        totals = {name: sum(numbers[place] for numbers in counted) for place, name in enumerate(_NUMBERS)}
        return as_json(StatsOut(**totals, missing=missing))

    async def _schedules(self, call: Call, route: Route) -> Answer:
        """As many as make a page, of each node; by topic and name the first of all of them."""
        call.demand("read", call.namespace)
        loop = asyncio.get_running_loop()
        until = loop.time() + _PATIENCE_SECONDS
        while True:
            share = await self._own_schedules(call)
            if is_asked_by_peer(call):
                return as_json(share)
            answers = await self._peers.ask(call, route, _PATIENCE_SECONDS)
            told = [_PLANS.decode(answer.body) for answer in answers.values() if answer is not None]
            missing = VIRTUAL_SHARDS - len({vshard for one in (share, *told) for vshard in one.vshards})
            if not missing:
                return as_json(schedules.page(call, [plan for one in (share, *told) for plan in one.schedules]))
            if loop.time() >= until:
                silent = [address for address, answer in answers.items() if answer is None]
                raise Unavailable(
                    f"{missing} of {VIRTUAL_SHARDS} virtual shards cannot be looked through now: {_why(silent)}",
                    code="listing_incomplete",
                    retry_after=1,
                )
            await asyncio.sleep(_LOOK_SECONDS)

    async def _own_schedules(self, call: Call) -> Plans:
        parts = await asyncio.gather(*(_planned(estate, call.namespace) for estate in self._node.estates))
        page = schedules.page(call, [plan for part in parts for plan in part.schedules], more=1)
        return Plans([vshard for part in parts for vshard in part.vshards], page.schedules)

    async def _count(
        self, call: Call, route: Route, namespace: str | None
    ) -> tuple[dict[int, tuple[int, ...]], list[str]]:
        """The numbers of all virtual shards that somebody counts, and the nodes that do not answer. One that changes
        hands meanwhile may be counted by both: one of them is enough."""
        found, answers = await asyncio.gather(self._own(namespace), self._peers.ask(call, route, _PATIENCE_SECONDS))
        for answer in answers.values():
            if answer is not None:
                found = _SHARE.decode(answer.body).vshards | found
        return found, [address for address, answer in answers.items() if answer is None]

    async def _own(self, namespace: str | None) -> dict[int, tuple[int, ...]]:
        """What this node owns, at all servers. A server in trouble adds nothing."""
        counted = await asyncio.gather(*(_counted(estate, namespace) for estate in self._node.estates))
        return {vshard: numbers for share in counted for vshard, numbers in share.items()}


async def _counted(estate: Estate, namespace: str | None) -> dict[int, tuple[int, ...]]:
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            return await estate.run(_numbers(estate, namespace))
    except (Unavailable, TimeoutError):
        return {}


async def _numbers(estate: Estate, namespace: str | None) -> dict[int, tuple[int, ...]]:
    """In the loop of the estate, one virtual shard at a time."""
    found: dict[int, tuple[int, ...]] = {}
    for vshard, holding in (await estate.everything()).items():
        if holding is None:
            found[vshard] = ()
        elif holding.lost is None:
            with holding.gate.inside:
                numbers = metrics(holding.engine, holding.engine.clock.now(), namespace)
            found[vshard] = tuple(numbers[name] for name in _NUMBERS)
            await asyncio.sleep(0)
    return found


async def _planned(estate: Estate, namespace: str) -> Plans:
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            return await estate.run(_plans(estate, namespace))
    except (Unavailable, TimeoutError):
        return Plans([], [])


async def _plans(estate: Estate, namespace: str) -> Plans:
    """In the loop of the estate, one virtual shard at a time."""
    found = Plans([], [])
    for vshard, holding in (await estate.everything()).items():
        if holding is not None and holding.lost is None:
            with holding.gate.inside:
                there = Schedules(holding.engine, namespace, None)._look()
            found.schedules.extend(map(schedules.shown, there))
            await asyncio.sleep(0)
        if holding is None or holding.lost is None:
            found.vshards.append(vshard)
    return found


def _incomplete(missing: int, silent: list[str]) -> Unavailable:
    return Unavailable(
        f"{missing} of {VIRTUAL_SHARDS} virtual shards cannot be counted now: {_why(silent)};"
        " partial=true counts the others",
        code="stats_incomplete",
        retry_after=1,
    )


def _why(silent: list[str]) -> str:
    return f"{', '.join(silent)} did not answer" if silent else "nobody delivers from them"
