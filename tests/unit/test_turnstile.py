"""Large requests begin one by one, and namespaces take turns."""

from __future__ import annotations

import asyncio

from mqueue.server.http.turnstile import Turnstile


def test_namespaces_take_turns_and_the_loop_looks_up_in_between() -> None:
    begun: list[str] = []

    async def run() -> None:
        turnstile = Turnstile()

        async def request(namespace: str) -> None:
            await turnstile.turn(namespace)
            begun.append(namespace)

        async def small() -> None:
            begun.append("small")

        flood = [asyncio.create_task(request("loud")) for _ in range(6)]
        await asyncio.sleep(0)
        late = [asyncio.create_task(request("quiet")), asyncio.create_task(small())]
        await asyncio.gather(*flood, *late)
        assert begun[0] == "loud", "who comes alone goes at once"
        assert begun.index("small") <= 2
        assert begun.index("quiet") <= 4
        await asyncio.wait_for(turnstile.turn("loud"), 60)
        await asyncio.sleep(0)
        await asyncio.wait_for(turnstile.turn("loud"), 60)

    asyncio.run(run())
    assert sorted(begun) == ["loud"] * 6 + ["quiet", "small"]


def test_who_leaves_holds_nobody_up() -> None:
    async def run() -> list[str]:
        turnstile, begun = Turnstile(), []

        async def request(name: str) -> None:
            await turnstile.turn(name)
            begun.append(name)

        tasks = [asyncio.create_task(request(name)) for name in ("a", "b", "c")]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return begun

    assert asyncio.run(run()) == ["a", "c"]
