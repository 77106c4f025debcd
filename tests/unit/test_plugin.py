"""The pytest plugin: fixtures for our users' tests, registered by installing mqueue, at no cost where unused."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import mqueue

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

USING = """
import asyncio
import mqueue

def test_the_clock_moves_the_broker(broker, manual_clock):
    assert type(broker) is mqueue.Broker
    broker.publish("orders", b"1", delay="5m")
    assert broker.receive("orders") == []
    manual_clock.advance("5m")
    assert len(broker.receive("orders")) == 1

def test_each_test_has_its_own(broker):
    assert broker.topics() == []

def test_the_async_one(async_broker, manual_clock):
    async def main():
        await async_broker.publish("orders", b"1", delay="50s")
        waiting = asyncio.create_task(async_broker.receive("orders", wait="60s"))
        await asyncio.sleep(0)
        manual_clock.advance("50s")
        assert len(await waiting) == 1
    asyncio.run(main())
"""

CLOSED = """
import asyncio
import mqueue
import pytest

kept = []

def test_one(broker, async_broker):
    kept.extend([broker, async_broker])

def test_two():
    with pytest.raises(mqueue.Closed):
        kept[0].topics()
    with pytest.raises(mqueue.Closed):
        asyncio.run(kept[1].topics())
"""

LIGHT = """
import sys

def test_nothing_heavy_was_imported(request):
    assert request.config.pluginmanager.hasplugin("mqueue")
    heavy = {name.partition(".")[0] for name in sys.modules} & {"numpy", "pyarrow"}
    assert not heavy
    assert not [name for name in sys.modules if name.startswith("mqueue.broker")]
"""


@pytest.fixture
def installed(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A place where mqueue is installed, as far as entry points go."""
    info = pytester.path / "site" / "mqueue-0.0.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mqueue\nVersion: 0.0.0\n", encoding="utf-8")
    lines = [f"{name} = {target}" for name, target in PROJECT["entry-points"]["pytest11"].items()]
    (info / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]), encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{info.parent}:{ROOT / 'src'}")
    return pytester


@pytest.mark.parametrize(("source", "passed"), [(USING, 3), (CLOSED, 2), (LIGHT, 1)], ids=["using", "closed", "light"])
def test_the_installed_plugin(installed: pytest.Pytester, source: str, passed: int) -> None:
    installed.makepyfile(source)
    installed.runpytest_subprocess("-W", "error", timeout=120).assert_outcomes(passed=passed)


def test_the_fixtures_explain_themselves(installed: pytest.Pytester) -> None:
    shown = installed.runpytest_subprocess("--fixtures", timeout=120).stdout.str()
    for name in ("broker", "async_broker", "manual_clock"):
        assert f"{name} -- " in shown
    for name in ("postgres_server", "redis_server"):
        assert f"{name} [session scope] -- " in shown


def test_mqueue_itself_knows_no_pytest_and_nothing_heavy_until_it_is_used() -> None:
    script = """
import sys, mqueue
assert "pytest" not in sys.modules
assert "pyarrow" not in sys.modules
mqueue.Broker
assert "pyarrow" in sys.modules
assert "pytest" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, env={"PYTHONPATH": str(ROOT / "src")})


def test_every_public_name_is_there_and_no_other() -> None:
    for name in mqueue.__all__:
        assert getattr(mqueue, name).__name__ == name
    assert set(mqueue._HOMES) <= set(mqueue.__all__) <= set(dir(mqueue))
    with pytest.raises(AttributeError, match="has no attribute 'Brokr'"):
        mqueue.Brokr  # noqa: B018


def test_type_checkers_find_the_names_where_they_are_imported_from() -> None:
    """The names are listed twice, for type checkers and for the first use: both lists must agree."""
    tree = ast.parse((ROOT / "src/mqueue/__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    told = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert told == {name: f"mqueue.{home}" for name, home in mqueue._HOMES.items()}
