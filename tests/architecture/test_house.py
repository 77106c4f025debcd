"""House rules that a machine can check: no attics, no loose ends in src, no giant files, no sleeping in tests, no
forgotten cancels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ATTICS = {"utils", "helpers", "common", "misc", "manager"}
LOOSE_END = re.compile(r"\b(TODO|FIXME|XXX)\b")
SLEEP = re.compile(r"\btime\.sleep\(|\bfrom time import\b.*\bsleep\b")
FORGETFUL = re.compile(r"\basyncio\.wait_for\(")
LINES_MAX = 500


def attics(root: Path) -> list[str]:
    """Modules and packages whose name does not say what is in them."""
    files = [path.relative_to(root) for folder in ("src", "tests", "benchmarks") for path in _modules(root / folder)]
    return [f"{path}: name it for what it does" for path in files if ATTICS & {*path.parent.parts, path.stem}]


def loose_ends(root: Path) -> list[str]:
    return [f"{place}: finish it or write it down elsewhere" for place in _matches(root, "src", LOOSE_END)]


def giants(root: Path) -> list[str]:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in _modules(root / "src")}
    return [f"{path.relative_to(root)}: {n} lines, split it" for path, n in lengths.items() if n > LINES_MAX]


def sleeps(root: Path) -> list[str]:
    return [f"{place}: step the clock or await an event" for place in _matches(root, "tests", SLEEP)]


def forgotten_cancels(root: Path) -> list[str]:
    """`wait_for` of Python 3.11 forgets a cancel that comes along with what it waits for: the task goes on for ever."""
    return [f"{place}: use asyncio.timeout" for place in _matches(root, "src", FORGETFUL)]


def _matches(root: Path, folder: str, pattern: re.Pattern[str]) -> Iterator[str]:
    for path in _modules(root / folder):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if pattern.search(line):
                yield f"{path.relative_to(root)}:{number}"


def _modules(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


RULES = [attics, loose_ends, giants, sleeps, forgotten_cancels]


@pytest.mark.parametrize("rule", RULES)
def test_the_house_is_in_order(rule) -> None:
    assert _modules(ROOT / "src"), f"no modules found below {ROOT}"
    assert _modules(ROOT / "tests")
    found = rule(ROOT)
    assert not found, "\n".join(found)


# The planted texts are put together here so that this file does not break its own rules.
@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        (attics, "src/mqueue/utils.py", ""),
        (attics, "src/mqueue/common/ids.py", ""),
        (attics, "tests/unit/helpers.py", ""),
        (loose_ends, "src/mqueue/heart/runs.py", "x = 1  # " + "TODO: y"),
        (loose_ends, "src/mqueue/heart/runs.py", '"""' + "FIXME" + '"""'),
        (giants, "src/mqueue/broker/publish.py", "x = 1\n" * (LINES_MAX + 1)),
        (sleeps, "tests/unit/test_runs.py", "time." + "sleep(1)"),
        (sleeps, "tests/unit/test_runs.py", "from time " + "import time, sleep"),
        (forgotten_cancels, "src/mqueue/server/face.py", "await asyncio." + "wait_for(bell.wait(), 1)"),
    ],
)
def test_a_planted_fault_is_caught(tmp_path: Path, rule, name: str, text: str) -> None:
    _write(tmp_path / name, text)
    assert len(rule(tmp_path)) == 1


@pytest.mark.parametrize("rule", RULES)
def test_a_clean_house_passes(tmp_path: Path, rule) -> None:
    _write(tmp_path / "src/mqueue/heart/runs.py", "x = 1\n" * LINES_MAX)
    _write(tmp_path / "tests/unit/test_runs.py", "await asyncio.sleep(0)\nclock.advance(1)\n")
    assert rule(tmp_path) == []


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
