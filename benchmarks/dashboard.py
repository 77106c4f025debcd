"""The dashboard with many topics: what a look at all of them costs the server and the line, and how soon it is seen."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import msgspec

import mqueue
from benchmarks.harness import Profile, Result
from mqueue.broker.twin import behind
from mqueue.model.clock import SystemClock
from mqueue.model.limits import PUBLISH_TOPICS_MAX
from mqueue.server.http.v1.overview import changes
from mqueue.server.overview.sampler import Sampler, counts_of
from mqueue.server.overview.window import Asked, see, shown
from mqueue.server.security.gatekeeper import ANYBODY
from mqueue.testing.server import RunningServer
from mqueue.wire.json_overview import OverviewOut

BUSY_PART = 20
"""Every twentieth topic gets a message between two looks."""
CHROMIUM = shutil.which("chromium")
_ENCODER = msgspec.json.Encoder()


def updates(profile: Profile) -> Iterator[Result]:
    """One update of one viewer: count all topics, find the window, tell what changed. In time of the processor."""
    costs, whole, changed = asyncio.run(_measured(profile.topics, profile.rounds))
    note = f"{profile.topics} topics, a tenth with a group, {100 // BUSY_PART} % of them busy"
    yield Result("an update takes of the processor", 1000 * median(costs), "ms", "<", 50, note=note)
    yield Result("the first window weighs", whole / 1000, "KB", "<", 100)
    yield Result("an update weighs", median(changed) / 1000, "KB", "<", 100)


async def _measured(topics: int, rounds: int) -> tuple[list[float], int, list[int]]:
    async with mqueue.AsyncBroker() as q:
        for number in range(topics):
            await q.publish(f"topic-{number}", b"x")
            if number % 10 == 0:
                await q.receive(f"topic-{number}")
        sampler = Sampler(counts_of(behind(q)), SystemClock())
        await sampler.run_once()
        told = _seen(sampler)
        whole, costs, changed = len(_ENCODER.encode(told)), [], []
        for turn in range(rounds):
            for number in range(turn, topics, BUSY_PART):
                await q.publish(f"topic-{number}", b"x")
            begun = time.process_time()
            await sampler.run_once()
            now = _seen(sampler)
            changed.append(len(_ENCODER.encode(changes(told, now))))
            costs.append(time.process_time() - begun)
            told = now
        return costs, whole, changed


def _seen(sampler: Sampler) -> OverviewOut:
    asked = Asked()
    return shown(sampler, see(sampler, asked, ANYBODY, asked.skip))


def paint(profile: Profile) -> Iterator[Result]:
    """From the address to the first paint, and to the first row, in a real browser that has nothing of it yet."""
    if CHROMIUM is None:
        return
    from playwright.sync_api import sync_playwright

    with RunningServer() as server, sync_playwright() as playwright:
        with mqueue.Client(server.url) as q:
            names = [f"topic-{number}" for number in range(profile.topics)]
            for first in range(0, len(names), PUBLISH_TOPICS_MAX):
                chosen = names[first : first + PUBLISH_TOPICS_MAX]
                q.publish_many(None, [mqueue.Draft(b"x", topic=name) for name in chosen])
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        times = [_painted(browser, server.url) for _ in range(profile.rounds)]
        browser.close()
    note = f"{profile.topics} topics, an empty cache"
    yield Result("first paint within", median(first for first, _ in times), "ms", "<", 1000, note=note)
    yield Result("the first rows within", median(rows for _, rows in times), "ms")


def _painted(browser: Any, url: str) -> tuple[float, float]:
    page = browser.new_page()
    begun = time.perf_counter()
    page.goto(url, wait_until="commit")
    page.locator("tbody tr th a").first.wait_for()
    rows = 1000 * (time.perf_counter() - begun)
    first = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    page.close()
    return first, rows
