"""Makes the pictures in docs/images from the real dashboard, over a real server with a shop in it.

    python -m tools.screenshots          needs chromium: make setup-system

It takes about a minute: the charts are to have something to show.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

import mqueue
from mqueue.testing.server import RunningServer

PLACE = Path(__file__).resolve().parents[1] / "docs/images"
BYTES_MAX = 150_000
SECONDS = 60
DESK = {"width": 1200, "height": 780}
PHONE = {"width": 390, "height": 780}
ERRORS = ("card of order {n} declined", "timed out after {n} ms calling 10.0.0.{m}", "no such customer")


def stock(q: mqueue.Client) -> str:
    """A shop with some trouble in it; the id of a message with a story."""
    chance = random.Random(7)
    for topic, count in (("orders", 40), ("payments", 30), ("emails", 8), ("invoices", 3), ("shipments", 20)):
        q.configure(topic, partitions=3 if topic == "orders" else 1, max_retries=2)
        q.publish_many(topic, [order(chance, number) for number in range(count)])
    for number in range(24):
        [message] = q.receive("payments")
        message.reject(ERRORS[min(2, number // 9)].format(n=number * 17 + 3000, m=number % 9))
    for minutes in range(6):
        q.publish("emails", f"reminder {minutes}", delay=f"{(minutes + 1) * 17}m", key=f"customer-{minutes}")
    told = q.receive("orders", limit=7, group="billing", visibility="10m")
    for message in told[4:]:
        message.nack(error="the printer is out of paper", delay="20m")
    q.schedules("invoices").add({"kind": "monthly"}, cron="0 9 1 * *", tz="Europe/Berlin", name="monthly")
    q.set_cursor("orders", "archive", {0: 3})
    other = q.namespace("warehouse")
    other.publish_many("picks", [order(chance, number) for number in range(12)])
    return story(q, chance)


def story(q: mqueue.Client, chance: random.Random) -> str:
    receipt = q.publish(
        "returns", order(chance, 17).payload, key="customer-7", headers={"region": "eu"}, priority="high"
    )
    q.receive("returns", group="refunds")[0].nack(error="timed out after 3000 ms", delay="1s")
    [message] = q.receive("returns", group="refunds", wait="30s")
    message.ack()
    return str(receipt.id)


def order(chance: random.Random, number: int) -> mqueue.Draft:
    body = {"order": number, "customer": f"c-{chance.randrange(9)}", "total": chance.randrange(900) / 10}
    urgency = chance.choice([0, 25, 50, 50, 50, 75, 100])
    kind = {"content-type": "application/json"}
    return mqueue.Draft(json.dumps(body).encode(), key=f"customer-{number % 7}", headers=kind, priority=urgency)


def trade(url: str, over: threading.Event) -> None:
    """Messages come in waves, and consumers keep up with most of them."""
    chance, begun = random.Random(3), time.monotonic()
    with mqueue.Client(url, name="worker-7") as q:
        while not over.wait(0.2):
            wave = 6 + 4 * math.sin((time.monotonic() - begun) / 6)
            for topic, group in (("orders", "billing"), ("shipments", "default"), ("emails", "default")):
                q.publish_many(topic, [order(chance, n) for n in range(int(wave * chance.uniform(0.6, 1.4)) + 1)])
                for message in q.receive(topic, limit=int(wave * 0.9) + 1, group=group):
                    message.ack()


def shoot(page: Any, name: str) -> None:
    path = PLACE / f"{name}.png"
    page.screenshot(path=path)
    size = path.stat().st_size
    print(f"{path.name}: {size:,} bytes")
    assert size < BYTES_MAX, f"{path.name} is too large for a picture in a repository"


def main() -> int:
    chromium = shutil.which("chromium")
    if chromium is None:
        print("chromium is missing: make setup-system", file=sys.stderr)
        return 1
    PLACE.mkdir(exist_ok=True)
    over = threading.Event()
    with RunningServer() as server, mqueue.Client(server.url, name="worker-7") as q, sync_playwright() as playwright:
        told = stock(q)
        trading = threading.Thread(target=trade, args=(server.url, over))
        trading.start()
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        try:
            pictures(browser, server.url, told)
        finally:
            over.set()
            trading.join()
            browser.close()
    return 0


def pictures(browser: Any, url: str, told: str) -> None:
    def visit(place: str, **options: Any) -> Any:
        page = browser.new_page(**{"viewport": DESK, **options})
        page.goto(f"{url}/#/{place}")
        page.get_by_role("heading", level=1).wait_for()
        return page

    first = visit("")
    time.sleep(SECONDS)
    ready: dict[str, Callable[[], Any]] = {
        "dashboard-overview": lambda: first,
        "dashboard-dark": lambda: visit("t/default/orders", color_scheme="dark"),
        "dashboard-dead": lambda: visit("t/default/payments/dead"),
        "dashboard-message": lambda: visit(f"m/default/{told}"),
        "dashboard-phone": lambda: visit("", viewport=PHONE, color_scheme="dark"),
    }
    for name, make in ready.items():
        page = make()
        page.locator("main [aria-busy]").first.wait_for(state="detached")
        time.sleep(8 if "dark" in name else 3)
        shoot(page, name)


if __name__ == "__main__":
    sys.exit(main())
