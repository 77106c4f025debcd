"""A real browser for the tests of the dashboard: Debian's Chromium. What runs there that is not ours fails a test."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
DEADLINE_MS = 120_000

WATCHED = """
window.caught = [];
addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI, sample }) =>
  caught.push(`${violatedDirective}: ${blockedURI} ${sample}`));
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/browser/" in item.nodeid:
            item.add_marker(pytest.mark.system)
            if CHROMIUM is None:
                item.add_marker(pytest.mark.skip(reason="chromium is missing: make setup-system"))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Any) -> Iterator[Callable[..., Any]]:
    """A page at an address, in a browser that knows nothing yet. In the end no page may have run what it should not."""
    contexts: list[Any] = []
    faults: list[str] = []

    def look(url: str, **options: Any) -> Any:
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        context.set_default_timeout(DEADLINE_MS)
        context.add_init_script(WATCHED)
        page = context.new_page()
        page.on("dialog", lambda dialog: (faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("pageerror", lambda error: faults.append(f"error: {error}"))
        page.goto(url)
        return page

    yield look
    for context in contexts:
        for page in context.pages:
            faults += page.evaluate("window.caught ?? []")
        context.close()
    assert faults == []
